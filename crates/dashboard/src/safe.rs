//! How much may be lost: OSDs, hosts or racks, before a pool stops serving, and before data is gone.
//!
//! A rule that spreads copies over hosts puts one on each, so that the loss of `n` hosts costs a PG at
//! most `n` copies. PGs that lack copies already are counted as they are.

use crate::state::{Pool, State};

/// What one pool bears.
#[derive(Clone, Debug, PartialEq)]
pub struct Bears {
    /// The pool.
    pub pool: String,
    /// What its copies are spread over: `host`, `osd`, `rack`, …
    pub domain: String,
    /// So many of them may go, and everything is still read and written.
    pub serving: u64,
    /// So many of them may go, and nothing is lost.
    pub kept: u64,
    /// Whether PGs lack copies now.
    pub is_reduced: bool,
    /// Copies each, and with how many a PG serves.
    pub of: (u64, u64),
}

/// What all pools bear together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Safe {
    /// The pools, the weakest first.
    pub pools: Vec<Bears>,
    /// Whether what is on the fullest host has room on the others; `None`: there is one host at most.
    pub has_room: Option<bool>,
}

fn bears(state: &State, pool: &Pool) -> Bears {
    let lacks = ["undersized", "down", "incomplete", "stale", "peering", "unknown"];
    let is_reduced = lacks.iter().any(|name| pool.states.get(*name).is_some_and(|n| *n > 0));
    // Where PGs lack copies and none were counted, a PG may be at its last one.
    let copies = match state.fewest.get(&pool.id) {
        Some(fewest) => (*fewest).min(pool.size),
        None if is_reduced => 0,
        None => pool.size,
    };
    Bears {
        pool: pool.name.clone(),
        domain: state.domains.get(&pool.rule).cloned().unwrap_or_else(|| "osd".to_owned()),
        serving: copies.saturating_sub(pool.min_size.max(pool.needed)),
        kept: copies.saturating_sub(pool.needed),
        is_reduced,
        of: (pool.size, pool.min_size),
    }
}

/// Whether the other hosts can take what the fullest one holds, below the ratio that warns.
fn has_room(state: &State) -> Option<bool> {
    let hosts: Vec<(u64, u64)> = state
        .hosts()
        .values()
        .map(|osds| osds.iter().filter(|osd| osd.is_in))
        .map(|osds| osds.fold((0, 0), |(size, used), osd| (size + osd.size, used + osd.used)))
        .filter(|(size, _)| *size > 0)
        .collect();
    if hosts.len() < 2 {
        return None;
    }
    let (size, used) = hosts.iter().fold((0, 0), |sum, host| (sum.0 + host.0, sum.1 + host.1));
    let ratio = if state.capacity.nearfull > 0.0 { state.capacity.nearfull } else { 0.85 };
    Some(hosts.iter().all(|(lost, _)| used as f64 <= (size - lost) as f64 * ratio))
}

/// What the cluster bears.
#[must_use]
pub fn safe(state: &State) -> Safe {
    let mut pools: Vec<Bears> = state.pools.values().map(|pool| bears(state, pool)).collect();
    // A loss of OSDs hits before one of as many hosts does.
    let width = |domain: &str| match domain {
        "osd" => 0,
        "host" => 1,
        _ => 2,
    };
    pools.sort_by(|a, b| {
        (a.serving, a.kept, width(&a.domain), &a.pool).cmp(&(
            b.serving,
            b.kept,
            width(&b.domain),
            &b.pool,
        ))
    });
    Safe { pools, has_room: has_room(state) }
}

/// `1 host`, `2 hosts`, `no OSD`
#[must_use]
pub fn of_domain(number: u64, domain: &str) -> String {
    let noun = if domain == "osd" { "OSD" } else { domain };
    match number {
        0 => format!("no {noun}"),
        1 => format!("1 {noun}"),
        more => format!("{more} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::answers;

    fn state() -> State {
        State::of(&answers())
    }

    #[test]
    fn healthy_pools() {
        let safe = safe(&state());
        assert_eq!(safe.pools.len(), 3);
        let weakest = &safe.pools[0];
        assert_eq!((weakest.serving, weakest.kept, weakest.is_reduced), (1, 2, false));
        assert_eq!(weakest.domain, "host");
        assert_eq!(safe.has_room, None, "one host");
        assert_eq!(of_domain(weakest.serving, &weakest.domain), "1 host");
        assert_eq!((of_domain(0, "osd"), of_domain(2, "osd")), ("no OSD".into(), "2 OSDs".into()));
    }

    /// PGs that lack copies bear less; where they were not counted, nothing.
    #[test]
    fn reduced_pools() {
        let mut state = state();
        let pool = state.pools.get_mut(&2).unwrap();
        pool.states.insert("undersized".to_owned(), 3);
        pool.name = "weak".to_owned();
        let first = safe(&state).pools[0].clone();
        assert_eq!((first.pool.as_str(), first.serving, first.kept), ("weak", 0, 0));
        state.fewest.insert(2, 2);
        let first = safe(&state).pools[0].clone();
        assert_eq!((first.serving, first.kept, first.is_reduced), (0, 1, true));
    }

    /// Of an erasure code as many shards may go as it has coding ones, and serving asks for `min_size`.
    #[test]
    fn coded_pools() {
        let mut state = state();
        let pool = state.pools.get_mut(&3).unwrap();
        (pool.size, pool.min_size, pool.needed, pool.is_coded) = (6, 5, 4, true);
        let own = safe(&state).pools.into_iter().find(|own| own.of.0 == 6).unwrap();
        assert_eq!((own.serving, own.kept), (1, 2));
    }

    #[test]
    fn room() {
        let mut state = state();
        for (id, host) in [(0, "a"), (1, "b"), (2, "c")] {
            let osd = state.osds.get_mut(&id).unwrap();
            (osd.host, osd.size, osd.used) = (host.to_owned(), 1_000, 500);
        }
        state.capacity.nearfull = 0.85;
        assert_eq!(safe(&state).has_room, Some(true), "1,500 of 2,000");
        for osd in state.osds.values_mut() {
            osd.used = 600;
        }
        assert_eq!(safe(&state).has_room, Some(false), "1,800 of 2,000");
    }
}
