//! Pages: from a state of the cluster to HTML, without I/O. Whatever comes from the cluster is text to `maud`,
//! which escapes it; nothing is made of strings by hand.
//!
//! All pages work without JavaScript: what changes something is a form, and asks first where it can do harm.

mod cluster;
mod lists;
mod overview;
mod storage;

pub use cluster::{keys, log, settings};
pub use lists::{files, images, objects};
use maud::{DOCTYPE, Markup, html};
pub use overview::{live, overview, why};
pub use storage::{host, osds, placement, pools};

/// Whom a page is for, and what goes around it.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The name of the account that looks at it.
    pub user: &'a str,
    /// What its forms carry.
    pub csrf: &'a str,
    /// What is said once, above the page.
    pub note: Option<&'a str>,
    /// Seconds since 1970.
    pub now_s: u64,
    /// When what is shown was asked for; 0: not yet.
    pub at_s: u64,
}

const PAGES: [(&str, &str); 11] = [
    ("/", "Overview"),
    ("/why", "Why"),
    ("/osds", "OSDs and hosts"),
    ("/pools", "Pools"),
    ("/placement", "Placement"),
    ("/images", "Images"),
    ("/files", "File systems"),
    ("/objects", "Object store"),
    ("/log", "Log"),
    ("/settings", "Settings"),
    ("/keys", "Keys"),
];
/// What is older than so many seconds is said to be.
const OLD_S: u64 = 30;

/// Rows of a table on one page.
pub const ROWS_MAX: usize = 200;

fn head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            title { (title) " · Argonaut" }
            link rel="stylesheet" href="/static/style.css";
            script src="/static/live.js" defer {}
        }
    }
}

/// A whole page around `body`.
#[must_use]
pub fn page(frame: &Frame<'_>, here: &str, body: Markup) -> Markup {
    let title = PAGES.iter().find(|(path, _)| *path == here).map_or("Argonaut", |(_, name)| name);
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(title))
            body {
                header {
                    nav {
                        @for (path, name) in PAGES {
                            a href=(path) aria-current=[(path == here).then_some("page")] { (name) }
                        }
                    }
                    form method="post" action="/logout" {
                        input type="hidden" name="csrf" value=(frame.csrf);
                        span { (frame.user) " " }
                        button { "Log out" }
                    }
                }
                main {
                    @if let Some(note) = frame.note { p class="note" { (note) } }
                    @if frame.at_s == 0 {
                        p class="note" { "The monitors have not answered yet." }
                    } @else if frame.now_s > frame.at_s + OLD_S {
                        p class="note" {
                            "The monitors do not answer: what follows is "
                            (frame.now_s - frame.at_s) " seconds old."
                        }
                    }
                    (body)
                }
            }
        }
    }
}

/// The page to log in; `why` the last try failed.
#[must_use]
pub fn login(why: Option<&str>) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head("Log in"))
            body {
                main class="login" {
                    h1 { "Argonaut" }
                    @if let Some(why) = why { p class="note" { (why) } }
                    form method="post" action="/login" {
                        label { "Account " input name="username" autocomplete="username" required autofocus; }
                        label {
                            "Password "
                            input type="password" name="password" autocomplete="current-password" required;
                        }
                        button { "Log in" }
                    }
                    p { "Accounts are made with " code { "ceph dashboard ac-user-create" } "." }
                }
            }
        }
    }
}

/// A page that says one thing.
#[must_use]
pub fn says(frame: &Frame<'_>, title: &str, text: &str) -> Markup {
    let body = html! { h1 { (title) } p class="note" { (text) } p { a href="/" { "Overview" } } };
    page(frame, "", body)
}

/// Asks before something is done: what the cluster says of it, and the form.
#[must_use]
pub fn confirm(
    frame: &Frame<'_>,
    what: &str,
    says: &Markup,
    action: &str,
    fields: &[(&str, &str)],
    back: &str,
) -> Markup {
    let body = html! {
        h1 { (what) "?" }
        (says)
        (form(frame, action, fields, what))
        p { a href=(back) { "Back" } }
    };
    page(frame, "", body)
}

/// A form with one button.
pub(crate) fn form(
    frame: &Frame<'_>,
    action: &str,
    fields: &[(&str, &str)],
    button: &str,
) -> Markup {
    html! {
        form method="post" action={"/do/" (action)} class="act" {
            input type="hidden" name="csrf" value=(frame.csrf);
            @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
            button { (button) }
        }
    }
}

/// A bar, of 0 to 1.
pub(crate) fn bar(fill: f64) -> Markup {
    let width = (fill.clamp(0.0, 1.0) * 100.0).round();
    let class = match fill {
        _ if fill >= 0.95 => "bad",
        _ if fill >= 0.85 => "warn",
        _ => "good",
    };
    html! {
        svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label={(percent(fill))} {
            rect class="all" width="100" height="10" {}
            rect class=(class) width=(width) height="10" {}
        }
    }
}

pub(crate) fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

