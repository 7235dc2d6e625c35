//! Versions: a plain name that leads to one of them (an "OLH"), and the log in the index that says to which.
//!
//! ```text
//!   announced at the plain name (olh.pending.*) ── linked or unlinked in the index, which logs what is to do ──
//!   log read ── done at the plain name (olh.ver, olh.info), announcement gone ── log trimmed
//! ```
//!
//! What a gateway that died left announced is done by whoever reads the name next ([`Gateway::settle`]).
//!
//! Source: `RGWRados::set_olh`, `apply_olh_log`.

use cls::client::rgw::{
    CheckAttrsOp, ClearOp, Key as IndexKey, LinkOp, Meta, OlhLog, ReadLogOp, ReadLogRet, TrimLogOp,
    UnlinkOp, olh_op,
};
use rgw_proto::{Code, Result};
use types::{Bytes, Denc, Errno};

use crate::formats::{OlhInfo, OlhPending};
use crate::gateway::{ATTR, Gateway, attr_text, decoded, failed};
use crate::meta::BucketAt;
use crate::names::RawKey;
use crate::object::{ObjectAt, TRIES};
use crate::objects::{Objects, Step, Vector};

/// A change of versions is for other zones' logs too.
const BILOG_VERSIONED: u16 = 1;

fn plain(name: &str) -> RawKey {
    RawKey { name: name.into(), ..RawKey::default() }
}

fn index_key(name: &str, instance: &str) -> IndexKey {
    RawKey { name: name.into(), instance: instance.into(), ns: String::new() }.index_key()
}

/// What is announced at a plain name: the name's own tag, and the change's.
struct Pending {
    olh_tag: Bytes,
    op_tag: String,
}

impl<O: Objects> Gateway<O> {
    /// Has a plain name lead to a version that was just written, or to a new delete marker.
    ///
    /// # Errors
    /// [`Code::ConcurrentModification`]; of RADOS.
    pub async fn link_version(
        &self,
        bucket: &BucketAt,
        name: &str,
        instance: &str,
        marker_of: Option<(String, String)>,
    ) -> Result<()> {
        for _ in 0..TRIES {
            let Some(pending) = self.announce_link(bucket, name).await? else { continue };
            let meta = match &marker_of {
                Some((id, display)) => Meta {
                    owner: id.clone().into(),
                    owner_name: display.clone().into(),
                    mtime: self.objects.now(),
                    ..Meta::default()
                },
                None => Meta::default(),
            };
            let link = LinkOp {
                key: index_key(name, instance),
                olh_tag: pending.olh_tag.clone(),
                delete_marker: marker_of.is_some(),
                op_tag: pending.op_tag.clone().into(),
                meta,
                bilog_flags: BILOG_VERSIONED,
                ..LinkOp::default()
            };
            let input = link.to_bytes();
            match self.index_write(bucket, &plain(name), "bucket_link_olh", input).await {
                Ok(_) => return self.apply(bucket, name).await,
                Err(Errno::CANCELED) => self.sleep_a_little().await,
                Err(errno) => return Err(failed("linking the version")(errno)),
            }
        }
        Err(Code::ConcurrentModification.into())
    }

    /// Removes a version, or a delete marker.
    ///
    /// # Errors
    /// [`Code::ConcurrentModification`]; of RADOS. A version that is not there is none.
    pub async fn unlink_version(
        &self,
        bucket: &BucketAt,
        name: &str,
        instance: &str,
    ) -> Result<()> {
        for _ in 0..TRIES {
            let Some(pending) = self.announce_link(bucket, name).await? else { continue };
            let unlink = UnlinkOp {
                key: index_key(name, instance),
                op_tag: pending.op_tag.clone().into(),
                bilog_flags: BILOG_VERSIONED,
                olh_tag: pending.olh_tag.clone(),
                ..UnlinkOp::default()
            };
            let input = unlink.to_bytes();
            match self.index_write(bucket, &plain(name), "bucket_unlink_instance", input).await {
                Ok(_) => return self.apply(bucket, name).await,
                Err(Errno::NOENT) => {
                    // Nothing of that name: the announcement, and the name if it was made for it, go again.
                    self.retract(bucket, name, &pending).await;
                    return Ok(());
                }
                Err(Errno::CANCELED) => self.sleep_a_little().await,
                Err(errno) => return Err(failed("unlinking the version")(errno)),
            }
        }
        Err(Code::ConcurrentModification.into())
    }

    async fn sleep_a_little(&self) {
        self.objects.sleep_ms(10).await;
    }

