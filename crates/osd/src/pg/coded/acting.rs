//! Who acts for which shard while shards move: whoever has a shard goes on acting for it, by
//! `pg_temp`, until the OSD that CRUSH chose has it too, or as long as CRUSH chooses nobody.
//!
//! Each shard is decided for itself, since nobody else can act for it. An OSD acts for one shard
//! only: where it is wanted for two, the shard that nobody else has goes first.
//!
//! Source: the peer's `PeeringState::calc_ec_acting` and `choose_async_recovery_ec`.

use std::collections::BTreeMap;

use maps::PgShard;
use messages::PgInfo;
use types::{OsdId, ShardId};

use crate::pg::backfill::can_act;
use crate::pg::{Cx, Peer, Pg};

/// A wish for another end of `pg_temp` is repeated after this long.
const RETRY_MS: u64 = 3_000;

/// Who acts for each shard. `up` are those that CRUSH chose, `bound` are shards whose OSD goes on
/// all the same, `whole` says whether a shard may act, `others` who else may act for a shard, best
/// first.
fn choose(
    up: &[OsdId],
    bound: &[bool],
    whole: &dyn Fn(OsdId, usize) -> bool,
    others: &dyn Fn(usize) -> Vec<OsdId>,
) -> Vec<OsdId> {
    let mut want = vec![OsdId::NONE; up.len()];
    let is_ready = |s: &usize| up[*s] != OsdId::NONE && !bound[*s] && whole(up[*s], *s);
    let (ready, needy): (Vec<usize>, Vec<usize>) = (0..up.len()).partition(is_ready);
    for s in needy.iter().copied() {
        want[s] = others(s).into_iter().find(|o| !want.contains(o)).unwrap_or(OsdId::NONE);
    }
    for s in ready {
        let all = std::iter::once(up[s]).chain(others(s));
        if let Some(osd) = all.into_iter().find(|o| !want.contains(o)) {
            want[s] = osd;
            continue;
        }
        // Whoever has this shard was taken for another that CRUSH gives to somebody else.
        if let Some(other) = want.iter_mut().find(|o| **o == up[s]) {
            *other = OsdId::NONE;
        }
        want[s] = up[s];
    }
    // What nobody has is computed for those that CRUSH chose, while they act.
    for s in needy {
        if want[s] == OsdId::NONE && !want.contains(&up[s]) {
            want[s] = up[s];
        }
    }
    want
}

/// Shards whose OSD goes on whatever CRUSH chose: it chose nobody, or one that acts for another such
/// shard, which nobody else could take.
fn bound(up: &[OsdId], acting: &[OsdId]) -> Vec<bool> {
    let there = |s: usize| acting.get(s).is_some_and(|o| *o != OsdId::NONE);
    let mut bound: Vec<bool> = (0..up.len()).map(|s| up[s] == OsdId::NONE && there(s)).collect();
    loop {
        let is_taken = |osd: OsdId| (0..up.len()).any(|t| bound[t] && acting.get(t) == Some(&osd));
        let more = (0..up.len()).find(|s| {
            let moves = there(*s) && acting[*s] != up[*s];
            !bound[*s] && moves && is_taken(up[*s])
        });
        let Some(more) = more else { return bound };
        bound[more] = true;
    }
}

impl Pg {
    /// Whether the OSD that acts for that shard of a PG of an erasure-coded pool goes on, whatever
    /// CRUSH chose.
    pub(in crate::pg) fn is_bound(&self, shard: ShardId) -> bool {
        let at = usize::try_from(shard.0);
        self.is_coded()
            && self.info.up != self.info.acting
            && at.is_ok_and(|s| bound(&self.info.up, &self.info.acting).get(s) == Some(&true))
    }

    /// The acting set of a PG of an erasure-coded pool that serves best, as `pg_temp` names it,
    /// when it is not the present one; empty for what CRUSH chose. `auth` owns the log that counts.
    pub(in crate::pg) fn plan_acting_shards(
        &self,
        infos: &BTreeMap<PgShard, PgInfo>,
        auth: &PgInfo,
        cx: &Cx<'_>,
    ) -> Option<Vec<OsdId>> {
        let (up, acting) = (&self.info.up, &self.info.acting);
        let copy = |osd: OsdId, s: usize| PgShard { osd, shard: ShardId(s as i8) };
        let whole = |osd: OsdId, s: usize| {
            let info = infos.get(&copy(osd, s));
            cx.map.is_up(osd) && info.is_some_and(|i| can_act(i, auth, cx))
        };
        let others = |s: usize| -> Vec<OsdId> {
            let strays = infos.keys().filter(|c| c.shard.0 as usize == s).map(|c| c.osd);
            let acts = acting.get(s).copied().filter(|o| *o != OsdId::NONE);
            acts.into_iter().chain(strays).filter(|o| whole(*o, s)).collect()
        };
        let want = choose(up, &bound(up, acting), &whole, &others);
        if want == *up {
            let has_temp = cx.map.pg_temp.contains_key(&self.id.pg);
            return (has_temp && acting != up).then(Vec::new);
        }
        let count = want.iter().filter(|o| **o != OsdId::NONE).count();
        if want == *acting || count < self.pool.min_size.max(1) {
            return None;
        }
        Some(cx.map.pool(self.id.pg.pool)?.temp_primary_first(&want))
    }

