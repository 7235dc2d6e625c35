//! Listings: pages of all shards, merged. A shard that fails fails the listing; nothing is left out.

use std::collections::{BTreeMap, VecDeque};

use cls::client::rgw::{DirEntry, Key as IndexKey, ListOp, ListRet, flag};
use rgw_proto::Result;
use types::{Bytes, Denc, Features, OpResult, UTime, Writer};

use crate::gateway::{Gateway, attr_text, decoded, failed};
use crate::meta::BucketAt;
use crate::names::RawKey;
use crate::objects::{Objects, Place, Vector};
use crate::together;

/// Fewest entries that a shard is asked for at once.
const PAGE_MIN: u32 = 8;

/// What is listed.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Keys that begin so.
    pub prefix: String,
    /// Where keys are folded; empty: nowhere.
    pub delimiter: String,
    /// Behind this key (and version): empty for the beginning.
    pub after: (String, String),
    /// At most so many entries and prefixes.
    pub max: usize,
    /// Whether all versions are listed.
    pub versions: bool,
    /// Namespace: `multipart` for uploads, else empty.
    pub ns: &'static str,
}

/// An entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key, and the version (`null` for none, in listings of versions).
    pub key: RawKey,
    /// Whether it is the current version.
    pub is_latest: bool,
    /// Whether it is a delete marker.
    pub is_marker: bool,
    /// Length in bytes.
    pub size: u64,
    /// Time of change.
    pub mtime: UTime,
    /// Without quotes.
    pub etag: String,
    /// Owner: id and name for people.
    pub owner: (String, String),
    /// Empty for `STANDARD`.
    pub storage_class: String,
    /// Its kind; empty where none was told.
    pub content_type: String,
}

/// A page of a listing.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// In order.
    pub entries: Vec<Entry>,
    /// Common prefixes, in order.
    pub prefixes: Vec<String>,
    /// Behind what the next page begins: key or prefix, and version; `None` at the end.
    pub next: Option<(String, String)>,
}

/// A shard and what was read ahead of it.
struct Cursor {
    at: Place,
    ahead: VecDeque<(Bytes, DirEntry)>,
    from: IndexKey,
    is_over: bool,
}

/// A name of the index, as key and namespace.
fn parse_name(name: &[u8]) -> Option<(String, String)> {
    let name = std::str::from_utf8(name).ok()?;
    let Some(rest) = name.strip_prefix('_') else { return Some((name.to_owned(), String::new())) };
    if rest.starts_with('_') {
        return Some((rest.to_owned(), String::new()));
    }
    let (ns, name) = rest.split_once('_')?;
    Some((name.to_owned(), ns.to_owned()))
}

impl<O: Objects> Gateway<O> {
    /// Lists a page of a bucket.
    ///
    /// # Errors
    /// Of RADOS, of any shard.
    pub async fn list(&self, bucket: &BucketAt, query: &Query) -> Result<Page> {
        let error = match self.list_in(bucket, query).await {
            Err(error) => error,
            page => return page,
        };
        // What is known of the bucket may be older than its resharding.
        let now = self.bucket_instance(&bucket.info.bucket).await?;
        match now.info.layout == bucket.info.layout {
            true => Err(error),
            false => self.list_in(&now, query).await,
        }
    }

