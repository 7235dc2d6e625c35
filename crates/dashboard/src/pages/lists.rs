//! Images, file systems with their subvolumes, the object store.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde_json::Value;

use super::{Frame, ROWS_MAX, bytes, escaped, page, pager};
use crate::app::ObjectNames;
use crate::state::State;

/// Images by pool.
#[must_use]
pub fn images(
    frame: &Frame<'_>,
    state: &State,
    images: &BTreeMap<i64, Vec<String>>,
    at: usize,
) -> Markup {
    let all: Vec<(&str, &str)> = images
        .iter()
        .flat_map(|(pool, names)| {
            let pool = state.pools.get(pool).map_or("", |pool| pool.name.as_str());
            names.iter().map(move |name| (pool, name.as_str()))
        })
        .collect();
    let body = html! {
        h1 { "Images" }
        p { (all.len()) " images in " (images.len()) " pools." }
        section class="wide" {
            (pager("/images", at, all.len()))
            table {
                thead { tr { th { "Pool" } th { "Image" } } }
                tbody {
                    @for (pool, name) in all.iter().skip(at * ROWS_MAX).take(ROWS_MAX) {
                        tr { td { (pool) } td { (name) } }
                    }
                }
            }
        }
    };
    page(frame, "/images", body)
}

/// Subvolumes of a file system, as `fs subvolume ls` names them, or why they are not shown.
pub type Subvolumes = Result<Value, String>;

/// File systems, and the subvolumes of one of them.
#[must_use]
pub fn files(frame: &Frame<'_>, state: &State, shown: Option<(&str, &Subvolumes)>) -> Markup {
    let body = html! {
        h1 { "File systems" }
        @if state.file_systems.is_empty() { p { "There is none." } }
        @for fs in &state.file_systems {
            section class="wide" {
                h2 { (fs.name) }
                p {
                    (fs.ranks) " ranks"
                    @if fs.failed > 0 { span class="bad" { ", " (fs.failed) " without a server" } }
                    "; " (state.members.mds_standbys) " servers stand by."
                }
                table {
                    thead { tr { th { "Rank" } th { "Server" } th { "State" } } }
                    tbody { @for (rank, name, is) in &fs.servers { tr { td { (rank) } td { (name) } td { (is) } } } }
                }
                p {
                    @for (n, pool) in fs.pools.iter().filter_map(|id| state.pools.get(id)).enumerate() {
                        @if n == 0 { "Metadata in " } @else { ", data in " }
                        (pool.name) " (" (bytes(pool.stored as f64)) ")"
                    }
                }
                @match shown {
                    Some((name, Ok(all))) if name == fs.name => {
                        h3 { "Subvolumes" }
                        ul { @for one in all.as_array().into_iter().flatten().take(ROWS_MAX) {
                            li { (one["name"].as_str().unwrap_or_default()) }
                        } }
                        @if all.as_array().is_none_or(Vec::is_empty) { p { "None outside of groups." } }
                    }
                    Some((name, Err(why))) if name == fs.name => p class="note" { (why) }
                    _ => p { a href={"/files?fs=" (escaped(&fs.name))} { "Subvolumes" } }
                }
            }
        }
    };
    page(frame, "/files", body)
}

/// What is in an object store, by the pool of its metadata, or why that is not shown.
type Store = (String, Result<ObjectNames, String>);

fn names(title: &str, all: &[String], at: usize) -> Markup {
    html! {
        h3 { (all.len()) " " (title) }
        (pager("/objects", at, all.len()))
        ul { @for name in all.iter().skip(at * ROWS_MAX).take(ROWS_MAX) { li { (name) } } }
    }
}

/// Gateways, pools of objects, users and buckets. `services` is the service map.
#[must_use]
pub fn objects(
    frame: &Frame<'_>,
    state: &State,
    services: &Value,
    stores: &[Store],
    at: usize,
) -> Markup {
    let daemons = services["services"]["rgw"]["daemons"].as_object();
    let daemons: Vec<_> =
        daemons.into_iter().flatten().filter(|(name, _)| *name != "summary").collect();
    let pools: Vec<_> = state
        .pools
        .values()
        .filter(|pool| pool.applications.iter().any(|app| app == "rgw"))
        .collect();
    let body = html! {
        h1 { "Object store" }
        section class="wide" {
            h2 { (daemons.len()) " gateways" }
            table { tbody {
                @for (name, daemon) in daemons.iter().take(ROWS_MAX) {
                    @let word = |key: &str| daemon["metadata"][key].as_str().unwrap_or_default();
                    tr { td { (name) } td { (word("id")) } td { (word("hostname")) } td { (word("frontend_config#0")) } }
                }
            } }
        }
        @for (pool, listed) in stores {
            section class="wide" {
                h2 { "Users and buckets in " (pool) }
                @match listed {
                    Err(why) => p class="note" { (why) }
                    Ok(all) => {
                        (names("users", &all.users, at))
                        (names("buckets", &all.buckets, at))
                        p {
                            code { "radosgw-admin user info --uid USER" } " and "
                            code { "radosgw-admin bucket stats --bucket BUCKET" } " tell more."
                        }
                    }
                }
            }
        }
        section class="wide" {
            h2 { "Pools" }
            table { tbody {
                @for pool in pools.iter().take(ROWS_MAX) {
                    tr { td { (pool.name) } td { (pool.objects) " objects" } td { (bytes(pool.stored as f64)) } }
                }
            } }
        }
    };
    page(frame, "/objects", body)
}
