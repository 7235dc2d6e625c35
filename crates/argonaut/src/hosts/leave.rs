//! A host leaves: its data goes elsewhere, then all that it had in the cluster, then its directory.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::enter::{knock, own, seen, wait};
use super::host_conf;
use super::state::State;
use super::who::{Refused, Unknown, Who};
use crate::layout::Layout;
use crate::target::Target;
use crate::{remove, supervise, up};

/// Data goes as fast as it does: nothing ends this wait but the operator.
const DRAIN_MAX: Duration = Duration::from_secs(30 * 86_400);
/// How long an OSD that was stopped may be up for the monitors, and a monitor run that was removed.
const DOWN_MAX: Duration = Duration::from_secs(60);

fn ids(host: &Value) -> Vec<String> {
    let osds = host["osds"].as_array().into_iter().flatten();
    osds.filter_map(|o| Some(o["id"].as_u64()?.to_string())).collect()
}

/// What the monitors refuse, as words; anything else is an error.
fn refused<T>(asked: Result<T>) -> Result<Result<T, String>> {
    match asked {
        Ok(done) => Ok(Ok(done)),
        Err(err) => match err.downcast_ref::<Refused>() {
            Some(why) => Ok(Err(why.to_string())),
            None => Err(err),
        },
    }
}

/// Refuses where the other monitors would have no majority, or there are none.
fn mon_can_go(who: &Who, name: &str) -> Result<()> {
    let said = who.json(&json!({"prefix": "quorum_status", "format": "json"}))?;
    let mons = said["monmap"]["mons"].as_array().map_or(0, Vec::len);
    let quorum = said["quorum_names"].as_array().into_iter().flatten();
    let others = quorum.filter(|n| *n != name).count();
    if mons <= 1 {
        bail!(
            "mon.{name} is the last monitor: the cluster would end with it. Another host can join \
             first; argonaut rm removes the whole cluster"
        );
    }
    if others <= (mons - 1) / 2 {
        bail!(
            "without mon.{name} there would be no majority: only {others} of the {} other monitors \
             are in the quorum",
            mons - 1
        );
    }
    Ok(())
}

/// Refuses where pools want their copies on more hosts than would be left: that would never be done.
fn data_can_go(who: &Who, name: &str) -> Result<()> {
    let hosts = who.json(&json!({"prefix": "host ls", "format": "json"}))?;
    let holds = |h: &Value| {
        let mut osds = h["osds"].as_array().into_iter().flatten();
        osds.any(|o| o["in"] == true)
    };
    let hosts = hosts.as_array().into_iter().flatten();
    let left = hosts.filter(|h| h["name"] != name && holds(h)).count() as u64;
    let dump = who.json(&json!({"prefix": "osd dump", "format": "json"}))?;
    for pool in dump["pools"].as_array().into_iter().flatten() {
        let (size, pool) = (pool["size"].as_u64().unwrap_or(0), &pool["pool_name"]);
        if size > left {
            bail!(
                "pool {pool} keeps {size} copies on as many hosts, and {left} hosts with OSDs would be \
                 left: have another host join first, lower its size, or say --now"
            );
        }
    }
    Ok(())
}

/// Has the OSDs' data go elsewhere, and waits for that.
fn drain(who: &Who, name: &str, ids: &[String]) -> Result<()> {
    who.ask(&json!({"prefix": "host osd-out", "name": name}), String::new())?;
    say!("draining osd.{}", ids.join(", osd."));
    let mut last = String::new();
    wait(DRAIN_MAX, || {
        let ask = json!({"prefix": "osd safe-to-destroy", "ids": ids});
        match refused(who.ask(&ask, String::new()))? {
            Ok(_) => Ok(Some(())),
            Err(why) => {
                if why != last {
                    tell!("{}", why.trim_end());
                    last = why;
                }
                Ok(None)
            }
        }
    })?
    .context("the OSDs are not drained")
}

/// Wipes the marks of a store, so that the device can be used for anything.
fn wipe(state: &State, id: u32) -> Result<()> {
    let disk = state.osds.iter().find(|d| d.id == Some(id));
    match disk.and_then(|d| d.device.as_deref()) {
        Some(device) if device.exists() => Target::inspect(device, true)?.clear(),
        _ => Ok(()),
    }
}

/// See the module's page. By `now` the data is not waited for.
///
/// # Errors
/// When data would be lost or no majority left; else at the step that fails.
pub fn leave(layout: &Layout, state: &mut State, now: bool) -> Result<()> {
    let name = state.name.clone();
    let has_key = layout.dir.join("host.keyring").exists();
    if has_key || was_let_in(layout, state)? {
        out_of_cluster(layout, state, now)?;
    }
    up::stop_host(layout)?;
    remove::clear(layout)?;
    say!("host {name} has left; {} is removed", layout.dir.display());
    Ok(())
}

