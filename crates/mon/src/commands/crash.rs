//! Crash reports: filed by `ceph-crash` or a daemon, listed, archived, removed. They are kept in the
//! key/value store as the peer's module keeps them, `mgr/crash/crash/ID`.
//!
//! Source: the peer's `pybind/mgr/crash/module.py`; its refusals are lines for people with exit 0.

use std::collections::BTreeMap;

use bytes::Bytes;
use cli::{Align, TextTable};
use serde_json::Value;
use types::UTime;

use super::manager::as_python;
use super::{EINVAL, EOPNOTSUPP, Run, fail, ok, out, propose};
use crate::{ClusterState, CommandCtx, Mutation};

/// Where they are kept.
const PREFIX: &str = "mgr/crash/crash/";
/// Reports that are kept; the oldest go first.
const KEPT_MAX: usize = 500;
/// Bytes of one report.
const REPORT_BYTES_MAX: usize = 256 << 10;
/// `mgr/crash/warn_recent_interval`, in seconds: two weeks.
const RECENT_S: u64 = 14 * 86_400;

pub(super) fn run(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    match what {
        "post" => post(ctx),
        "ls" => list(ctx, false),
        "ls-new" => list(ctx, true),
        "info" => info(ctx),
        "stat" => stat(ctx),
        "json_report" => report(ctx),
        "rm" => {
            let key = format!("{PREFIX}{}", ctx.cmd.str_or_empty("id")?);
            match ctx.state.config_key.contains_key(&key) {
                true => propose(Mutation::ConfigKey { key, value: None }, ""),
                false => ok(""),
            }
        }
        "prune" => {
            let days = ctx.cmd.int("keep")?.unwrap_or(0).max(0);
            let before = cutoff(ctx.wall(), (days as u64).saturating_mul(86_400));
            let old = all(ctx.state).filter(|one| stamp(&one.1) < before);
            remove(old.map(|(id, _)| id.to_owned()).collect())
        }
        "archive" => {
            let id = ctx.cmd.str_or_empty("id")?;
            match find(ctx.state, id) {
                Some(report) => archive(ctx, vec![report]),
                None => ok(format!("crash info: {id} not found")),
            }
        }
        "archive-all" => {
            let new = all(ctx.state).map(|(_, report)| report).filter(is_new).collect();
            archive(ctx, new)
        }
        _ => Err(fail(EOPNOTSUPP, format!("'crash {what}' is not supported by this cluster"))),
    }
}

/// Reports by their ids, in order.
fn all(state: &ClusterState) -> impl Iterator<Item = (&str, Value)> {
    let range = state.config_key.range(PREFIX.to_owned()..);
    let ours = range.map_while(|(key, value)| Some((key.strip_prefix(PREFIX)?, value)));
    ours.filter_map(|(id, value)| Some((id, serde_json::from_slice(value).ok()?)))
}

fn find(state: &ClusterState, id: &str) -> Option<Value> {
    let bytes = state.config_key.get(&format!("{PREFIX}{id}"))?;
    serde_json::from_slice(bytes).ok()
}

fn text<'a>(report: &'a Value, key: &str) -> &'a str {
    report[key].as_str().unwrap_or_default()
}

/// When it happened, to the second: `2026-11-29T10:00:00`; texts of this form are in order.
fn stamp(report: &Value) -> String {
    text(report, "timestamp").chars().take(19).collect::<String>().replace(' ', "T")
}

fn cutoff(now: UTime, age_s: u64) -> String {
    let sec = u64::from(now.sec).saturating_sub(age_s);
    let at = UTime { sec: u32::try_from(sec).unwrap_or(u32::MAX), nsec: 0 };
    at.to_string().chars().take(19).collect()
}

fn is_new(report: &Value) -> bool {
    report.get("archived").is_none()
}

