//! Containers: lists of objects, metadata, lists of access.

use rgw_core::gateway::attr_text;
use rgw_core::list;
use rgw_core::meta::{BucketAt, NewBucket};
use rgw_proto::acl::Acl;
use rgw_proto::body::cors;
use rgw_proto::operation::Operation as Op;
use rgw_proto::request::Headers;
use rgw_proto::swift::acl::Grants;
use rgw_proto::swift::listing::{self, Entry, Window};
use rgw_proto::swift::request::Call;
use rgw_proto::swift::{self as proto};
use rgw_proto::{Code, Error, Result};

use super::account::{META, quota_of, set_metadata};
use super::auth::URL_KEYS;
use super::{listed_time, timestamp};
use crate::acl;
use crate::answer::Answer;
use crate::buckets::{owner_of, time};
use crate::config::cors_bytes;
use crate::request::{Asked, Rules};
use crate::server::Server;

/// Bytes that an entry of a list may take while it becomes an answer.
const ENTRY_BYTES: u64 = 4 << 10;

/// What a request changes of a container.
#[derive(Default)]
struct Changes {
    /// The new lists of who reads and who writes; `None` where they stay.
    lists: [Option<String>; 2],
    metadata: Vec<(String, Option<String>)>,
    /// Whether of bytes, and the bound.
    quota: Vec<(bool, i64)>,
    /// The one rule of other sites' pages; an empty list removes it.
    cors: Option<Vec<cors::Rule>>,
}

impl Changes {
    fn of(headers: &Headers) -> Result<Self> {
        let list = |name: &str| -> Result<Option<String>> {
            let sent = headers.single(&format!("x-container-{name}"))?.map(str::to_owned);
            let gone = headers.get(&format!("x-remove-container-{name}")).map(|_| String::new());
            Ok(sent.or(gone))
        };
        let mut out = Self { lists: [list("read")?, list("write")?], ..Self::default() };
        for (name, value) in proto::metadata(headers, "container")? {
            match name.as_str() {
                "quota-bytes" => out.quota.push((true, quota_of(value.as_deref())?)),
                "quota-count" => out.quota.push((false, quota_of(value.as_deref())?)),
                _ => out.metadata.push((name, value)),
            }
        }
        let cors = |name: &str| {
            let name = format!("access-control-{name}");
            let found = out.metadata.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.clone().unwrap_or_default())
        };
        let words = |text: Option<String>| -> Vec<String> {
            let text = text.unwrap_or_default();
            text.split([' ', ',']).filter(|w| !w.is_empty()).map(str::to_owned).collect()
        };
        if let Some(origins) = cors("allow-origin") {
            let bad = |_| Error::new(Code::InvalidArgument, "Access-Control-Max-Age is seconds.");
            let age = cors("max-age").filter(|age| !age.is_empty());
            let rule = cors::Rule {
                id: String::new(),
                methods: ["GET", "PUT", "HEAD", "POST", "DELETE"].map(str::to_owned).to_vec(),
                origins: words(Some(origins)),
                headers: words(cors("allow-headers")),
                expose: words(cors("expose-headers")),
                max_age_s: age.map(|age| age.parse()).transpose().map_err(bad)?,
            };
            out.cors = Some(if rule.origins.is_empty() { Vec::new() } else { vec![rule] });
        }
        Ok(out)
    }

    fn is_empty(&self) -> bool {
        self.lists == [None, None]
            && self.metadata.is_empty()
            && self.quota.is_empty()
            && self.cors.is_none()
    }

    /// The container's list with the new ones in it.
    fn list(&self, mut now: Acl) -> Result<Acl> {
        let [read, write] = &self.lists;
        let old = (now.swift.header(false), now.swift.header(true));
        now.swift =
            Grants::parse(read.as_ref().unwrap_or(&old.0), write.as_ref().unwrap_or(&old.1))?;
        Ok(now)
    }

    fn apply(&self, now: &mut BucketAt) -> Result<()> {
        if self.lists != [None, None] {
            let list = self.list(acl::of(&now.attrs))?;
            if list.swift.is_public() && Rules::of(now)?.block.block_acls {
                let text = "The bucket blocks public access control lists.";
                return Err(Error::new(Code::AccessDenied, text));
            }
            now.attrs.insert("acl".into(), acl::encode(&list));
        }
        set_metadata(&mut now.attrs, &self.metadata)?;
        let quota = &mut now.info.quota;
        for (is_bytes, most) in &self.quota {
            *(if *is_bytes { &mut quota.bytes_max } else { &mut quota.objects_max }) = *most;
            quota.is_enabled = quota.bytes_max >= 0 || quota.objects_max >= 0;
            quota.on_raw = true;
        }
        match self.cors.as_deref() {
            None => {}
            Some([]) => drop(now.attrs.remove("cors")),
            Some(rules) => drop(now.attrs.insert("cors".into(), cors_bytes(rules))),
        }
        Ok(())
    }
}

