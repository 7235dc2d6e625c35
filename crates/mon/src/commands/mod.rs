//! The commands of `ceph ...`: one function each, from a [`CommandCtx`] to an [`Outcome`].
//!
//! Nothing here changes anything: a command reads the newest state and asks for a mutation.
//! Texts, fields and error numbers are the peer's, since scripts read them.
//!
//! Source: the peer's `mon/{Monitor,OSDMonitor,AuthMonitor,ConfigMonitor,...}.cc` and
//! `mgr/DaemonServer.cc`; captures in `vectors/commands/`.

mod auth;
mod balancer;
mod ciphers;
mod cls;
mod config;
mod crash;
mod crush;
mod crush_dump;
mod df;
mod ec;
mod fs;
mod health;
mod hosts;
mod log;
mod manager;
mod mon_change;
mod mons;
mod osd;
mod osd_change;
mod osd_dump;
mod osd_new;
mod pg;
mod pg_dump;
mod pool;
mod pool_set;
mod reweight;
mod status;
mod tell;
#[cfg(test)]
mod tests;
mod tier;
mod tier_set;
mod tree;
mod upmap;

use bytes::Bytes;
use cli::{ArgError, Formatter};
use conf::{Key, Kind};
use maps::{Incremental, OsdMap, PgPool};
use types::{AddrVec, EntityAddr, OsdId, PoolId, UTime};

use crate::{CommandCtx, Mutation, Outcome, Reply};

pub(crate) const EPERM: i32 = 1;
pub(crate) const ENOENT: i32 = 2;
pub(crate) const EAGAIN: i32 = 11;
pub(crate) const EACCES: i32 = 13;
pub(crate) const EBUSY: i32 = 16;
pub(crate) const EEXIST: i32 = 17;
pub(crate) const EINVAL: i32 = 22;
pub(crate) const EFBIG: i32 = 27;
pub(crate) const ENOSPC: i32 = 28;
pub(crate) const ERANGE: i32 = 34;
pub(crate) const ENOTEMPTY: i32 = 39;
pub(crate) const EOPNOTSUPP: i32 = 95;

/// What a command comes to; an error is an answer too, with nothing changed.
type Run = Result<Outcome, Fail>;

/// A refusal: positive errno and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fail {
    errno: i32,
    why: String,
}

impl From<ArgError> for Fail {
    fn from(e: ArgError) -> Self {
        Self { errno: EINVAL, why: e.0 }
    }
}

impl From<::crush::CrushError> for Fail {
    fn from(e: ::crush::CrushError) -> Self {
        Self { errno: e.errno(), why: e.message }
    }
}

fn fail(errno: i32, why: impl Into<String>) -> Fail {
    Fail { errno, why: why.into() }
}

pub(crate) use crash::recent as recent_crashes;

/// Runs a command sent to the cluster.
pub(crate) fn run(ctx: &mut CommandCtx<'_>) -> Outcome {
    settle(dispatch(ctx).and_then(bearable))
}

/// Refuses what clients of the OSD map cannot bear, whichever command would lead there.
fn bearable(done: Outcome) -> Run {
    fn check(mutation: &Mutation) -> Result<(), String> {
        match mutation {
            Mutation::Osd(inc) => crate::limits::check(inc),
            Mutation::Batch(all) => all.iter().try_for_each(check),
            _ => Ok(()),
        }
    }
    match &done {
        Outcome::Propose { mutation, .. } => check(mutation).map_err(|why| fail(EINVAL, why))?,
        Outcome::Balancer { then, .. } => {
            if let Outcome::Propose { mutation, .. } = &**then {
                check(mutation).map_err(|why| fail(EINVAL, why))?;
            }
        }
        _ => {}
    }
    Ok(done)
}

/// Runs a command sent to this monitor itself: `ceph tell mon.X`, `ceph daemon`.
pub(crate) fn tell(ctx: &mut CommandCtx<'_>) -> Outcome {
    settle(tell::run(ctx).and_then(bearable))
}

/// What `ceph ping mon.X` shows.
pub(crate) fn pong(ctx: &mut CommandCtx<'_>) -> String {
    let mut f = Formatter::json_pretty();
    f.object("pong", |f| {
        f.object("health", |f| health::dump(ctx, f, false));
        mons::status_fields(ctx, f);
    });
    f.finish()
}

/// Whether a command is the daemon's own that it is sent to, whoever leads.
pub(crate) fn is_own(cmd: &[Bytes]) -> bool {
    cli::Args::parse(cmd).is_ok_and(|args| tell::is_own(&args))
}

