//! `log` and `log last`.

use cli::Formatter;
use messages::{LogEntry, LogPriority};

use super::{Run, dump_addrvec, out, propose};
use crate::{CommandCtx, Mutation};

/// Lines of one answer.
const LINES_MAX: usize = 10_000;

/// The priority of a name; a name nobody knows is one too, as with the peer.
fn priority(name: &str) -> LogPriority {
    match name {
        "debug" => LogPriority::DEBUG,
        "info" => LogPriority::INFO,
        "sec" | "security" => LogPriority::SEC,
        "warn" | "warning" => LogPriority::WARN,
        "error" | "err" => LogPriority::ERROR,
        _ => LogPriority(u16::MAX),
    }
}

/// `[INF]`
fn tag(prio: LogPriority) -> String {
    let known = prio.0 <= LogPriority::ERROR.0;
    format!("[{}]", if known { prio.short() } else { "???" })
}

/// `2026-11-20T14:33:02.187750+0000 client.admin (client.?) 0 : cluster [INF] text`
fn line(entry: &LogEntry) -> String {
    format!(
        "{} {} ({}) {} : {} {} {}\n",
        entry.stamp,
        entry.name,
        entry.rank,
        entry.seq,
        entry.channel,
        tag(entry.prio),
        entry.msg
    )
}

pub(super) fn write(ctx: &mut CommandCtx<'_>) -> Run {
    let words = ctx.cmd.list("logtext")?;
    let entry = LogEntry {
        name: ctx.session.name.clone(),
        rank: ctx.session.entity,
        addrs: ctx.session.addrs.clone(),
        stamp: ctx.wall(),
        seq: 0,
        prio: priority(ctx.cmd.str("level")?.unwrap_or("info")),
        msg: words.join(" "),
        channel: ctx.cmd.str("channel")?.unwrap_or("cluster").to_owned(),
    };
    propose(Mutation::Log(vec![entry]), "")
}

fn dump(f: &mut Formatter, entry: &LogEntry) {
    f.object("entry", |f| {
        f.display("name", &entry.name);
        f.display("rank", entry.rank);
        dump_addrvec(f, "addrs", &entry.addrs);
        f.display("stamp", entry.stamp);
        f.int("seq", entry.seq);
        f.string("channel", &entry.channel);
        f.string("priority", tag(entry.prio));
        f.string("message", &entry.msg);
    });
}

/// The newest lines that fit, oldest first. A negative number asks for all that are kept.
pub(super) fn last(ctx: &mut CommandCtx<'_>) -> Run {
    let num = ctx.cmd.int("num")?.unwrap_or(20);
    let num = usize::try_from(num).unwrap_or(usize::MAX).min(LINES_MAX);
    let prio = priority(ctx.cmd.str("level")?.unwrap_or("info"));
    let channel = ctx.cmd.str("channel")?.unwrap_or("cluster");
    let entries = ctx.state.log.entries.iter().rev();
    let fits = |e: &&LogEntry| e.prio >= prio && (channel == "*" || e.channel == channel);
    let mut found: Vec<&LogEntry> = entries.map(|(_, e)| e).filter(fits).take(num).collect();
    found.reverse();
    let Some(mut f) = ctx.formatter() else {
        return out(found.into_iter().map(line).collect::<String>());
    };
    f.array("tail", |f| {
        for entry in found {
            dump(f, entry);
        }
    });
    out(f.finish())
}