pub(crate) fn bytes(number: f64) -> String {
    cli::bytes_u(number.max(0.0) as u64)
}

pub(crate) fn per_second(number: f64) -> String {
    format!("{}/s", bytes(number))
}

pub(crate) fn operations(number: f64) -> String {
    format!("{number:.0}/s")
}

/// Seconds since 1970 as text.
pub(crate) fn moment(seconds: u64) -> String {
    let text = types::UTime { sec: seconds as u32, nsec: 0 }.to_string();
    text.get(..19).unwrap_or(&text).replace('T', " ")
}

/// How long something lasts.
pub(crate) fn lasting(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Text with commands in backquotes.
pub(crate) fn quoted(text: &str) -> Markup {
    html! {
        @for (n, piece) in text.replace("\\|", "|").split('`').enumerate() {
            @if n % 2 == 1 { code { (piece) } } @else { (piece) }
        }
    }
}

/// Links to the pages of a long table.
pub(crate) fn pager(path: &str, page: usize, rows: usize) -> Markup {
    let pages = rows.div_ceil(ROWS_MAX).max(1);
    let sep = if path.contains('?') { '&' } else { '?' };
    html! {
        @if pages > 1 {
            p {
                "Page " (page + 1) " of " (pages) " "
                @if page > 0 { a href={(path) (sep) "page=" (page - 1)} { "before" } " " }
                @if page + 1 < pages { a href={(path) (sep) "page=" (page + 1)} { "next" } }
            }
        }
    }
}

/// A word as part of a URL's query.
#[must_use]
pub fn escaped(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    let each = |b: u8| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") };
    text.bytes().map(each).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::app::ObjectNames;
    use crate::history::History;
    use crate::state::tests::answers;
    use crate::state::{Check, Osd, State};
    use crate::why::Since;

    const FRAME: Frame<'static> =
        Frame { user: "ann", csrf: "c5", note: None, now_s: 1_796_000_010, at_s: 1_796_000_000 };
    const EVIL: &str = "<script>alert('1')</script>\"&";

    /// Every page of a state.
    fn all(frame: &Frame<'_>, state: &State) -> Vec<(&'static str, String)> {
        let evil = json!([{"name": EVIL, "message": EVIL, "stamp": EVIL, "priority": EVIL,
            "section": EVIL, "value": EVIL, "mask": EVIL}]);
        let auth =
            json!({"auth_dump": [{"entity": EVIL, "key": "AQsecret", "caps": {EVIL: EVIL}}]});
        let services =
            json!({"services": {"rgw": {"daemons": {EVIL: {"metadata": {"id": EVIL}}}}}});
        let fs = state.file_systems.first().map_or("", |fs| fs.name.as_str());
        let pools = BTreeMap::from([(3, vec![EVIL.to_owned()])]);
        let stuck = [("1.a".to_owned(), EVIL.to_owned(), "[0,1]".to_owned())];
        let says = html! { p { (EVIL) } };
        let many = vec![EVIL.to_owned(); 20_000];
        let stores = [
            (EVIL.to_owned(), Ok(ObjectNames { users: many.clone(), buckets: many })),
            (EVIL.to_owned(), Err(EVIL.to_owned())),
        ];
        let mut since = Since::default();
        since.take(state, true);
        let pages = [
            ("overview", overview(frame, state, &History::default())),
            ("why", why(frame, state, &since)),
            ("osds", osds(frame, state, 0)),
            ("host", host(frame, state, EVIL, 0)),
            ("pools", super::pools(frame, state, 0)),
            ("placement", placement(frame, state, &stuck)),
            ("images", images(frame, state, &pools, 0)),
            ("files", files(frame, state, Some((fs, &Ok(evil.clone()))))),
            ("files refused", files(frame, state, Some((fs, &Err(EVIL.to_owned()))))),
            ("objects", objects(frame, state, &services, &stores, 0)),
            ("log", log(frame, &evil, "cluster")),
            ("settings", settings(frame, &evil, 0)),
            ("keys", keys(frame, &auth, 0)),
            ("login", login(Some(EVIL))),
            ("says", super::says(frame, EVIL, EVIL)),
            ("confirm", confirm(frame, EVIL, &says, "osd-out", &[("id", EVIL)], "/osds")),
        ];
        pages.map(|(name, page)| (name, page.into_string())).into()
    }

    /// A pool, image, host or check may have any name: it is text on every page. No page has scripts
    /// or styles of its own, which its policy would refuse.
    #[test]
    fn names_are_text() {
        let mut state = State::of(&answers());
        state.fsid = EVIL.to_owned();
        for osd in state.osds.values_mut() {
            (osd.host, osd.class) = (EVIL.to_owned(), EVIL.to_owned());
        }
        state.places = BTreeMap::from([(EVIL.to_owned(), EVIL.to_owned())]);
        for pool in state.pools.values_mut() {
            pool.name = EVIL.to_owned();
            pool.applications.extend([EVIL.to_owned(), "rgw".to_owned()]);
            pool.states.insert(EVIL.to_owned(), 1);
        }
        for fs in &mut state.file_systems {
            fs.name = EVIL.to_owned();
        }
        let detail = vec![EVIL.to_owned()];
        let (code, summary) = (EVIL.to_owned(), EVIL.to_owned());
        state.checks = vec![Check { code, summary, detail, ..Check::default() }];
        state.members.mgr = EVIL.to_owned();
        let frame = Frame { user: EVIL, note: Some(EVIL), ..FRAME };
        for (name, text) in all(&frame, &state) {
            assert!(text.contains("&lt;script&gt;alert"), "{name} does not show the name");
            assert!(!text.contains("<script>"), "{name}: {text}");
            for (at, _) in text.match_indices("<script") {
                assert!(text[at..].starts_with("<script src=\"/static/"), "{name}");
            }
            assert!(!text.contains(" style=") && !text.contains(" onclick="), "{name}");
            assert!(!text.contains("AQsecret"), "{name} shows a key");
        }
    }

    /// What changes something is a form by POST that carries the session's own word.
    #[test]
    fn forms_carry_the_word() {
        for (name, text) in all(&FRAME, &State::of(&answers())) {
            let forms: Vec<&str> = text.split("<form").skip(1).collect();
            assert!(!forms.is_empty(), "{name}");
            for form in forms {
                let form = form.split("</form>").next().unwrap();
                assert!(form.starts_with(" method=\"post\""), "{name}: {form}");
                let is_login = form.contains("action=\"/login\"");
                assert!(is_login || form.contains("name=\"csrf\" value=\"c5\""), "{name}: {form}");
            }
        }
    }

    /// 10,000 OSDs on 500 hosts, and one host with all of them: no page is long.
    #[test]
    fn large_clusters_have_small_pages() {
        let mut state = State::of(&answers());
        for wide in [true, false] {
            state.osds = (0..10_000)
                .map(|id| {
                    let host = if wide {
                        format!("rack{}-host{}", id / 400, id / 20)
                    } else {
                        EVIL.into()
                    };
                    let class = "hdd".to_owned();
                    let (size, used) = (16 << 40, (id as u64) << 30);
                    (
                        id,
                        Osd {
                            id,
                            host,
                            class,
                            is_in: true,
                            size,
                            used,
                            pgs: 123,
                            ..Osd::default()
                        },
                    )
                })
                .collect();
            let mut names: Vec<String> =
                state.pools.values().map(|pool| pool.name.clone()).collect();
            names.sort();
            let pool = state.pools[&1].clone();
            state.pools =
                (0..2_000).map(|id| (id, crate::state::Pool { id, ..pool.clone() })).collect();
            for (name, text) in all(&FRAME, &state) {
                assert!(text.len() < 300_000, "{name}: {} bytes", text.len());
            }
        }
        let second = osds(&FRAME, &state, 1).into_string();
        assert!(!second.contains("rack0-host0"));
        let last = host(&FRAME, &state, EVIL, 49).into_string();
        assert!(last.contains("osd.9999") && last.contains("Page 50 of 50"), "{last}");
    }

    #[test]
    fn what_is_old_is_said_to_be() {
        let state = State::of(&answers());
        let old = Frame { now_s: FRAME.at_s + 100, ..FRAME };
        assert!(osds(&old, &state, 0).into_string().contains("100 seconds old"));
        assert!(!osds(&FRAME, &state, 0).into_string().contains("seconds old"));
        let none = Frame { at_s: 0, ..FRAME };
        assert!(osds(&none, &State::default(), 0).into_string().contains("not answered yet"));
    }

    #[test]
    fn why_says_what_to_do() {
        let mut state = State::of(&answers());
        let check = |code: &str| Check { code: code.to_owned(), ..Check::default() };
        let detail = vec!["osd.7 (root=default) is down".to_owned()];
        state.checks = vec![check("PG_DEGRADED"), Check { detail, ..check("OSD_DOWN") }];
        let mut since = Since::default();
        since.take(&state, false);
        let frame = Frame { now_s: state.at_s + 600, ..FRAME };
        let text = why(&frame, &state, &since).into_string();
        assert!(text.contains("Because of <a href=\"#OSD_DOWN\">OSD_DOWN</a>"), "{text}");
        assert!(text.contains("For 10 min"), "{text}");
        assert!(text.contains("<code class=\"command\">argonaut start osd.7</code>"), "{text}");
    }

    #[test]
    fn words_of_numbers() {
        assert_eq!((lasting(5), lasting(7_300)), ("5 s".to_owned(), "2 h".to_owned()));
        assert_eq!(escaped("a b/<ü>"), "a%20b%2F%3C%C3%BC%3E");
        assert_eq!(moment(1_796_000_000), "2026-11-30 00:53:20");
        assert_eq!(
            quoted("do `ceph x`, `a\\|b`").into_string(),
            "do <code>ceph x</code>, <code>a|b</code>"
        );
    }
}
