//! Why the cluster is not well: each health check with its cause, how long it holds, and what to do.
//!
//! What to do is the operators' page itself, `docs/ops/health.md`: a code has one home.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::Value;

use crate::state::{Check, State};

const PAGE: &str = include_str!("../../../docs/ops/health.md");

/// What mostly follows from what: a code, and codes that cause it, the next one first.
const CAUSES: &[(&str, &[&str])] = &[
    ("PG_DEGRADED", &["OSD_DOWN", "OSD_NEVER_UP", "PG_RECOVERY_FULL", "OSDMAP_FLAGS"]),
    ("PG_AVAILABILITY", &["POOL_UNPLACEABLE", "OSD_DOWN", "OSD_NEVER_UP"]),
    ("OSD_DOWN", &["OSD_HOST_DOWN", "OSD_RACK_DOWN"]),
    ("OSD_HOST_DOWN", &["OSD_RACK_DOWN"]),
    ("OBJECT_UNFOUND", &["OSD_DOWN"]),
    ("OBJECT_MISPLACED", &["OSD_DOWN", "OSDMAP_FLAGS"]),
    ("PG_DAMAGED", &["OSD_SCRUB_ERRORS", "OSD_TOO_MANY_REPAIRS"]),
    ("OSD_SCRUB_ERRORS", &["OSD_TOO_MANY_REPAIRS"]),
    ("PG_RECOVERY_FULL", &["OSD_FULL", "OSD_BACKFILLFULL"]),
    ("PG_BACKFILL_FULL", &["OSD_BACKFILLFULL", "OSD_FULL", "OSD_NEARFULL"]),
    ("PG_NOT_SCRUBBED", &["OSDMAP_FLAGS", "POOL_SCRUB_FLAGS", "PG_DEGRADED"]),
    ("PG_NOT_DEEP_SCRUBBED", &["OSDMAP_FLAGS", "POOL_SCRUB_FLAGS", "PG_DEGRADED"]),
    ("POOL_FULL", &["OSD_FULL"]),
    ("POOL_BACKFILLFULL", &["OSD_BACKFILLFULL"]),
    ("POOL_NEARFULL", &["OSD_NEARFULL"]),
    (
        "SLOW_OPS",
        &[
            "PG_AVAILABILITY",
            "OSD_SLOW_PING_TIME_BACK",
            "OSD_SLOW_PING_TIME_FRONT",
            "OSD_FULL",
            "OSD_DOWN",
        ],
    ),
    ("MDS_SLOW_METADATA_IO", &["SLOW_OPS", "PG_AVAILABILITY"]),
    ("MDS_SLOW_REQUEST", &["MDS_SLOW_METADATA_IO", "MDS_CLIENT_LATE_RELEASE"]),
    ("MDS_TRIM", &["MDS_SLOW_METADATA_IO"]),
    ("MDS_READ_ONLY", &["POOL_FULL", "PG_AVAILABILITY"]),
    ("FS_DEGRADED", &["FS_WITH_FAILED_MDS", "MDS_ALL_DOWN"]),
    ("FS_WITH_FAILED_MDS", &["MDS_ALL_DOWN"]),
    ("MDS_CLIENTS_LAGGY", &["OSD_DOWN", "SLOW_OPS"]),
];
/// Causes of causes: no chain is longer.
const CHAIN_MAX: usize = 6;

/// What the operators' page says of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What the check says.
    pub says: &'static str,
    /// What to do, with commands in backquotes.
    pub todo: &'static str,
}

/// What to do about a code.
#[must_use]
pub fn advice(code: &str) -> Option<Advice> {
    static ALL: OnceLock<BTreeMap<&str, Advice>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let mut all = BTreeMap::new();
        for row in PAGE.lines().filter(|line| line.starts_with("| `")) {
            // A bar within backquotes is written `\|`.
            let mut cells = Vec::new();
            let mut from = 0;
            for (at, _) in row.match_indices('|') {
                if !row[..at].ends_with('\\') {
                    cells.push(row[from..at].trim());
                    from = at + 1;
                }
            }
            let [_, codes, says, todo] = cells[..] else { continue };
            for code in codes.split('`').filter(|code| code.chars().any(|c| c.is_ascii_uppercase()))
            {
                all.insert(code, Advice { says, todo });
            }
        }
        all
    });
    all.get(code).copied()
}

