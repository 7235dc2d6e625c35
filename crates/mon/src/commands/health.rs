//! `health` and its mutes.

use std::fmt::Write;

use cli::Formatter;

use super::{EINVAL, Run, fail, ok, out, propose};
use crate::{CommandCtx, HealthMute, HealthReport, HealthStatus, Mutation};

/// The summary behind the status word, and the checks, for plain text.
fn heard<'a>(ctx: &'a CommandCtx<'_>) -> Vec<&'a str> {
    let report = &ctx.volatile.health;
    let mutes = &ctx.state.health_mutes;
    let checks = report.checks.iter().filter(|(code, _)| !mutes.contains_key(*code));
    checks.map(|(_, check)| check.summary.as_str()).collect()
}

/// `HEALTH_WARN` and, below it, one line per check: for `status`.
pub(super) fn status_lines(ctx: &CommandCtx<'_>, indent: &str) -> String {
    let mut text = status(ctx).name().to_owned();
    for line in heard(ctx) {
        let _ = write!(text, "\n{indent}{line}");
    }
    let muted = muted_codes(ctx);
    if !muted.is_empty() {
        let _ = write!(text, "\n{indent}(muted: {})", muted.join(", "));
    }
    text
}

fn status(ctx: &CommandCtx<'_>) -> HealthStatus {
    HealthReport::status(&ctx.volatile.health, ctx.state)
}

/// Muted codes with what is left of their time.
fn muted_codes(ctx: &CommandCtx<'_>) -> Vec<String> {
    let mutes = ctx.state.health_mutes.iter();
    let failing = mutes.filter(|(code, _)| ctx.volatile.health.checks.contains_key(*code));
    let text = |(code, mute): (&String, &HealthMute)| {
        if mute.until.is_zero() {
            return code.clone();
        }
        let left = mute.until.nanos().saturating_sub(ctx.now.wall_ns) / 1_000_000;
        format!("{code}({})", cli::timespan(left))
    };
    failing.map(text).collect()
}

/// The fields of `health`.
pub(super) fn dump(ctx: &CommandCtx<'_>, f: &mut Formatter, detail: bool) {
    f.string("status", status(ctx).name());
    f.object("checks", |f| {
        for (code, check) in &ctx.volatile.health.checks {
            f.object(code, |f| {
                f.string("severity", check.severity.name());
                f.object("summary", |f| {
                    f.string("message", &check.summary);
                    f.int("count", check.count);
                });
                if detail {
                    f.array("detail", |f| {
                        for line in &check.detail {
                            f.object("detail_item", |f| f.string("message", line));
                        }
                    });
                }
                f.bool("muted", ctx.state.health_mutes.contains_key(code));
            });
        }
    });
    f.array("mutes", |f| {
        for (code, mute) in &ctx.state.health_mutes {
            f.object("mute", |f| {
                f.string("code", code);
                if !mute.until.is_zero() {
                    f.display("ttl", mute.until);
                }
                f.bool("sticky", mute.sticky);
                f.string("summary", &mute.summary);
                f.int("count", mute.count);
            });
        }
    });
}

pub(super) fn health(ctx: &mut CommandCtx<'_>) -> Run {
    let detail = ctx.cmd.str_or_empty("detail")? == "detail";
    if let Some(mut f) = ctx.formatter() {
        f.object("health", |f| dump(ctx, f, detail));
        return out(f.finish_line());
    }
    let mut text = status(ctx).name().to_owned();
    let lines = heard(ctx);
    if !lines.is_empty() {
        let _ = write!(text, " {}", lines.join("; "));
    }
    let muted = muted_codes(ctx);
    if !muted.is_empty() {
        let _ = write!(text, " (muted: {})", muted.join(", "));
    }
    text.push('\n');
    if detail {
        for (code, check) in &ctx.volatile.health.checks {
            let word = match check.severity {
                HealthStatus::Err => "[ERR]",
                HealthStatus::Warn => "[WRN]",
                HealthStatus::Ok => "[OK]",
            };
            let muted = match ctx.state.health_mutes.get(code) {
                Some(mute) if mute.sticky => "(MUTED, STICKY) ",
                Some(_) => "(MUTED) ",
                None => "",
            };
            let _ = writeln!(text, "{muted}{word} {code}: {}", check.summary);
            for line in &check.detail {
                let _ = writeln!(text, "    {line}");
            }
        }
    }
    out(text)
}

/// Reads `90`, `5m`, `1h`, `2d`, `1w`: seconds.
fn span(text: &str) -> Option<u32> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let n: u32 = text[..split].parse().ok()?;
    let unit = match text[split..].trim() {
        "" | "s" | "sec" | "second" | "seconds" => 1,
        "m" | "min" | "minute" | "minutes" => 60,
        "h" | "hr" | "hour" | "hours" => 3600,
        "d" | "day" | "days" => 86_400,
        "w" | "wk" | "week" | "weeks" => 604_800,
        _ => return None,
    };
    n.checked_mul(unit)
}

pub(super) fn mute(ctx: &mut CommandCtx<'_>) -> Run {
    let code = ctx.cmd.str_or_empty("code")?.to_owned();
    if code.is_empty() {
        return Err(fail(EINVAL, "must specify an alert code to mute"));
    }
    let sticky = ctx.cmd.flag("sticky");
    let mut mute = HealthMute { sticky, ..HealthMute::default() };
    if let Some(ttl) = ctx.cmd.str("ttl")? {
        let secs = span(ttl)
            .ok_or_else(|| fail(EINVAL, format!("invalid duration: {ttl} (expected digit)")))?;
        mute.until = ctx.wall().plus_secs(secs);
    }
    match ctx.volatile.health.checks.get(&code) {
        Some(check) => {
            mute.summary = check.summary.clone();
            mute.count = check.count;
        }
        None if !sticky => {
            return Err(fail(2, format!("health alert {code} is not currently raised")));
        }
        None => {}
    }
    propose(Mutation::HealthMute { code, mute: Some(mute) }, "")
}

pub(super) fn unmute(ctx: &mut CommandCtx<'_>) -> Run {
    let mutes = &ctx.state.health_mutes;
    if let Some(code) = ctx.cmd.str("code")? {
        if !mutes.contains_key(code) {
            return ok("");
        }
        return propose(Mutation::HealthMute { code: code.to_owned(), mute: None }, "");
    }
    if mutes.is_empty() {
        return ok("");
    }
    let all = mutes.keys().map(|code| Mutation::HealthMute { code: code.clone(), mute: None });
    propose(Mutation::Batch(all.collect()), "")
}
