//! OSDs and hosts, pools, placement.

use maud::{Markup, html};

use super::{
    Frame, ROWS_MAX, bar, bytes, escaped, form, operations, page, pager, per_second, percent,
};
use crate::state::{Osd, Pool, State, part};

/// The middle of what OSDs say; 0 of none.
fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}

/// Latency beside that of the others: how many times the median.
fn beside(own_ms: f64, median_ms: f64) -> Markup {
    let times = if median_ms > 0.0 { own_ms / median_ms } else { 1.0 };
    let is_slow = own_ms >= 5.0 && times >= 3.0;
    html! {
        span class=[is_slow.then_some("bad")] {
            (format!("{own_ms:.1} ms")) @if is_slow { (format!(" ({times:.0} times the median)")) }
        }
    }
}

fn median_ms(state: &State) -> f64 {
    median(state.osds.values().filter(|osd| osd.is_up).map(|osd| osd.commit_ms).collect())
}

const FLAGS: [&str; 8] =
    ["noout", "noin", "nodown", "noup", "norebalance", "norecover", "nobackfill", "noscrub"];

/// All hosts.
#[must_use]
pub fn osds(frame: &Frame<'_>, state: &State, at: usize) -> Markup {
    let (hosts, median) = (state.hosts(), median_ms(state));
    let body = html! {
        h1 { "OSDs and hosts" }
        section class="wide" {
            h2 { "Flags" }
            @for flag in FLAGS {
                @let is_set = state.flags.iter().any(|own| own == flag);
                @if is_set {
                    b class="warn" { (flag) " is set" } (form(frame, "flag-unset", &[("key", flag)], "unset"))
                } @else {
                    (form(frame, "flag-set", &[("key", flag)], &format!("set {flag}")))
                }
            }
        }
        section class="wide" {
            h2 { (hosts.len()) " hosts, " (state.osds.len()) " OSDs" }
            p { "The median of commits takes " (format!("{median:.1} ms")) "." }
            (pager("/osds", at, hosts.len()))
            table {
                thead { tr { th { "Host" } th { "Where" } th { "OSDs up" } th { "in" } th { "Used" } th { "of" } th { "Fill" } th { "Slowest commit" } } }
                tbody {
                    @for (name, osds) in hosts.iter().skip(at * ROWS_MAX).take(ROWS_MAX) {
                        @let size = osds.iter().map(|osd| osd.size).sum::<u64>();
                        @let used = osds.iter().map(|osd| osd.used).sum::<u64>();
                        @let up = osds.iter().filter(|osd| osd.is_up).count();
                        @let slowest = osds.iter().map(|osd| osd.commit_ms).fold(0.0, f64::max);
                        tr {
                            td { a href={"/osds/host?name=" (escaped(name))} { @if name.is_empty() { "nowhere" } @else { (name) } } }
                            td { (state.places.get(*name).map_or("", String::as_str)) }
                            td class=[(up < osds.len()).then_some("bad")] { (up) " of " (osds.len()) }
                            td { (osds.iter().filter(|osd| osd.is_in).count()) }
                            td { (bytes(used as f64)) }
                            td { (bytes(size as f64)) }
                            td { (bar(part(used, size))) " " (percent(part(used, size))) }
                            td { (beside(slowest, median)) }
                        }
                    }
                }
            }
        }
    };
    page(frame, "/osds", body)
}

fn osd_row(osd: &Osd, median: f64) -> Markup {
    html! {
        tr {
            td { "osd." (osd.id) }
            td { (osd.class) }
            td class=[(!osd.is_up).then_some("bad")] { @if osd.is_up { "up" } @else { "down" } }
            td class=[(!osd.is_in).then_some("warn")] { @if osd.is_in { "in" } @else { "out" } }
            td { (bytes(osd.used as f64)) " of " (bytes(osd.size as f64)) }
            td { (bar(osd.fill())) " " (percent(osd.fill())) }
            td { (osd.pgs) }
            td { (beside(osd.commit_ms, median)) }
            td class=[(osd.slow > 0).then_some("bad")] { (osd.slow) }
            td {
                @if osd.is_in {
                    a href={"/confirm/osd-out?id=" (osd.id)} { "take out" }
                } @else {
                    a href={"/confirm/osd-in?id=" (osd.id)} { "take in" }
                }
            }
        }
    }
}