    async fn list_in(&self, bucket: &BucketAt, query: &Query) -> Result<Page> {
        let mut page = Page::default();
        if query.max == 0 || bucket.info.layout.current.is_indexless {
            return Ok(page);
        }
        let coded = |name: &str| RawKey {
            name: name.to_owned(),
            ns: query.ns.to_owned(),
            ..RawKey::default()
        };
        let prefix = match query.prefix.as_str() {
            "" if query.ns.is_empty() => String::new(),
            prefix => coded(prefix).index_name(),
        };
        // Where the index's own underscores could be taken for the delimiter, keys are folded here alone.
        let folds_there = !query.delimiter.contains('_') && query.ns.is_empty();
        let delimiter = if folds_there { query.delimiter.clone() } else { String::new() };
        let (after, version) = &query.after;
        let folded_after = !query.delimiter.is_empty() && after.ends_with(&query.delimiter);
        let mut from = IndexKey::default();
        if !after.is_empty() {
            let mut name = coded(after).index_name().into_bytes();
            if version.is_empty() && query.versions {
                // Behind all versions of the key.
                name.push(1);
            }
            from = IndexKey { name: name.into(), instance: version.clone().into() };
        }
        let shards = bucket.index_places();
        let share = query.max / shards.len() + 1;
        let ask = u32::try_from(share + share / 4).unwrap_or(u32::MAX).max(PAGE_MIN);
        let mut op = ListOp {
            max: ask,
            prefix: prefix.into(),
            start_after: IndexKey::default(),
            list_versions: query.versions,
            delimiter: delimiter.into(),
        };
        let mut cursors: Vec<Cursor> = shards
            .into_iter()
            .map(|at| Cursor { at, ahead: VecDeque::new(), from: from.clone(), is_over: false })
            .collect();
        let mut last: (String, String) = Default::default();
        let mut folded: Option<String> = folded_after.then(|| after.clone());
        loop {
            self.fill(&mut cursors, &mut op).await?;
            let least =
                cursors.iter().enumerate().filter_map(|(n, c)| Some((&c.ahead.front()?.0, n)));
            let Some(n) = least.min().map(|(_, n)| n) else { return Ok(page) };
            let (_, found) = cursors[n].ahead.pop_front().expect("it has a first entry");
            let Some((name, ns)) = parse_name(&found.key.name) else { continue };
            if ns != query.ns || !name.starts_with(&query.prefix) {
                continue;
            }
            let rest = &name[query.prefix.len()..];
            let is_prefix = found.flags & flag::COMMON_PREFIX != 0;
            let cut = match query.delimiter.as_str() {
                "" => None,
                delimiter => {
                    rest.find(delimiter).map(|at| query.prefix.len() + at + delimiter.len())
                }
            };
            if is_prefix || cut.is_some() {
                let prefix = cut.map_or(name.as_str(), |cut| &name[..cut]).to_owned();
                if folded.as_deref() == Some(prefix.as_str()) {
                    continue;
                }
                if page.entries.len() + page.prefixes.len() == query.max {
                    page.next = Some(last);
                    return Ok(page);
                }
                folded = Some(prefix.clone());
                last = (prefix.clone(), String::new());
                page.prefixes.push(prefix);
                continue;
            }
            let key = RawKey { name, ns, instance: text(&found.key.instance) };
            let Some(entry) = self.entry(bucket, &cursors[n].at, key, found, query).await? else {
                continue;
            };
            if page.entries.len() + page.prefixes.len() == query.max {
                page.next = Some(last);
                return Ok(page);
            }
            let version = if query.versions { entry.key.instance.clone() } else { String::new() };
            last = (entry.key.name.clone(), version);
            page.entries.push(entry);
        }
    }

    /// Reads on in every shard that has nothing left and is not over.
    async fn fill(&self, cursors: &mut [Cursor], op: &mut ListOp) -> Result<()> {
        while cursors.iter().any(|c| c.ahead.is_empty() && !c.is_over) {
            let dry = cursors.iter_mut().filter(|c| c.ahead.is_empty() && !c.is_over);
            let reads = dry.map(|cursor| {
                let op = ListOp { start_after: cursor.from.clone(), ..op.clone() };
                async move { (self.page(&cursor.at, &op).await, cursor) }
            });
            for (got, cursor) in together::all(reads).await {
                let got = got.map_err(failed("listing a shard of the bucket's index"))?;
                let got: ListRet = decoded(&got, "The page of the bucket's index")?;
                cursor.is_over = !got.truncated;
                cursor.from = got.marker;
                cursor.ahead.extend(got.dir.entries);
            }
        }
        Ok(())
    }

    async fn page(&self, at: &Place, op: &ListOp) -> OpResult<Bytes> {
        // EFBIG comes with an answer: nothing was found yet, and where to go on.
        let step = crate::objects::Step::Call("rgw", "bucket_list", op.to_bytes());
        let answers = self.objects.operate(at, Vector::read().try_step(step)).await?;
        answers.data(0)
    }