impl Server {
    /// Makes a container; one that the account has already gets what the request changes.
    pub(super) async fn put_container(&self, asked: &Asked, call: &Call) -> Result<Answer> {
        let user = asked.user()?;
        asked.check(None, None, None)?;
        let headers = &asked.head.headers;
        let changes = Changes::of(headers)?;
        let owner = asked.owner();
        let list = changes.list(Acl::private(owner))?;
        let new = NewBucket {
            tenant: user.id.tenant.clone(),
            name: call.container().unwrap_or_default().to_owned(),
            owner: owner_of(user),
            placement: headers.single("x-storage-policy")?.unwrap_or_default().to_owned(),
            is_locked: false,
            attrs: [("acl".to_owned(), acl::encode(&list))].into(),
        };
        let most = asked.account.as_ref().map_or(user.limits.buckets_max, |a| a.buckets_max);
        let (tenant, name) = (new.tenant.clone(), new.name.clone());
        let is_new = self.gateway.make_bucket(new, most).await?;
        let rest =
            Changes { lists: if is_new { [None, None] } else { changes.lists.clone() }, ..changes };
        if !rest.is_empty() {
            let bucket = self.gateway.bucket_now(&tenant, &name).await?;
            if !is_new {
                asked.check_as(
                    asked.sender.also(Op::PutBucketMetadata),
                    Some(&bucket),
                    None,
                    None,
                )?;
            }
            let change = |now: &mut BucketAt| rest.apply(now);
            self.gateway.change_bucket(&bucket.info.bucket, change).await?;
        }
        let status = if is_new { 201 } else { 202 };
        Ok(Answer::new(status).header("Content-Type", "text/plain; charset=utf-8"))
    }

    /// All but the making of a container.
    pub(super) async fn on_container(
        &self,
        asked: &Asked,
        call: &Call,
        bucket: &BucketAt,
    ) -> Result<Answer> {
        let dialect = Self::dialect(asked);
        let lists = matches!(asked.operation, Op::ListObjects | Op::HeadBucket);
        if lists && asked.user.is_none() && call.is_bare {
            // As stock does for who has no token: pages of a container have relative links.
            let query = asked.head.query.canonical("");
            let query = if query.is_empty() { query } else { format!("?{query}") };
            let to = format!("{}/{query}", asked.head.path);
            return Ok(Answer::new(301).header("Location", to));
        }
        asked.check(Some(bucket), None, None)?;
        match asked.operation {
            Op::HeadBucket => {
                let answer = self.container_headers(asked, bucket).await?;
                Ok(dialect.body(answer.status(204), String::new()))
            }
            Op::ListObjects => self.list_container(asked, bucket).await,
            Op::PutBucketMetadata => {
                let changes = Changes::of(&asked.head.headers)?;
                let change = |now: &mut BucketAt| changes.apply(now);
                self.gateway.change_bucket(&bucket.info.bucket, change).await?;
                Ok(Answer::new(204).header("Content-Type", "text/plain; charset=utf-8"))
            }
            Op::DeleteBucket => {
                let answer = self.delete_bucket(bucket).await?;
                Ok(answer.header("Content-Type", "text/plain; charset=utf-8"))
            }
            _ => Err(Code::MethodNotAllowed.into()),
        }
    }

    async fn container_headers(&self, asked: &Asked, bucket: &BucketAt) -> Result<Answer> {
        let usage = self.gateway.usage(bucket).await?;
        let changed = self.gateway.written_at(&bucket.info.bucket, false).await?;
        let (policy, class) = match bucket.info.placement.split_once('/') {
            Some((policy, class)) => (policy, class),
            None => (bucket.info.placement.as_str(), "STANDARD"),
        };
        let mut answer = Answer::new(200)
            .header("X-Timestamp", timestamp(bucket.info.created))
            .header("X-Container-Object-Count", usage.objects.to_string())
            .header("X-Container-Bytes-Used", usage.bytes.to_string())
            .header("X-Container-Bytes-Used-Actual", usage.rounded.to_string())
            .header("X-Storage-Policy", policy)
            .header("X-Storage-Class", class)
            .header("Last-Modified", time(changed).http())
            .header("Accept-Ranges", "bytes");
        // Who else may read is the owner's business, and so are keys: stock tells them to all who may list.
        let is_owner = asked.owns_alone(bucket) || asked.sender.identity().is_admin;
        if is_owner {
            let lists = acl::of(&bucket.attrs).swift;
            for (name, writes) in [("X-Container-Read", false), ("X-Container-Write", true)] {
                answer = answer.maybe(name, Some(lists.header(writes)).filter(|l| !l.is_empty()));
            }
        }
        for (name, value) in &bucket.attrs {
            let Some(short) = name.strip_prefix(META) else { continue };
            if is_owner || !URL_KEYS.contains(&name.as_str()) {
                answer = answer.header(&format!("X-Container-Meta-{short}"), attr_text(value));
            }
        }
        let quota = &bucket.info.quota;
        if quota.is_enabled {
            let told = |n: i64| (n >= 0).then(|| n.to_string());
            answer = answer
                .maybe("X-Container-Meta-Quota-Bytes", told(quota.bytes_max))
                .maybe("X-Container-Meta-Quota-Count", told(quota.objects_max));
        }
        let versions = bucket.info.swift_versions.as_deref().filter(|to| !to.is_empty());
        Ok(answer.maybe("X-Versions-Location", versions))
    }

