//! `ceph-mon --inject-monmap`: a monitor goes on where the majority of the monitors is lost for good.
//!
//! Which monitors count stands in the log, not in the monitor map alone. So the monitor's file is made
//! anew: with the state that the old one holds, with the given map, and with this monitor as the only
//! one that counts. The others join it by `mon join`. The old file stays beside the new one.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use denc::Denc;
use maps::MonMap;
use mon::{ClusterState, quorum};

use crate::mon_daemon::KNOWN_MAP;

/// Under this name the old file stays in the data directory.
const OLD: &str = "store.before-inject";

/// Makes the monitor `id`, whose data that is and which does not run, the only one of its cluster.
///
/// # Errors
/// When the map is of another cluster, or names other monitors than this one; when the monitor runs,
/// or its file is damaged; and those of the disk. Nothing is changed then.
pub fn inject_map(data: &Path, id: &str, map: &Bytes) -> Result<()> {
    let mut map = MonMap::from_shared(map).context("the file holds no monitor map")?;
    if map.mons.len() != 1 || !map.mons.contains_key(id) {
        let names: Vec<&str> = map.mons.keys().map(String::as_str).collect();
        bail!(
            "the map names {names:?} and is to name '{id}' alone: take the others out with \
             `monmaptool --rm`, and let them join once this one runs (argonaut mon join)"
        );
    }
    let (store, old) = (data.join("store"), data.join(OLD));
    if old.exists() {
        bail!("{} is there from an earlier time: move it away first", old.display());
    }
    let whole = quorum::read_whole(&store)?;
    let known = fs::read(data.join(KNOWN_MAP)).ok().map(Bytes::from);
    if let Some(known) = known.map(|known| MonMap::from_shared(&known)).transpose()? {
        map.epoch = map.epoch.max(known.epoch);
    }
    let fsid = ClusterState::from_shared(&whole.state)?.fsid;
    if map.fsid != fsid {
        bail!("the map is of cluster {}, and mon.{id} of {fsid}", map.fsid);
    }
    let state = ClusterState::rescued(&whole, map)?;
    let aside = data.join("store.injected");
    if aside.exists() {
        fs::remove_file(&aside)?; // of a try that was cut off
    }
    quorum::create_alone(&aside, (whole.node, id), whole.term, &state.to_bytes())?;
    daemon::write_durably(&data.join(KNOWN_MAP), &state.monmap.to_bytes())?;
    fs::hard_link(&store, &old).with_context(|| old.display().to_string())?;
    fs::rename(&aside, &store)?;
    fs::File::open(data)?.sync_all()?;
    Ok(())
}