/// Whether a host without a key was let in, and only the answer was lost; then it has the key now. What
/// was never let in is known to nobody, and only what is here goes.
fn was_let_in(layout: &Layout, state: &State) -> Result<bool> {
    if state.token.is_none() || state.first.is_some() {
        return Ok(false);
    }
    match knock(layout, state) {
        Ok(()) => Ok(true),
        Err(err) if err.downcast_ref::<Refused>().is_some() => Ok(false),
        Err(err) if err.downcast_ref::<Unknown>().is_some() => Ok(false),
        Err(err) => {
            let name = &state.name;
            Err(err.context(format!(
                "whether the cluster knows {name} is not known; when it is gone, remove {}, and if \
                 `host ls` has {name}: argonaut leave --lost {name}",
                layout.dir.display()
            )))
        }
    }
}

/// Asks other monitors than this host's: once removed it takes connections for a while, and has nobody
/// to ask.
fn elsewhere(mut who: Who, state: &State) -> Who {
    if who.mons.iter().any(|mon| mon.ip() != state.addr) {
        who.mons.retain(|mon| mon.ip() != state.addr);
    }
    who
}

fn out_of_cluster(layout: &Layout, state: &mut State, now: bool) -> Result<()> {
    let who = elsewhere(own(layout, state)?, state);
    let name = state.name.clone();
    let host = match seen(&who, &name) {
        Ok(host) => host,
        // The last step was done, and its answer lost.
        Err(_) if state.leaving && who.is_unknown() => return Ok(()),
        Err(err) => return Err(err),
    };
    let osds = ids(&host);
    if host["mon"] == true {
        mon_can_go(&who, &name)?;
    }
    if now && !osds.is_empty() {
        let ask = json!({"prefix": "osd ok-to-stop", "ids": osds});
        if let Err(why) = refused(who.ask(&ask, String::new()))? {
            bail!("data would be out of reach without this host: {why}; leave without --now");
        }
    } else if !osds.is_empty() {
        data_can_go(&who, &name)?;
    }
    supervise::launch(layout)?;
    state.leaving = true;
    state.write(layout)?;
    if !now && !osds.is_empty() {
        drain(&who, &name, &osds)?;
    }
    for id in &osds {
        let daemon = format!("osd.{id}");
        if layout.daemons()?.contains(&daemon) {
            supervise::stop_one(layout, &daemon)?;
        }
        wait(DOWN_MAX, || {
            let host = seen(&who, &name)?;
            let mut osds = host["osds"].as_array().into_iter().flatten();
            let is_it = |o: &Value| o["id"].as_u64() == id.parse().ok();
            Ok((!osds.any(|o| is_it(o) && o["up"] == true)).then_some(()))
        })?
        .with_context(|| format!("{daemon} was stopped, and is up for the monitors"))?;
        who.ask(&json!({"prefix": "host osd-rm", "name": name, "id": id}), String::new())?;
        say!("{daemon} is removed");
    }
    for disk in state.osds.iter().filter_map(|d| d.id) {
        wipe(state, disk)?;
    }
    for daemon in [format!("mds.{name}"), format!("mgr.{name}")] {
        if layout.daemons()?.contains(&daemon) {
            supervise::stop_one(layout, &daemon)?;
        }
    }
    if host["mon"] == true {
        who.ask(&json!({"prefix": "host mon-rm", "name": name}), String::new())?;
        say!("mon.{name} is removed");
        host_conf::follow(layout, &who)?;
    }
    let who = elsewhere(own(layout, state)?, state);
    let left = wait(DOWN_MAX, || {
        match who.ask(&json!({"prefix": "host leave", "name": name}), String::new()) {
            Ok(_) => Ok(Some(())),
            Err(err) if err.downcast_ref::<Refused>().is_some() => Err(err),
            Err(_) if who.is_unknown() => Ok(Some(())),
            Err(_) => Ok(None),
        }
    })?;
    left.context("no monitor answers; argonaut leave goes on")
}

/// Has the cluster forget a host that is gone.
///
/// # Errors
/// When it is alive, when PGs are out of reach, or no majority would be left.
pub fn lost(who: &Who, name: &str) -> Result<()> {
    let host = seen(who, name)?;
    let mut osds = host["osds"].as_array().into_iter().flatten();
    if let Some(osd) = osds.find(|o| o["up"] == true) {
        bail!("osd.{} is up, so host {name} is not lost: argonaut leave there", osd["id"]);
    }
    if host["mon"] == true {
        let said = who.json(&json!({"prefix": "quorum_status", "format": "json"}))?;
        let mut quorum = said["quorum_names"].as_array().into_iter().flatten();
        if quorum.any(|n| n == name) {
            bail!("mon.{name} is in the quorum, so host {name} is not lost: argonaut leave there");
        }
        mon_can_go(who, name)?;
    }
    let osds = ids(&host);
    if !osds.is_empty() {
        let ask = json!({"prefix": "osd ok-to-stop", "ids": osds});
        if let Err(why) = refused(who.ask(&ask, String::new()))? {
            bail!("what host {name} holds may be the only copy: {why}");
        }
    }
    for id in &osds {
        who.ask(&json!({"prefix": "host osd-rm", "name": name, "id": id}), String::new())?;
        say!("osd.{id} is removed");
    }
    if host["mon"] == true {
        who.ask(&json!({"prefix": "host mon-rm", "name": name}), String::new())?;
        say!("mon.{name} is removed");
    }
    who.ask(&json!({"prefix": "host leave", "name": name}), String::new())?;
    say!("host {name} is of the cluster no more");
    Ok(())
}