fn settle(run: Run) -> Outcome {
    run.unwrap_or_else(|Fail { errno, why }| Outcome::Reply(Reply::err(errno, why)))
}

/// The commands in the table that are not built. The answer is EOPNOTSUPP and a sentence.
pub const UNBUILT: &[&str] =
    &["compact", "device info", "mon set-rank", "osd force-create-pg", "pg getmap", "pg repeer"];

#[allow(clippy::too_many_lines)]
fn dispatch(ctx: &mut CommandCtx<'_>) -> Run {
    let prefix = ctx.cmd.prefix().to_owned();
    match prefix.as_str() {
        "get_command_descriptions" => {
            let quincy = ctx.session.features.has(types::Features::SERVER_QUINCY);
            out(cli::descriptions(quincy))
        }
        p if UNBUILT.contains(&p) => {
            Err(fail(EOPNOTSUPP, format!("'{p}' is not supported by this cluster")))
        }
        "status" => status::status(ctx),
        "health" => health::health(ctx),
        "health mute" => health::mute(ctx),
        "health unmute" => health::unmute(ctx),
        "report" => status::report(ctx),
        p if mons::has(p) => mons::run(ctx, p),
        p if auth::has(p) => auth::run(ctx, p),
        p if p.starts_with("config-key ") => config::key_value(ctx, &p["config-key ".len()..]),
        p if p.starts_with("config ") => config::run(ctx, &p["config ".len()..]),
        p if p.starts_with("cls ") => cls::run(ctx, &p["cls ".len()..]),
        p if p.starts_with("host ") => hosts::run(ctx, &p["host ".len()..]),
        "log" => log::write(ctx),
        "log last" => log::last(ctx),
        // Clients send it to the daemon it names; in the table for their parser alone.
        // As to `injectargs`, a daemon's own command by tell.
        "tell" | "injectargs" => Err(fail(EINVAL, "unrecognized command")),
        "df" => df::df(ctx),
        p if cli::runs_in_module(p) => Ok(Outcome::Module),
        p if p.starts_with("crash ") => crash::run(ctx, &p["crash ".len()..]),
        p if p.starts_with("balancer ") => balancer::run(ctx, &p["balancer ".len()..]),
        p if p.starts_with("osd crush ") => crush::run(ctx, &p["osd crush ".len()..]),
        "osd setcrushmap" => crush::set_map(ctx),
        "osd getcrushmap" => crush::get_map(ctx),
        p if p.starts_with("osd erasure-code-profile ") => {
            ec::run(ctx, &p["osd erasure-code-profile ".len()..])
        }
        "osd pool set" => pool_set::set(ctx),
        "osd pool get" => pool_set::get(ctx),
        p if p.starts_with("osd pool ") => pool::run(ctx, &p["osd pool ".len()..]),
        p if p.starts_with("osd tier ") => tier::run(ctx, &p["osd tier ".len()..]),
        "osd lspools" => pool::lspools(ctx),
        p if upmap::has(p) => upmap::run(ctx, p),
        p if reweight::has(p) => reweight::run(ctx, p),
        p if osd_change::has(p) => osd_change::run(ctx, p),
        p if p.starts_with("osd ") => osd::run(ctx, &p["osd ".len()..]),
        p if p.starts_with("pg ") => pg::run(ctx, &p["pg ".len()..]),
        p if fs::has(p) => fs::run(ctx, p),
        p => manager::run(ctx, p),
    }
}

fn out(text: impl Into<Bytes>) -> Run {
    Ok(Outcome::out(text))
}

/// Output and a line for stderr.
fn out_rs(rs: impl Into<String>, text: impl Into<Bytes>) -> Run {
    Ok(Outcome::Reply(Reply { r: 0, rs: rs.into(), out: text.into() }))
}

fn ok(rs: impl Into<String>) -> Run {
    Ok(Outcome::ok(rs))
}

fn propose(mutation: Mutation, rs: impl Into<String>) -> Run {
    Ok(Outcome::propose(mutation, rs))
}

fn change(inc: Incremental, rs: impl Into<String>) -> Run {
    propose(Mutation::Osd(Box::new(inc)), rs)
}