/// The first command of an advice that takes nothing away, with the OSD or PG filled in that the check's details
/// name first.
#[must_use]
pub fn next_command(advice: &Advice, detail: &[String]) -> Option<String> {
    const PROGRAMS: [&str; 5] = ["ceph ", "rados ", "argonaut ", "radosgw-admin ", "rbd "];
    const HARMFUL: [&str; 9] = [
        "rm",
        "lost",
        "replace",
        "purge-new",
        "delete",
        "evict",
        "mark_unfound_lost",
        "repair",
        "fail",
    ];
    let mut quoted = advice.todo.split('`').skip(1).step_by(2);
    let command = quoted.find(|text| {
        PROGRAMS.iter().any(|program| text.starts_with(program))
            && !text.split(' ').any(|word| HARMFUL.contains(&word))
    })?;
    let words = || detail.iter().flat_map(|line| line.split([' ', ',']));
    let is_osd =
        |word: &&str| word.strip_prefix("osd.").is_some_and(|id| id.parse::<u32>().is_ok());
    let pg = words().zip(words().skip(1)).find(|(before, _)| *before == "pg").map(|(_, pg)| pg);
    let filled = command.split(' ').map(|word| match word {
        "osd.N" => words().find(is_osd).unwrap_or(word),
        "PG" => pg.unwrap_or(word),
        other => other,
    });
    Some(filled.collect::<Vec<_>>().join(" "))
}

/// What causes a check, by other checks that hold now: the nearest cause first.
#[must_use]
pub fn chain<'a>(code: &str, checks: &'a [Check]) -> Vec<&'a Check> {
    let mut chain: Vec<&Check> = Vec::new();
    let mut last = code;
    while chain.len() < CHAIN_MAX {
        let causes = CAUSES.iter().find(|(effect, _)| *effect == last).map_or(&[][..], |c| c.1);
        let holds = |cause: &&str| checks.iter().find(|check| check.code == *cause);
        let Some(next) = causes.iter().find_map(holds) else { break };
        if next.code == code || chain.iter().any(|known| known.code == next.code) {
            break;
        }
        last = &next.code;
        chain.push(next);
    }
    chain
}