    /// When every shard that CRUSH placed has caught up, those act that it chose; where it chose
    /// nobody, whoever acts goes on.
    pub(in crate::pg) fn maybe_end_shard_temp(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.mono_ms();
        let whole = |c: &PgShard| self.peers.get(c).is_some_and(Peer::has_caught_up);
        let (up, acting) = (&self.info.up, &self.info.acting);
        let bound = bound(up, acting);
        let goes_on = |c: &PgShard| bound[c.shard.0 as usize];
        // A set that an operator named may leave out a shard that CRUSH places: it is void.
        let ready =
            |c: &PgShard| self.acts(c) || self.is_without(c.shard) || goes_on(c) || whole(c);
        let good = self.up_copies().all(|c| ready(&c) && cx.map.is_up(c.osd));
        if !good || now < self.temp_asked_ms + RETRY_MS {
            return;
        }
        let mut want = up.clone();
        for s in (0..want.len()).filter(|s| bound[*s]) {
            want[s] = acting[s];
        }
        let stored = match cx.map.pool(self.id.pg.pool) {
            _ if want == *acting && want != *up => return,
            Some(pool) if want != *up => pool.temp_primary_first(&want),
            _ => Vec::new(),
        };
        self.temp_asked_ms = now;
        cx.want_temp.insert(self.id.pg, stored);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: i32 = OsdId::NONE.0;

    /// Who acts, where `has` are the shards that OSDs have whole, as pairs of OSD and shard.
    fn chosen(up: &[i32], has: &[(i32, usize)]) -> Vec<i32> {
        let up: Vec<OsdId> = up.iter().map(|o| OsdId(*o)).collect();
        let whole = |o: OsdId, s: usize| has.contains(&(o.0, s));
        let of = |s: usize| has.iter().filter(move |h| h.1 == s).map(|h| OsdId(h.0)).collect();
        choose(&up, &vec![false; up.len()], &whole, &of).into_iter().map(|o| o.0).collect()
    }

    /// Also where those that CRUSH chose have what they are chosen for, who cannot be replaced goes
    /// on, or a shard is left without anybody though all that served are there.
    #[test]
    fn no_shard_is_left_without_anybody() {
        let osds = |all: &[i32]| all.iter().map(|o| OsdId(*o)).collect::<Vec<_>>();
        let (up, acting) = (osds(&[2, 1, N, 0, N, 4]), osds(&[5, 6, 2, 1, 0, 4]));
        let of = |s: usize| vec![acting[s]];
        assert_eq!(choose(&up, &bound(&up, &acting), &|_, _| true, &of), acting);
        assert!(choose(&up, &[false; 6], &|_, _| true, &of).contains(&OsdId::NONE));
    }

    /// An OSD that acts for a shard which CRUSH gives to nobody is not free for another, and so on.
    #[test]
    fn who_cannot_be_replaced_goes_on() {
        let osds = |all: &[i32]| all.iter().map(|o| OsdId(*o)).collect::<Vec<_>>();
        let bound = |up: &[i32], acting: &[i32]| bound(&osds(up), &osds(acting));
        assert_eq!(bound(&[0, 1, N], &[0, 1, 2]), [false, false, true]);
        assert_eq!(bound(&[0, 3, N], &[0, 1, 2]), [false, false, true]);
        assert_eq!(bound(&[0, 2, N], &[0, 1, 2]), [false, true, true]);
        assert_eq!(bound(&[1, 2, N], &[0, 1, 2]), [true, true, true]);
        assert_eq!(bound(&[0, 2, 1], &[0, 1, 2]), [false, false, false]);
        assert_eq!(bound(&[0, 1, N], &[0, 1, N]), [false, false, false]);
    }

    #[test]
    fn whoever_has_a_shard_acts_for_it() {
        let old = [(0, 0), (1, 1), (2, 2)];
        assert_eq!(chosen(&[0, 1, 2], &old), [0, 1, 2]);
        // CRUSH finds nobody; somebody without data; two that change places.
        assert_eq!(chosen(&[0, 1, N], &old), [0, 1, 2]);
        assert_eq!(chosen(&[0, 1, 3], &old), [0, 1, 2]);
        assert_eq!(chosen(&[3, N, 4], &old), [0, 1, 2]);
        assert_eq!(chosen(&[0, 2, 1], &old), [0, 1, 2]);
        // What nobody has is computed where CRUSH wants it.
        assert_eq!(chosen(&[0, 1, 3], &old[..2]), [0, 1, 3]);
        assert_eq!(chosen(&[0, 1, N], &old[..2]), [0, 1, N]);
        // It has both shards: the one that nobody else has goes first.
        let both = [(0, 0), (1, 1), (2, 1), (2, 2)];
        assert_eq!(chosen(&[0, 2, 3], &both), [0, 1, 2]);
        assert_eq!(chosen(&[0, 2, 3], &[(0, 0), (2, 1), (2, 2)]), [0, 2, 3]);
    }
}