impl CommandCtx<'_> {
    /// The formatter asked for; `None` for plain text.
    fn formatter(&self) -> Option<Formatter> {
        Formatter::from_name(self.cmd.format())
    }

    /// The formatter asked for, or json-pretty where there is no plain form.
    fn formatter_or_pretty(&self) -> Formatter {
        Formatter::from_name_or_pretty(self.cmd.format())
    }

    fn osdmap(&self) -> &OsdMap {
        &self.state.osdmap
    }

    fn wall(&self) -> UTime {
        UTime::from_nanos(self.now.wall_ns)
    }

    /// The pool an argument names.
    fn need_pool(&self, name: &str) -> Result<(PoolId, &PgPool), Fail> {
        let pool = self.cmd.str_or_empty(name)?;
        let map = self.osdmap();
        map.pool_by_name(pool)
            .and_then(|id| Some((id, map.pool(id)?)))
            .ok_or_else(|| fail(ENOENT, format!("unrecognized pool '{pool}'")))
    }

    /// The value of an option for this monitor, where somebody gave it one.
    fn option_set<K: Kind>(&self, key: Key<K>) -> Option<K::Value> {
        let (name, mon) = (key.name(), &self.volatile.quorum.name);
        let entity = types::EntityName::new(types::EntityKind::MON, mon.clone());
        let text = self.state.config.get(&entity, name);
        text.or_else(|| self.options.get(name).cloned()).and_then(|text| key.parse(&text))
    }

    /// The value of an option for this monitor; the default where nobody set it, or to what is no value.
    fn option<K: Kind>(&self, key: Key<K>) -> K::Value {
        self.option_set(key).unwrap_or_else(|| key.default())
    }
}

/// Reads the ids of `osd in 0 osd.1`, as the peer does: also `any`, `all`, `*`.
enum OsdWord {
    All,
    One(OsdId),
}

fn osd_word(word: &str) -> Result<OsdWord, Fail> {
    if matches!(word, "any" | "all" | "*") {
        return Ok(OsdWord::All);
    }
    let digits = word.strip_prefix("osd.").unwrap_or(word);
    match digits.parse::<i32>() {
        Ok(id) if id >= 0 => Ok(OsdWord::One(OsdId(id))),
        Ok(id) => Err(fail(EINVAL, format!("osd id {id} is negative"))),
        Err(_) => Err(fail(
            EINVAL,
            format!("Expected option value to be integer, got '{word}'invalid osd id-1"),
        )),
    }
}

/// `[a,b,c]` of OSDs, holes as NONE's number or name.
fn osd_list(osds: &[OsdId], none: &str) -> String {
    let names: Vec<String> = osds
        .iter()
        .map(|o| if *o == OsdId::NONE { none.to_owned() } else { o.to_string() })
        .collect();
    format!("[{}]", names.join(","))
}

fn addr_kind(addr: &EntityAddr) -> &'static str {
    match addr.kind {
        types::AddrKind::NONE => "none",
        types::AddrKind::LEGACY => "v1",
        types::AddrKind::MSGR2 => "v2",
        types::AddrKind::ANY => "any",
        types::AddrKind::CIDR => "cidr",
        _ => "???",
    }
}

/// `ip:port` of an address.
fn sock_text(addr: &EntityAddr) -> String {
    addr.sock.map_or_else(|| "(unrecognized address family 0)".to_owned(), |s| s.to_string())
}

/// `ip:port/nonce` of an address.
fn legacy_text(addr: &EntityAddr) -> String {
    match addr.sock {
        Some(sock) => format!("{sock}/{}", addr.nonce),
        None => format!("(unrecognized address family 0)/{}", addr.nonce),
    }
}

fn dump_addrvec(f: &mut Formatter, name: &str, addrs: &AddrVec) {
    f.object(name, |f| {
        f.array("addrvec", |f| {
            for addr in &addrs.0 {
                f.object("addr", |f| {
                    f.string("type", addr_kind(addr));
                    f.string("addr", sock_text(addr));
                    f.int("nonce", addr.nonce);
                });
            }
        });
    });
}

/// The name of a release by number, as the peer prints it.
fn release_name(release: u8) -> &'static str {
    types::release::name_of(release).unwrap_or("unknown")
}

/// The number of a release by name.
fn release_by_name(name: &str) -> Option<u8> {
    (1..=20).find(|r| release_name(*r) == name)
}

/// `0.5` for a 16.16 weight, with five digits behind the point.
fn weight_text(weight: u32) -> String {
    format!("{:.5}", f64::from(weight) / 65536.0)
}

/// A 16.16 weight as the float the peer prints in json.
fn weight_float(weight: u32) -> f64 {
    f64::from(weight) / 65536.0
}
