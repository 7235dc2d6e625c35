//! The log, settings and keys.

use maud::{Markup, html};
use serde_json::Value;

use super::{Frame, ROWS_MAX, page, pager};

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// `log last`, the newest line first.
#[must_use]
pub fn log(frame: &Frame<'_>, lines: &Value, channel: &str) -> Markup {
    let body = html! {
        h1 { "Log" }
        p {
            @for (name, title) in [("cluster", "Cluster"), ("audit", "Commands")] {
                a href={"/log?channel=" (name)} aria-current=[(name == channel).then_some("page")] { (title) } " "
            }
        }
        section class="wide" {
            table { tbody {
                @for line in list(lines).iter().rev().take(ROWS_MAX) {
                    @let priority = text(&line["priority"]);
                    @let class = match priority { "[ERR]" | "[SEC]" => Some("bad"), "[WRN]" => Some("warn"), _ => None };
                    tr {
                        td { (text(&line["stamp"]).get(..19).unwrap_or_default().replace('T', " ")) }
                        td class=[class] { (priority) }
                        td { (text(&line["name"])) }
                        td class="line" { (text(&line["message"])) }
                    }
                }
            } }
        }
    };
    page(frame, "/log", body)
}

/// `config dump`.
#[must_use]
pub fn settings(frame: &Frame<'_>, all: &Value, at: usize) -> Markup {
    let all = list(all);
    let body = html! {
        h1 { "Settings" }
        p { "What differs from the defaults. " code { "ceph config set WHO NAME VALUE" } " changes one." }
        section class="wide" {
            (pager("/settings", at, all.len()))
            table {
                thead { tr { th { "Who" } th { "Name" } th { "Value" } th { "For" } th { "Takes effect" } } }
                tbody {
                    @for one in all.iter().skip(at * ROWS_MAX).take(ROWS_MAX) {
                        tr {
                            td { (text(&one["section"])) }
                            td { (text(&one["name"])) }
                            td class="line" { (text(&one["value"])) }
                            td { (text(&one["mask"])) }
                            td { @if one["can_update_at_runtime"] == true { "at once" } @else { "at a restart" } }
                        }
                    }
                }
            }
        }
    };
    page(frame, "/settings", body)
}

/// `auth ls`, without the keys themselves.
#[must_use]
pub fn keys(frame: &Frame<'_>, all: &Value, at: usize) -> Markup {
    let all = list(&all["auth_dump"]);
    let body = html! {
        h1 { "Keys" }
        p { "Who has a key, and what it may do. Keys themselves are not shown." }
        section class="wide" {
            (pager("/keys", at, all.len()))
            table {
                thead { tr { th { "Entity" } th { "Caps" } } }
                tbody {
                    @for one in all.iter().skip(at * ROWS_MAX).take(ROWS_MAX) {
                        tr {
                            td { (text(&one["entity"])) }
                            td {
                                @for (service, caps) in one["caps"].as_object().into_iter().flatten() {
                                    div { b { (service) } " " (text(caps)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    };
    page(frame, "/keys", body)
}