fn keep(report: &Value) -> Mutation {
    let key = format!("{PREFIX}{}", text(report, "crash_id"));
    Mutation::ConfigKey { key, value: Some(Bytes::from(report.to_string())) }
}

fn remove(ids: Vec<String>) -> Run {
    if ids.is_empty() {
        return ok("");
    }
    let gone = |id: String| Mutation::ConfigKey { key: format!("{PREFIX}{id}"), value: None };
    propose(Mutation::Batch(ids.into_iter().map(gone).collect()), "")
}

fn archive(ctx: &CommandCtx<'_>, reports: Vec<Value>) -> Run {
    if reports.is_empty() {
        return ok("");
    }
    let now: String = ctx.wall().to_string().chars().take(26).collect();
    let changed = reports.into_iter().map(|mut report| {
        report["archived"] = now.replace('T', " ").into();
        keep(&report)
    });
    propose(Mutation::Batch(changed.collect()), "")
}

/// A backtrace's function names, and an assertion without its thread and time: the same for crashes of
/// one cause. The peer's `sanitize_backtrace` and `sanitize_assert_msg`.
fn signature(report: &Value) -> String {
    let mut all = String::new();
    for frame in report["backtrace"].as_array().into_iter().flatten() {
        let frame = frame.as_str().unwrap_or_default();
        let frame = frame.rsplit_once(' ').map_or(frame, |(name, _)| name);
        let mut inside = frame.chars();
        inside.next();
        inside.next_back();
        all += inside.as_str().split('+').next().unwrap_or_default();
    }
    let message = text(report, "assert_msg");
    let parts = message
        .find(" thread ")
        .and_then(|from| Some((from, from + message[from..].find(" time ")?)))
        .and_then(|(from, time)| Some((from, time + message[time..].rfind(": ")?)));
    match parts {
        Some((from, rest)) => {
            all += &message[..from];
            all += message[rest..].trim_end_matches('\n');
        }
        None => all += message,
    }
    auth::sha256(all.as_bytes()).iter().map(|b| format!("{b:02x}")).collect()
}

fn post(ctx: &mut CommandCtx<'_>) -> Run {
    let malformed = |why: &str| ok(format!("malformed crash metadata: {why}"));
    if ctx.inbuf.len() > REPORT_BYTES_MAX {
        return Err(fail(EINVAL, format!("a crash report has at most {REPORT_BYTES_MAX} bytes")));
    }
    let Ok(mut report) = serde_json::from_slice::<Value>(ctx.inbuf) else {
        return malformed("Expecting value: line 1 column 1 (char 0)");
    };
    if !report.is_object() {
        return malformed("an object is expected");
    }
    for field in ["crash_id", "timestamp"] {
        if text(&report, field).is_empty() {
            return malformed(&format!("missing '{field}' field"));
        }
    }
    let stamp = stamp(&report);
    let form = |(i, c): (usize, char)| match i {
        4 | 7 => c == '-',
        10 => c == 'T',
        13 | 16 => c == ':',
        _ => c.is_ascii_digit(),
    };
    if stamp.len() != 19 || !stamp.chars().enumerate().all(form) {
        let time = text(&report, "timestamp");
        return malformed(&format!(
            "time data '{time}' does not match format '%Y-%m-%dT%H:%M:%S.%fZ'"
        ));
    }
    let id = text(&report, "crash_id").to_owned();
    if id.len() > 256 || id.chars().any(|c| c.is_control() || c == '/') {
        return malformed("'crash_id' is no plain name");
    }
    if find(ctx.state, &id).is_some() {
        return ok("");
    }
    report["stack_sig"] = signature(&report).into();
    let mut changes = vec![keep(&report)];
    let mut known: Vec<(String, String)> =
        all(ctx.state).map(|(id, report)| (self::stamp(&report), id.to_owned())).collect();
    if known.len() >= KEPT_MAX {
        known.sort();
        let over = known.len() + 1 - KEPT_MAX;
        let gone = known.into_iter().take(over).map(|(_, id)| format!("{PREFIX}{id}"));
        changes.extend(gone.map(|key| Mutation::ConfigKey { key, value: None }));
    }
    propose(Mutation::Batch(changes), "")
}