    /// Announces a change at a plain name. `None` where another change came between.
    async fn announce_link(&self, bucket: &BucketAt, name: &str) -> Result<Option<Pending>> {
        let key = plain(name);
        let at = self.head_place(bucket, &key);
        let state = self.state(bucket, &key, false).await?;
        let made = self.make_pool(&at.pool, crate::objects::PoolUse::Data).await;
        made.map_err(failed("making the pool of data"))?;
        let mut vector = match &state {
            None => Vector::write().step(Step::Create(true)),
            Some(state) => Vector::write().step(Step::AssertExists).at(state.mtime),
        };
        let known = state.as_ref().and_then(|s| s.attrs.get("olh.idtag")).cloned();
        let olh_tag = match known {
            Some(tag) => {
                vector = vector.step(Step::CmpAttr(format!("{ATTR}olh.idtag"), tag.clone()));
                tag
            }
            None => {
                if let Some(tag) = state.as_ref().and_then(|s| s.id_tag()) {
                    vector = vector.step(Step::CmpAttr(format!("{ATTR}idtag"), tag.clone()));
                }
                let olh_tag = Bytes::from(self.random_lower(32));
                let id_tag = Bytes::from(self.random_lower(32));
                vector = vector
                    .step(Step::SetAttr(format!("{ATTR}idtag"), id_tag))
                    .step(Step::SetAttr(format!("{ATTR}olh.idtag"), olh_tag.clone()))
                    .step(Step::SetAttr(format!("{ATTR}olh.ver"), Bytes::new()));
                olh_tag
            }
        };
        let now = self.objects.now();
        let op_tag = format!("{:016x}{}", now.sec, self.random_lower(16));
        let attr = format!("{ATTR}olh.pending.{op_tag}");
        vector = vector.step(Step::SetAttr(attr, OlhPending(now).to_bytes()));
        match self.objects.operate(&at, vector).await {
            Ok(_) => Ok(Some(Pending { olh_tag, op_tag })),
            Err(Errno::EXIST | Errno::NOENT | Errno::CANCELED) => Ok(None),
            Err(errno) => Err(failed("announcing a change of versions")(errno)),
        }
    }

    async fn retract(&self, bucket: &BucketAt, name: &str, pending: &Pending) {
        let at = self.head_place(bucket, &plain(name));
        let attr = |name: &str| format!("{ATTR}{name}");
        let gone = Vector::write()
            .step(Step::CmpAttr(attr("olh.idtag"), pending.olh_tag.clone()))
            .step(Step::RmAttr(attr(&format!("olh.pending.{}", pending.op_tag))));
        let _ = self.objects.operate(&at, gone).await;
        let Ok(Some(state)) = self.state(bucket, &plain(name), false).await else { return };
        let unborn =
            state.is_link_only() && state.attrs.get("olh.ver").is_none_or(|v| v.is_empty());
        if unborn {
            let prefix = format!("{ATTR}olh.pending.").into();
            let check = CheckAttrsOp { prefix, fail_if_exist: true };
            let remove = Vector::write()
                .step(Step::CmpAttr(attr("olh.idtag"), pending.olh_tag.clone()))
                .step(Step::CmpAttr(attr("olh.ver"), Bytes::new()))
                .call("rgw", "obj_check_attrs_prefix", check.to_bytes())
                .step(Step::Remove);
            let _ = self.objects.operate(&at, remove).await;
        }
    }

    /// Does what the index logged of a plain name.
    async fn apply(&self, bucket: &BucketAt, name: &str) -> Result<()> {
        match self.state(bucket, &plain(name), false).await? {
            Some(state) => self.settle(bucket, &state).await,
            None => Ok(()),
        }
    }

