//! How the cluster is, and why.

use maud::{Markup, html};

use super::{
    Frame, bar, bytes, form, lasting, moment, operations, page, per_second, percent, quoted,
};
use crate::history::History;
use crate::safe::{Safe, of_domain, safe};
use crate::state::{State, part};
use crate::why::{self, Since};

fn badge(health: &str) -> Markup {
    let class = match health {
        "HEALTH_OK" => "good",
        "HEALTH_WARN" => "warn",
        _ => "bad",
    };
    html! { strong class={"badge " (class)} { (health) } }
}

fn safe_to_lose(safe: &Safe) -> Markup {
    html! {
        section {
            h2 { "Safe to lose" }
            @match safe.pools.first() {
                None => p { "There is no pool." }
                Some(first) => {
                    p class="big" { (of_domain(first.serving, &first.domain)) }
                    p {
                        @if first.serving == 0 {
                            "may fail: with one less, some data is not served. "
                        } @else {
                            "may fail, and all data is still read and written. "
                        }
                        "Nothing is lost with the loss of " (of_domain(first.kept, &first.domain))
                        " at once. Pool " b { (first.pool) }
                        " bears the least: it has " (first.of.0) " copies or shards, and serves with " (first.of.1) "."
                        @if first.is_reduced { " PGs of it lack copies now." }
                    }
                    @match safe.has_room {
                        None => p { "All data is on one host." }
                        Some(true) => p { "What any one host holds has room on the others." }
                        Some(false) => p class="warn" {
                            "When the fullest host is lost, the others have no room for all copies: add space."
                        }
                    }
                }
            }
            @if safe.pools.len() > 1 {
                details {
                    summary { "Each pool" }
                    table {
                        thead { tr { th { "Pool" } th { "serves without" } th { "keeps all without" } th {} } }
                        tbody {
                            @for pool in safe.pools.iter().take(super::ROWS_MAX) {
                                tr {
                                    td { (pool.pool) }
                                    td { (of_domain(pool.serving, &pool.domain)) }
                                    td { (of_domain(pool.kept, &pool.domain)) }
                                    td { @if pool.is_reduced { "lacks copies now" } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What is renewed while somebody looks: everything of the overview but its charts.
#[must_use]
pub fn live(state: &State) -> Markup {
    let up = state.osds.values().filter(|osd| osd.is_up).count();
    let within = state.osds.values().filter(|osd| osd.is_in).count();
    let quorum = state.members.mons.iter().filter(|(_, is_in)| *is_in).count();
    let (rates, space, objects) = (&state.rates, &state.capacity, &state.objects);
    let used = part(space.used, space.total);
    let states = state.pg_states();
    let pgs = |name: &str| states.get(name).copied().unwrap_or(0);
    html! {
        div id="live" {
            section {
                h2 { "Health" }
                p class="big" { (badge(&state.health)) }
                ul {
                    @for check in state.checks.iter().filter(|check| !check.is_muted) {
                        li { b { (check.code) } ": " (check.summary) }
                    }
                }
                @if !state.checks.is_empty() { p { a href="/why" { "Why, and what to do" } } }
            }
            (safe_to_lose(&safe(state)))
            section {
                h2 { "Space" }
                p class="big" { (percent(used)) }
                (bar(used))
                p { (bytes(space.used as f64)) " of " (bytes(space.total as f64)) " used, copies included" }
            }
            section {
                h2 { "Clients" }
                dl {
                    dt { "read" } dd { (per_second(rates.read)) ", " (operations(rates.reads)) }
                    dt { "written" } dd { (per_second(rates.written)) ", " (operations(rates.writes)) }
                    dt { "recovery" } dd { (per_second(rates.recovered)) }
                }
            }
            section {
                h2 { "Daemons" }
                dl {
                    dt { "monitors" } dd { (quorum) " of " (state.members.mons.len()) " in quorum" }
                    dt { "manager" } dd {
                        (state.members.mgr) ", " (state.members.standbys.len()) " standby"
                    }
                    dt { "OSDs" } dd { (up) " up, " (within) " in, of " (state.osds.len()) }
                    dt { "file systems" } dd { (state.file_systems.len()) }
                }
            }
            section {
                h2 { "Objects" }
                dl {
                    dt { "objects" } dd { (objects.all) }
                    dt { "degraded" } dd { (percent(part(objects.degraded, objects.copies))) }
                    dt { "misplaced" } dd { (percent(part(objects.misplaced, objects.copies))) }
                    dt { "unfound" } dd { (objects.unfound) }
                    dt { "PGs" } dd { (pgs("total")) ", " (pgs("clean")) " clean" }
                }
            }
        }
    }
}

/// The first page.
#[must_use]
pub fn overview(frame: &Frame<'_>, state: &State, history: &History) -> Markup {
    let body = html! {
        h1 { "Cluster " (state.fsid) }
        (live(state))
        section class="wide" {
            h2 { "The last day" }
            (history.chart("Bytes", &[
                ("r", "read", |p| p.bytes.0), ("w", "written", |p| p.bytes.1), ("v", "recovered", |p| p.recovered),
            ], None, per_second))
            (history.chart("Operations", &[
                ("r", "reads", |p| p.ops.0), ("w", "writes", |p| p.ops.1),
            ], None, operations))
            (history.chart("Space used", &[("w", "used", |p| p.fill)], Some(1.0), percent))
        }
    };
    page(frame, "/", body)
}

/// Lines of a check's details on the page.
const DETAILS_MAX: usize = 50;

/// Why the cluster is not well.
#[must_use]
pub fn why(frame: &Frame<'_>, state: &State, since: &Since) -> Markup {
    let body = html! {
        h1 { "Why " (badge(&state.health)) }
        @if state.checks.is_empty() { p { "All is well: no health check holds." } }
        @for check in &state.checks {
            section class="wide" id=(check.code) {
                h2 {
                    (badge(&check.severity)) " " (check.code)
                    @if check.is_muted { " (muted)" }
                }
                p { (check.summary) }
                @if let Some((at_s, is_first)) = since.of(&check.code) {
                    p {
                        @if is_first { "For at least " } @else { "For " }
                        (lasting(frame.now_s.saturating_sub(at_s))) ", since "
                        @if is_first { "before " }
                        (moment(at_s))
                    }
                }
                @let causes = why::chain(&check.code, &state.checks);
                @if !causes.is_empty() {
                    p {
                        "Because of "
                        @for (n, cause) in causes.iter().enumerate() {
                            @if n > 0 { " ← " }
                            a href={"#" (cause.code)} { (cause.code) } " (" (cause.summary) ")"
                        }
                    }
                }
                @if let Some(advice) = why::advice(&check.code) {
                    p { "It means: " (quoted(advice.says)) "." }
                    @if let Some(command) = why::next_command(&advice, &check.detail) {
                        p { "Next command: " code class="command" { (command) } }
                    }
                    p { "What to do: " (quoted(advice.todo)) "." }
                }
                @if !check.detail.is_empty() {
                    details {
                        summary { (check.detail.len()) " details" }
                        ul { @for line in check.detail.iter().take(DETAILS_MAX) { li { (line) } } }
                        @if check.detail.len() > DETAILS_MAX { p { code { "ceph health detail" } " has all." } }
                    }
                }
                @if check.is_muted {
                    (form(frame, "health-unmute", &[("code", &check.code)], "Count it again"))
                } @else {
                    (form(frame, "health-mute", &[("code", &check.code), ("ttl", "1h")], "Mute for an hour"))
                }
            }
        }
    };
    page(frame, "/why", body)
}