    /// An entry as it is listed; `None` for what is not there. Where the index has a change under way, the head tells.
    async fn entry(
        &self,
        bucket: &BucketAt,
        shard: &Place,
        key: RawKey,
        found: DirEntry,
        query: &Query,
    ) -> Result<Option<Entry>> {
        let is_marker = found.is_delete_marker();
        let mut entry = Entry {
            is_latest: found.flags & flag::VER == 0 || found.flags & flag::CURRENT != 0,
            is_marker,
            size: found.meta.accounted_size.max(found.meta.size),
            mtime: found.meta.mtime,
            etag: text(&found.meta.etag),
            owner: (text(&found.meta.owner), text(&found.meta.owner_name)),
            storage_class: text(&found.meta.storage_class),
            content_type: attr_text(&found.meta.content_type),
            key: key.clone(),
        };
        if query.versions && entry.key.instance.is_empty() {
            entry.key.instance = "null".into();
        }
        let settled = found.exists && found.pending.is_empty();
        if query.ns == "multipart" && !settled && key.name.ends_with(".meta") {
            // An upload that ended, or began, and whose gateway died: its own object tells.
            let at = self.upload_place(bucket, &key);
            let state = self.state_at(&at, &key, false).await?;
            self.suggest(shard, &found, state.as_ref()).await;
            return Ok(state.map(|_| entry));
        }
        if settled || is_marker || found.meta.category == 3 || query.ns == "multipart" {
            return Ok((found.exists || is_marker).then_some(entry));
        }
        let state = self.state(bucket, &key, false).await?;
        self.suggest(shard, &found, state.as_ref()).await;
        let Some(state) = state.filter(|s| !s.is_link_only()) else { return Ok(None) };
        let now = state.entry();
        entry.size = now.size;
        entry.mtime = now.mtime;
        entry.etag = now.etag;
        entry.owner = now.owner;
        entry.storage_class = now.storage_class;
        entry.content_type = now.content_type;
        Ok(Some(entry))
    }

    /// Tells a shard what the head says; it takes that where the change under way is old.
    async fn suggest(
        &self,
        shard: &Place,
        found: &DirEntry,
        state: Option<&crate::object::ObjectAt>,
    ) {
        let mut entry = found.clone();
        entry.pending.clear();
        let mut w = Writer::new(Features::ALL);
        match state {
            Some(state) => {
                entry.exists = true;
                let category = entry.meta.category.max(1);
                entry.meta = crate::index::IndexEntry { category, ..state.entry() }.meta();
                w.u8(b'u');
            }
            None => {
                entry.exists = false;
                w.u8(b'r');
            }
        }
        entry.encode(&mut w);
        let vector = Vector::write().call("rgw", "dir_suggest_changes", w.finish());
        // What is not taken is suggested by the next listing.
        let _: OpResult<_> = self.objects.operate(shard, vector).await;
    }

    /// Whether a bucket holds anything: objects, versions, delete markers. Uploads do not count.
    ///
    /// # Errors
    /// As [`Gateway::list`].
    pub async fn is_empty(&self, bucket: &BucketAt) -> Result<bool> {
        let query = Query { max: 1, versions: true, ..Query::default() };
        Ok(self.list(bucket, &query).await?.entries.is_empty())
    }

    /// Pairs of an object's omap that begin with a prefix.
    pub(crate) async fn pairs(&self, at: &Place, prefix: &str) -> OpResult<BTreeMap<Bytes, Bytes>> {
        let mut out = BTreeMap::new();
        let mut after = Bytes::new();
        loop {
            let step = crate::objects::Step::Pairs(after.clone(), 1_000);
            let (pairs, more) =
                self.objects.operate(at, Vector::read().step(step)).await?.pairs(0)?;
            let Some(last) = pairs.keys().next_back().cloned() else { return Ok(out) };
            out.extend(pairs.into_iter().filter(|(key, _)| key.starts_with(prefix.as_bytes())));
            if !more {
                return Ok(out);
            }
            after = last;
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::parse_name;

    #[test]
    fn names_of_the_index_are_keys_and_namespaces() {
        let parsed = |name: &str| parse_name(name.as_bytes());
        assert_eq!(parsed("a_b"), Some(("a_b".into(), String::new())));
        assert_eq!(parsed("__a"), Some(("_a".into(), String::new())));
        assert_eq!(
            parsed("_multipart_a_b.2~x.meta"),
            Some(("a_b.2~x.meta".into(), "multipart".into()))
        );
        assert_eq!(parsed("_"), None);
    }
}
