//! `fs mirror ...`: whether and where a file system is mirrored.

use maps::{MirrorCluster, MirrorPeer};

use super::{Run, commit};
use crate::CommandCtx;
use crate::commands::{EINVAL, fail, ok};

pub(super) fn run(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    let fs = ctx.need_fs()?;
    let (fscid, name, on) = (fs.fscid, fs.mds_map.fs_name.clone(), fs.mirror.mirrored);
    let mut edit = ctx.fs_edit();
    let uuid = ctx.cmd.str_or_empty("uuid")?.to_owned();
    if what.starts_with("peer_") && !on {
        return Err(fail(EINVAL, format!("Mirroring not enabled for filesystem '{name}'")));
    }
    let known = fs.mirror.peers.iter().find(|p| p.uuid == uuid).cloned();
    match what {
        "enable" | "disable" if on == (what == "enable") => return ok(""),
        "enable" | "disable" => {
            if let Some(fs) = edit.fs(fscid) {
                fs.mirror.mirrored = !on;
                if on {
                    fs.mirror.peers.clear();
                }
            }
        }
        "peer_add" => {
            let spec = ctx.cmd.str_or_empty("remote_cluster_spec")?;
            let Some((client_name, cluster_name)) = spec.split_once('@') else {
                let why = "invalid remote cluster spec -- should be <client>@<cluster>";
                return Err(fail(EINVAL, why));
            };
            let remote = MirrorCluster {
                client_name: client_name.to_owned(),
                cluster_name: cluster_name.to_owned(),
                fs_name: ctx.cmd.str_or_empty("remote_fs_name")?.to_owned(),
            };
            if known.is_some() || fs.mirror.peers.iter().any(|p| p.remote == remote) {
                return ok("peer already exists");
            }
            if let Some(fs) = edit.fs(fscid) {
                fs.mirror.peers.insert(MirrorPeer { uuid, remote });
            }
        }
        "peer_remove" => {
            let Some(peer) = known else {
                return ok(format!("cannot find peer with uuid: {uuid}"));
            };
            if let Some(fs) = edit.fs(fscid) {
                fs.mirror.peers.remove(&peer);
            }
        }
        _ => return Err(fail(EINVAL, "command not known")),
    }
    commit(edit, "")
}