fn list(ctx: &mut CommandCtx<'_>, new_only: bool) -> Run {
    let reports: Vec<Value> =
        all(ctx.state).map(|(_, report)| report).filter(|r| !new_only || is_new(r)).collect();
    if ctx.cmd.format().starts_with("json") {
        return out(as_python(&Value::Array(reports)));
    }
    if reports.is_empty() {
        return ok("");
    }
    let mut table = TextTable::with(&[
        ("ID", Align::Left, Align::Left),
        ("ENTITY", Align::Left, Align::Left),
        ("NEW", Align::Left, Align::Center),
    ]);
    for report in &reports {
        let new = if is_new(report) { "*" } else { "" };
        let cells = [text(report, "crash_id"), text(report, "entity_name"), new];
        table.row(cells.map(str::to_owned).into());
    }
    out(table.render())
}

fn info(ctx: &mut CommandCtx<'_>) -> Run {
    let id = ctx.cmd.str_or_empty("id")?;
    match find(ctx.state, id) {
        Some(report) => out(as_python(&report)),
        None => ok(format!("crash info: {id} not found")),
    }
}

fn stat(ctx: &mut CommandCtx<'_>) -> Run {
    let reports: Vec<(String, String)> =
        all(ctx.state).map(|(id, report)| (id.to_owned(), stamp(&report))).collect();
    let mut text = format!("{} crashes recorded\n", reports.len());
    for days in [1, 3, 7] {
        let before = cutoff(ctx.wall(), days * 86_400);
        let old: Vec<&str> =
            reports.iter().filter(|(_, at)| *at < before).map(|(id, _)| id.as_str()).collect();
        if !old.is_empty() {
            text += &format!("{} older than {days} days old:\n", old.len());
            text += &old.iter().map(|id| format!("{id}\n")).collect::<String>();
        }
    }
    out(text)
}

fn report(ctx: &mut CommandCtx<'_>) -> Run {
    let hours = ctx.cmd.int("hours")?.unwrap_or(0).max(0);
    let since = cutoff(ctx.wall(), (hours as u64).saturating_mul(3_600));
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for (_, report) in all(ctx.state).filter(|(_, report)| stamp(report) >= since) {
        *counts.entry(text(&report, "process_name").to_owned()).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(name, n)| format!("\"{name}\": {n}")).collect();
    ok(format!("{{{}}}", counts.join(", ")))
}

/// Lines about crashes that nobody archived and that happened within two weeks.
pub(crate) fn recent(state: &ClusterState, now: UTime) -> Vec<String> {
    let since = cutoff(now, RECENT_S);
    let new = all(state).map(|(_, report)| report).filter(|r| is_new(r) && stamp(r) >= since);
    let line = |r: Value| {
        let (who, host) = (text(&r, "entity_name"), text(&r, "utsname_hostname"));
        format!("{who} crashed on host {host} at {}", text(&r, "timestamp"))
    };
    new.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// As the peer's module computed it.
    #[test]
    fn signatures() {
        let report = json!({"backtrace": ["(a()+0x12) [0x1]", "b"]});
        let peer = "a95a430608fb6e9ab984c01c1a9dc039cefd2776356781efc924f02ab583a32e";
        assert_eq!(signature(&report), peer);
        let said = |thread: &str, time: &str| {
            let text = format!("f.cc: In f() thread {thread} time {time}\nf.cc: 7: failed x\n");
            signature(&json!({"backtrace": [], "assert_msg": text}))
        };
        assert_eq!(said("7f", "2026-01-01T00:00:00"), said("8e", "2026-02-02T11:00:00"));
        assert_ne!(said("7f", "x"), signature(&json!({})));
    }
}