/// One host and its OSDs.
#[must_use]
pub fn host(frame: &Frame<'_>, state: &State, name: &str, at: usize) -> Markup {
    let hosts = state.hosts();
    let osds = hosts.get(name).map_or(&[][..], Vec::as_slice);
    let median = median_ms(state);
    let body = html! {
        h1 { "Host " (name) }
        p { a href="/osds" { "All hosts" } }
        @if osds.is_empty() { p { "No OSD is there." } }
        section class="wide" {
            (pager(&format!("/osds/host?name={}", escaped(name)), at, osds.len()))
            table {
                thead { tr {
                    th { "OSD" } th { "Class" } th {} th {} th { "Used" } th { "Fill" } th { "PGs" }
                    th { "Commit" } th { "Slow ops" } th {}
                } }
                tbody { @for osd in osds.iter().skip(at * ROWS_MAX).take(ROWS_MAX) { (osd_row(osd, median)) } }
            }
        }
    };
    page(frame, "/osds", body)
}

fn pool_row(frame: &Frame<'_>, state: &State, pool: &Pool) -> Markup {
    let kind = if pool.is_coded { "shards" } else { "copies" };
    let domain = state.domains.get(&pool.rule).map_or("", String::as_str);
    html! {
        tr {
            td { (pool.name) }
            td { (pool.applications.join(", ")) }
            td { (pool.size) " " (kind) ", " (pool.min_size) " to serve; by " (domain) }
            td { (pool.pg_num) }
            td { (pool.objects) }
            td { (bytes(pool.stored as f64)) }
            td { (bar(pool.fill)) " " (percent(pool.fill)) }
            td { (bytes(pool.avail as f64)) }
            td { (per_second(pool.rates[0])) ", " (operations(pool.rates[2])) }
            td { (per_second(pool.rates[1])) ", " (operations(pool.rates[3])) }
            td {
                @if pool.quota > 0 { (bytes(pool.quota as f64)) }
                form method="post" action="/do/pool-quota" class="act" {
                    input type="hidden" name="csrf" value=(frame.csrf);
                    input type="hidden" name="pool" value=(pool.name);
                    input name="val" size="6" placeholder="10G, 0" required aria-label="Most bytes";
                    button { "set" }
                }
            }
        }
    }
}

/// All pools.
#[must_use]
pub fn pools(frame: &Frame<'_>, state: &State, at: usize) -> Markup {
    let body = html! {
        h1 { "Pools" }
        section class="wide" {
            (pager("/pools", at, state.pools.len()))
            table {
                thead { tr {
                    th { "Pool" } th { "For" } th { "Copies" } th { "PGs" } th { "Objects" } th { "Stored" }
                    th { "Fill" } th { "Can take" } th { "Read" } th { "Written" } th { "Most bytes" }
                } }
                tbody {
                    @for pool in state.pools.values().skip(at * ROWS_MAX).take(ROWS_MAX) {
                        (pool_row(frame, state, pool))
                    }
                }
            }
        }
    };
    page(frame, "/pools", body)
}

/// Where data is, and what moves. `stuck` are PGs that are not clean: number, state, acting OSDs.
#[must_use]
pub fn placement(frame: &Frame<'_>, state: &State, stuck: &[(String, String, String)]) -> Markup {
    let states = state.pg_states();
    let (all, objects) = (states.get("total").copied().unwrap_or(0), &state.objects);
    let body = html! {
        h1 { "Placement and recovery" }
        section {
            h2 { "Recovery" }
            dl {
                dt { "moves" } dd { (per_second(state.rates.recovered)) }
                dt { "degraded" } dd { (objects.degraded) " of " (objects.copies) " copies" (bar(part(objects.degraded, objects.copies))) }
                dt { "misplaced" } dd { (objects.misplaced) (bar(part(objects.misplaced, objects.copies))) }
                dt { "unfound" } dd { (objects.unfound) }
            }
        }
        section {
            h2 { (all) " PGs" }
            table { tbody {
                @for (name, n) in states.iter().filter(|(name, _)| **name != "total") {
                    tr { td { (name) } td { (n) } td { (bar(part(*n, all))) } }
                }
            } }
            p { "A PG counts in each of its states." }
        }
        section class="wide" {
            h2 { "PGs that are not clean" }
            @if stuck.is_empty() { p { "None." } }
            @if stuck.len() > ROWS_MAX { p { "The first " (ROWS_MAX) " of " (stuck.len()) ":" } }
            table { tbody {
                @for (id, state, acting) in stuck.iter().take(ROWS_MAX) {
                    tr {
                        td { (id) } td { (state) } td { (acting) }
                        td {
                            (form(frame, "pg-deep-scrub", &[("pgid", id)], "deep scrub"))
                            @if state.contains("inconsistent") {
                                (form(frame, "pg-repair", &[("pgid", id)], "repair"))
                            }
                        }
                    }
                }
            } }
        }
    };
    page(frame, "/placement", body)
}
