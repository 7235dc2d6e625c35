//! Whose log a PG goes by, when those who may know have said what they have.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use maps::PgShard;
use messages::{Interval, PgInfo};
use types::Epoch;

/// Who has the log that every acknowledged write is in, and none that nobody can have; `me`
/// when all are alike. `past` are the intervals that may have taken writes; shards of a `coded`
/// pool hold no objects of their own. `Err` is the interval that no copy was activated in of
/// those that have answered.
pub(crate) fn whose_log(
    infos: &BTreeMap<PgShard, &PgInfo>,
    past: &[Interval],
    coded: bool,
    me: PgShard,
) -> Result<PgShard, Epoch> {
    let les = infos.values().map(|i| i.history_les.max(i.last_epoch_started)).max();
    let les = les.unwrap_or_default();
    let started = |i: &PgInfo| i.last_epoch_started >= les;
    // What was acknowledged is on all copies that acted then. Who was only being brought up
    // beside them may know of later writes that nobody has, and may not have heard of those that
    // were acknowledged: one of those that acted says.
    let last = past.iter().find(|i| i.first <= les && les <= i.last);
    let serves = |o: &PgShard, l: &Interval| match coded {
        true => usize::try_from(o.shard.0).is_ok_and(|s| l.acting.get(s) == Some(&o.osd)),
        false => l.acting.contains(&o.osd),
    };
    let acted = |o: &PgShard, i: &PgInfo| started(i) && last.is_some_and(|l| serves(o, l));
    let any_acted = infos.iter().any(|(o, i)| acted(o, i));
    // They bound from below what was acknowledged.
    let bounds = |o: &PgShard, i: &PgInfo| if any_acted { acted(o, i) } else { started(i) };
    let bounding = infos.iter().filter(|(o, i)| bounds(o, i));
    let acceptable = bounding.map(|(_, i)| i.last_update).min().ok_or(les)?;
    // What a shard has beyond it can be taken back, and might not be readable.
    let counts = |o: &PgShard, i: &PgInfo| match coded {
        true => i.last_update == acceptable && started(i),
        false => i.last_update >= acceptable && (!any_acted || acted(o, i)),
    };
    let all = infos.iter().filter(|(o, i)| counts(o, i));
    let best =
        all.max_by_key(|(o, i)| (i.last_update, Reverse(i.log_tail), **o == me, Reverse(**o)));
    Ok(*best.expect("the bound is someone's").0)
}

#[cfg(test)]
mod tests {
    use types::{EVersion, OsdId, ShardId};

    use super::*;

    fn copy(osd: i32) -> PgShard {
        PgShard { osd: OsdId(osd), shard: ShardId::NONE }
    }

    fn info(last_update: u64, log_tail: u64, started: u32) -> PgInfo {
        let v = |version| EVersion { epoch: Epoch(started), version };
        PgInfo {
            last_update: v(last_update),
            log_tail: v(log_tail),
            last_epoch_started: Epoch(started),
            ..PgInfo::default()
        }
    }

    fn acting(first: u32, last: u32, osds: &[i32]) -> Interval {
        let acting: Vec<OsdId> = osds.iter().map(|o| OsdId(*o)).collect();
        Interval {
            first: Epoch(first),
            last: Epoch(last),
            up: acting.clone(),
            primary: acting[0],
            acting,
            maybe_went_rw: true,
        }
    }

    fn chosen(infos: &[(i32, PgInfo)], past: &[Interval], coded: bool) -> Result<i32, u32> {
        let infos = infos.iter().map(|(o, i)| (copy(*o), i)).collect();
        whose_log(&infos, past, coded, copy(9)).map(|o| o.osd.0).map_err(|e| e.0)
    }

    /// What one of those that acted has may have been acknowledged by it and one that is gone.
    #[test]
    fn the_longest_log_counts() {
        let past = [acting(5, 8, &[1, 2, 3])];
        assert_eq!(chosen(&[(1, info(7, 0, 5)), (2, info(9, 0, 5))], &past, false), Ok(2));
        // From equal ones, the one that goes back farthest.
        assert_eq!(chosen(&[(1, info(9, 4, 5)), (2, info(9, 2, 5))], &past, false), Ok(2));
    }

    /// Whoever was left behind has writes of an interval that others have gone on from.
    #[test]
    fn older_intervals_do_not_count() {
        let mut stale = info(9, 0, 4);
        stale.last_update.version = 12;
        let past = [acting(4, 6, &[1, 2]), acting(7, 8, &[2, 3])];
        assert_eq!(chosen(&[(1, stale.clone()), (2, info(9, 0, 7))], &past, false), Ok(2));
        // Who is known to have gone on has to answer.
        let mut told = stale;
        told.history_les = Epoch(7);
        assert_eq!(chosen(&[(1, told)], &past, false), Err(7));
    }

    /// A copy that was being brought up beside those that acted was sent a write that they have
    /// not: it is nobody's, and an object of it would be found nowhere.
    #[test]
    fn who_was_being_brought_up_does_not_count() {
        let past = [acting(5, 8, &[1, 2])];
        let infos = [(1, info(7, 0, 5)), (2, info(7, 0, 5)), (3, info(8, 0, 5))];
        assert_eq!(chosen(&infos, &past, false), Ok(1));
        // It is better than nothing.
        assert_eq!(chosen(&infos[2..], &past, false), Ok(3));
    }

    /// A shard that follows beside the one that acts is not waited for: it may have heard of less
    /// than was acknowledged, though it was activated with the others.
    #[test]
    fn who_follows_a_shard_does_not_count() {
        let past = [acting(5, 8, &[1, 2, 3])];
        let shard = |osd, shard| PgShard { osd: OsdId(osd), shard: ShardId(shard) };
        let infos = [
            (shard(1, 0), info(9, 0, 5)),
            (shard(3, 2), info(9, 0, 5)),
            (shard(4, 2), info(7, 0, 5)),
            (shard(2, 0), info(6, 0, 5)),
        ];
        let all: BTreeMap<PgShard, &PgInfo> = infos.iter().map(|(o, i)| (*o, i)).collect();
        assert_eq!(whose_log(&all, &past, true, shard(1, 0)), Ok(shard(1, 0)));
    }

    /// Of shards, the shortest log of the last interval: fewer than are needed have more.
    #[test]
    fn shards_go_back() {
        let past = [acting(5, 8, &[1, 2, 3])];
        let infos = [(1, info(9, 0, 5)), (2, info(8, 0, 5)), (3, info(9, 0, 5))];
        let shard = |osd: i32| PgShard { osd: OsdId(osd), shard: ShardId(osd as i8 - 1) };
        let all: BTreeMap<PgShard, &PgInfo> = infos.iter().map(|(o, i)| (shard(*o), i)).collect();
        assert_eq!(whose_log(&all, &past, true, shard(1)), Ok(shard(2)));
    }
}