    /// Does what is left to do at a plain name.
    ///
    /// # Errors
    /// Of RADOS.
    pub(crate) async fn settle(&self, bucket: &BucketAt, state: &ObjectAt) -> Result<()> {
        let Some(olh_tag) = state.attrs.get("olh.idtag").cloned() else { return Ok(()) };
        let name = state.key.name.as_str();
        for _ in 0..TRIES {
            let read =
                ReadLogOp { olh: index_key(name, ""), ver_marker: 0, olh_tag: olh_tag.clone() };
            let at = self.shard(bucket, &plain(name));
            let vector = Vector::read().call("rgw", "bucket_read_olh_log", read.to_bytes());
            let answers = match self.objects.operate(&at, vector).await {
                Ok(answers) => answers,
                // The name was removed and made anew.
                Err(Errno::CANCELED | Errno::NOENT) => return Ok(()),
                Err(errno) => return Err(failed("reading the log of versions")(errno)),
            };
            let data = answers.data(0).map_err(failed("reading the log of versions"))?;
            let got: ReadLogRet = decoded(&data, "The log of versions")?;
            if got.log.is_empty() {
                return Ok(());
            }
            let now = self.state(bucket, &plain(name), false).await?;
            let Some(now) = now else { return Ok(()) };
            self.apply_log(bucket, &now, &olh_tag, &got).await?;
            if !got.truncated {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn apply_log(
        &self,
        bucket: &BucketAt,
        state: &ObjectAt,
        olh_tag: &Bytes,
        got: &ReadLogRet,
    ) -> Result<()> {
        let name = state.key.name.as_str();
        let last = *got.log.keys().next_back().expect("the log is not empty");
        let attr = |name: &str| format!("{ATTR}{name}");
        let mut link = Link::of(state)?;
        let mut vector = Vector::write()
            .step(Step::CmpAttr(attr("olh.idtag"), olh_tag.clone()))
            .step(Step::CmpAttrAtLeast(attr("olh.ver"), last))
            .step(Step::SetAttr(attr("olh.ver"), last.to_string().into()))
            .at(state.mtime);
        let mut gone = Vec::new();
        for (epoch, entries) in &got.log {
            for entry in entries {
                link.take(*epoch, entry, &mut gone);
                let tag = String::from_utf8_lossy(&entry.op_tag).into_owned();
                let pending = format!("olh.pending.{tag}");
                if state.attrs.contains_key(&pending) {
                    vector = vector.step(Step::RmAttr(attr(&pending)));
                }
            }
        }
        if link.changed {
            let key =
                RawKey { name: name.into(), instance: link.instance.clone(), ns: String::new() };
            let info =
                OlhInfo { target: self.object_name(bucket, &key), is_removed: link.is_marker };
            vector = vector.step(Step::SetAttr(attr("olh.info"), info.to_bytes()));
        }
        for instance in gone {
            let key = RawKey { name: name.into(), instance, ns: String::new() };
            self.remove_exact(bucket, &key, |_| Ok(())).await?;
        }
        let at = self.head_place(bucket, &plain(name));
        match self.objects.operate(&at, vector).await {
            Ok(_) | Err(Errno::CANCELED | Errno::NOENT) => {}
            Err(errno) => return Err(failed("linking the current version")(errno)),
        }
        let trim = TrimLogOp { olh: index_key(name, ""), ver: last, olh_tag: olh_tag.clone() };
        let input = trim.to_bytes();
        match self.index_write(bucket, &plain(name), "bucket_trim_olh_log", input).await {
            Ok(_) | Err(Errno::CANCELED | Errno::NOENT) => {}
            Err(errno) => return Err(failed("trimming the log of versions")(errno)),
        }
        if link.is_over {
            self.remove_link(bucket, name, olh_tag, last).await?;
        }
        Ok(())
    }

    /// Removes a plain name whose last version is gone, unless a change was announced meanwhile.
    async fn remove_link(
        &self,
        bucket: &BucketAt,
        name: &str,
        olh_tag: &Bytes,
        last: u64,
    ) -> Result<()> {
        let prefix = format!("{ATTR}olh.pending.").into();
        let check = CheckAttrsOp { prefix, fail_if_exist: true };
        let remove = Vector::write()
            .step(Step::CmpAttr(format!("{ATTR}olh.idtag"), olh_tag.clone()))
            .step(Step::CmpAttrAtLeast(format!("{ATTR}olh.ver"), last))
            .call("rgw", "obj_check_attrs_prefix", check.to_bytes())
            .step(Step::Remove);
        match self.objects.operate(&self.head_place(bucket, &plain(name)), remove).await {
            Ok(_) => {}
            Err(Errno::CANCELED | Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(failed("removing the name of the versions")(errno)),
        }
        let clear = ClearOp { key: index_key(name, ""), olh_tag: olh_tag.clone() };
        let input = clear.to_bytes();
        match self.index_write(bucket, &plain(name), "bucket_clear_olh", input).await {
            Ok(_) | Err(Errno::NOENT | Errno::CANCELED) => Ok(()),
            Err(errno) => Err(failed("removing the name of the versions")(errno)),
        }
    }
}

/// Where a plain name leads while its log is followed.
struct Link {
    epoch: u64,
    instance: String,
    is_marker: bool,
    changed: bool,
    is_over: bool,
}

impl Link {
    fn of(state: &ObjectAt) -> Result<Self> {
        let epoch = state.attrs.get("olh.ver").and_then(|v| attr_text(v).parse().ok()).unwrap_or(0);
        let info = state.attrs.get("olh.info");
        let info: Option<OlhInfo> =
            info.map(|bytes| decoded(bytes, "The link to the current version")).transpose()?;
        let (instance, is_marker) =
            info.map(|i| (i.target.instance, i.is_removed)).unwrap_or_default();
        Ok(Self { epoch, instance, is_marker, changed: false, is_over: false })
    }

    fn take(&mut self, epoch: u64, entry: &OlhLog, gone: &mut Vec<String>) {
        let instance = String::from_utf8_lossy(&entry.key.instance).into_owned();
        match entry.op {
            // Of two links of one epoch the one that sorts first counts.
            olh_op::LINK
                if self.epoch < epoch || self.instance.is_empty() || self.instance > instance =>
            {
                (self.epoch, self.instance) = (epoch, instance);
                self.is_marker = entry.delete_marker;
                (self.changed, self.is_over) = (true, false);
            }
            olh_op::UNLINK => (self.changed, self.is_over) = (false, true),
            olh_op::REMOVE_INSTANCE => gone.push(instance),
            _ => {}
        }
    }
}