    async fn list_container(&self, asked: &Asked, bucket: &BucketAt) -> Result<Answer> {
        let dialect = Self::dialect(asked);
        let window = Window::of_container(&asked.head.query)?;
        let share = self.needed.need(window.limit * ENTRY_BYTES)?;
        let limit = usize::try_from(window.limit).unwrap_or(usize::MAX);
        let query = list::Query {
            prefix: window.prefix.clone(),
            delimiter: window.delimiter.clone(),
            after: (window.marker.clone(), String::new()),
            // One more for the directory's own name, which is left out.
            max: limit + usize::from(limit > 0 && !window.directory.is_empty()),
            ..list::Query::default()
        };
        let page = self.gateway.list(bucket, &query).await?;
        let objects = page.entries.into_iter().map(|e| Entry::Object {
            name: e.key.name,
            hash: e.etag,
            bytes: e.size,
            content_type: last_kind(&e.content_type).to_owned(),
            modified: listed_time(e.mtime),
        });
        let mut all: Vec<Entry> =
            objects.chain(page.prefixes.into_iter().map(Entry::Subdir)).collect();
        all.sort_by(|a, b| a.name().cmp(b.name()));
        all.retain(|entry| {
            let is_own = !window.directory.is_empty() && entry.name() == window.directory;
            let is_bare = entry.name() == window.delimiter && matches!(entry, Entry::Subdir(_));
            window.holds(entry.name()) && !is_own && !is_bare
        });
        all.truncate(limit);
        let answer = self.container_headers(asked, bucket).await?;
        let text = listing::objects(&bucket.info.bucket.name, &all, dialect.format);
        Ok(dialect.list(answer, text).held_by(share))
    }
}

/// The last of several kinds, as lists show it.
fn last_kind(kinds: &str) -> &str {
    kinds.rsplit(',').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(headers: &[(&str, &str)]) -> Result<Changes> {
        Changes::of(&Headers::new(headers.iter().copied()).unwrap())
    }

    /// One list is changed, the other stays, and so do grants of S3.
    #[test]
    fn lists_change_one_by_one() {
        let owner = rgw_proto::acl::Owner { id: "main".into(), display_name: String::new() };
        let acl = Acl::canned("public-read", owner, "main").unwrap();
        let set = |acl: &Acl, headers: &[(&str, &str)]| {
            changes(headers).unwrap().list(acl.clone()).unwrap()
        };
        let read = set(&acl, &[("X-Container-Read", ".r:*,other"), ("X-Container-Write", "w")]);
        assert_eq!((read.swift.header(false).as_str(), read.grants.len()), (".r:*,other", 2));
        let less = set(&read, &[("X-Container-Read", "")]);
        assert_eq!((less.swift.header(false), less.swift.header(true)), ("".into(), "w".into()));
        let none = set(&read, &[("X-Remove-Container-Write", "x")]);
        assert_eq!(
            (none.swift.header(false).as_str(), none.swift.header(true).as_str()),
            (".r:*,other", "")
        );
        assert!(changes(&[("X-Container-Write", ".r:*")]).unwrap().list(acl).is_err());
    }

    #[test]
    fn what_is_changed() {
        let found = changes(&[
            ("X-Container-Meta-Quota-Bytes", "5"),
            ("X-Container-Meta-A", "1"),
            ("X-Container-Meta-Access-Control-Allow-Origin", "http://a http://b"),
            ("X-Container-Meta-Access-Control-Max-Age", "60"),
        ])
        .unwrap();
        assert_eq!((found.quota.as_slice(), found.metadata.len()), (&[(true, 5)][..], 3));
        let rule = &found.cors.as_ref().unwrap()[0];
        assert_eq!((rule.origins.len(), rule.max_age_s), (2, Some(60)));
        assert!(changes(&[]).unwrap().is_empty());
        let gone = changes(&[("X-Remove-Container-Meta-Access-Control-Allow-Origin", "x")]);
        assert_eq!(gone.unwrap().cors.map(|rules| rules.len()), Some(0));
        for bad in [("X-Container-Meta-Quota-Bytes", "abc"), ("X-Container-Meta-", "x")] {
            assert!(changes(&[bad]).is_err(), "{bad:?}");
        }
        assert_eq!((last_kind("a/b, c/d"), last_kind("a/b"), last_kind("")), ("c/d", "a/b", ""));
    }
}