/// `2026-11-30T12:34:56.123456+0000` in seconds since 1970.
fn seconds(stamp: &str) -> Option<u64> {
    let numbers = stamp.get(..19)?.split(['-', 'T', ':']).map(|part| part.parse::<u64>().ok());
    let [year, month, day, hour, minute, second] = numbers.collect::<Option<Vec<u64>>>()?[..]
    else {
        return None;
    };
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    // Years begin in March, so that the leap day is their last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    Some((days - 719_469) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Since when checks hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Since(BTreeMap<String, (u64, bool)>);

impl Since {
    /// Takes in what holds at a moment. `is_first`: nobody looked before, so that what holds may have begun
    /// earlier.
    pub fn take(&mut self, state: &State, is_first: bool) {
        self.0.retain(|code, _| state.checks.iter().any(|check| check.code == *code));
        for check in &state.checks {
            self.0.entry(check.code.clone()).or_insert((state.at_s, is_first));
        }
    }

    /// Takes from the cluster's log (`log last`, the oldest line first) when checks began that held before anybody looked.
    pub fn take_log(&mut self, lines: &Value) {
        for (code, (since_s, is_first)) in &mut self.0 {
            if !*is_first {
                continue;
            }
            let (failed, cleared) = (format!("({code})"), format!("Health check cleared: {code} "));
            let mut began = None;
            for line in lines.as_array().into_iter().flatten() {
                let message = line["message"].as_str().unwrap_or_default();
                if message.starts_with("Health check failed: ") && message.ends_with(&failed) {
                    began = line["stamp"].as_str().and_then(seconds);
                } else if message.starts_with(&cleared) {
                    began = None;
                }
            }
            if let Some(at_s) = began {
                (*since_s, *is_first) = (at_s.min(*since_s), false);
            }
        }
    }

    /// When a check began, in seconds since 1970, and whether it may have begun earlier.
    #[must_use]
    pub fn of(&self, code: &str) -> Option<(u64, bool)> {
        self.0.get(code).copied()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(code: &str) -> Check {
        Check { code: code.to_owned(), ..Check::default() }
    }

    /// Each row of the page is found, and both ends of each cause have one.
    #[test]
    fn advice_is_the_operators_page() {
        let down = advice("OSD_DOWN").expect("a row");
        assert!(down.says.contains("down") && down.todo.contains("argonaut osd replace"));
        let detail = ["osd.2 (root=default,host=a) is down".to_owned()];
        assert_eq!(next_command(&down, &detail).as_deref(), Some("argonaut start osd.2"));
        assert_eq!(next_command(&down, &[]).as_deref(), Some("argonaut start osd.N"));
        let stuck = advice("PG_AVAILABILITY").expect("a row");
        let detail = ["pg 1.1f is stuck peering for 2m, acting [0,1]".to_owned()];
        assert_eq!(next_command(&stuck, &detail).as_deref(), Some("ceph pg 1.1f query"));
        let full = next_command(&advice("OSD_FULL").expect("a row"), &[]).expect("a command");
        assert!(!full.contains("rm"), "nothing is removed at first: {full}");
        assert_eq!(next_command(&advice("OSD_TOO_MANY_REPAIRS").expect("a row"), &[]), None);
        let second = advice("OSD_SLOW_PING_TIME_BACK").expect("the second code of a row");
        assert!(next_command(&second, &[]).unwrap().starts_with("ceph tell"));
        let bar = advice("POOL_APP_NOT_ENABLED").expect("a row with a bar in it");
        assert!(bar.todo.contains("rgw"), "{bar:?}");
        for code in CAUSES.iter().flat_map(|(effect, causes)| causes.iter().chain([effect])) {
            assert!(advice(code).is_some(), "{code} has no row in docs/ops/health.md");
        }
        assert_eq!(advice("NO_SUCH_CODE"), None);
    }

    #[test]
    fn causes() {
        let checks = ["SLOW_OPS", "PG_DEGRADED", "PG_AVAILABILITY", "OSD_DOWN", "OSD_HOST_DOWN"];
        let checks = checks.map(check);
        let chain = |code: &str| -> Vec<&str> {
            super::chain(code, &checks).iter().map(|check| check.code.as_str()).collect()
        };
        assert_eq!(chain("SLOW_OPS"), ["PG_AVAILABILITY", "OSD_DOWN", "OSD_HOST_DOWN"]);
        assert_eq!(chain("PG_DEGRADED"), ["OSD_DOWN", "OSD_HOST_DOWN"]);
        assert!(chain("OSD_HOST_DOWN").is_empty() && chain("OTHER").is_empty());
    }

    #[test]
    fn moments_of_the_log() {
        assert_eq!(seconds("1970-01-01T00:00:00.000000+0000"), Some(0));
        assert_eq!(seconds("2000-02-29T12:00:01.5+0000"), Some(951_825_601));
        assert_eq!(seconds("2026-11-30T00:53:20"), Some(1_796_000_000));
        for bad in ["", "2026-11-30", "2026-11-30 00:53:20", "1969-01-01T00:00:00", "x"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }

    /// What held already when the manager began is found in the log, unless it was cleared since.
    #[test]
    fn since_by_the_log() {
        let line = |stamp: &str, message: &str| json!({"stamp": stamp, "message": message});
        let log = json!([
            line("2026-11-29T00:00:00", "Health check failed: 1 osds down (OSD_DOWN)"),
            line("2026-11-29T01:00:00", "Health check cleared: OSD_DOWN (was: 1 osds down)"),
            line("2026-11-29T02:00:00", "Health check failed: 2 osds down (OSD_DOWN)"),
            line("2026-11-29T03:00:00", "Health check update: 3 osds down (OSD_DOWN)"),
            line("2026-11-29T04:00:00", "Health check failed: slow (SLOW_OPS)"),
            line("2026-11-29T05:00:00", "Health check cleared: SLOW_OPS (was: slow)"),
        ]);
        let checks = ["OSD_DOWN", "SLOW_OPS"].map(check).into();
        let state = State { at_s: 1_796_000_000, checks, ..State::default() };
        let mut since = Since::default();
        since.take(&state, true);
        since.take_log(&log);
        let began = seconds("2026-11-29T02:00:00").unwrap();
        assert_eq!(since.of("OSD_DOWN"), Some((began, false)));
        assert_eq!(since.of("SLOW_OPS"), Some((1_796_000_000, true)));
        let mut later = Since::default();
        later.take(&state, false);
        later.take_log(&log);
        assert_eq!(later.of("OSD_DOWN"), Some((1_796_000_000, false)), "it was seen to begin");
    }

    #[test]
    fn since() {
        let at = |at_s: u64, codes: &[&str]| State {
            at_s,
            checks: codes.iter().map(|code| check(code)).collect(),
            ..State::default()
        };
        let mut since = Since::default();
        since.take(&at(10, &["A"]), true);
        since.take(&at(20, &["A", "B"]), false);
        assert_eq!((since.of("A"), since.of("B")), (Some((10, true)), Some((20, false))));
        since.take(&at(30, &["B"]), false);
        since.take(&at(40, &["A", "B"]), false);
        assert_eq!((since.of("A"), since.of("B")), (Some((40, false)), Some((20, false))));
    }
}
