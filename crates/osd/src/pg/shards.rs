//! Who holds which copy: in erasure-coded pools an OSD's place in a set is its shard, and
//! places may be empty; in replicated pools all copies are alike.

use maps::PgShard;
use types::{OsdId, ShardId};

use super::Pg;

/// The copies of a set; `coded` says that places count.
pub(crate) fn copies_of(set: &[OsdId], coded: bool) -> impl Iterator<Item = PgShard> + '_ {
    let copy = move |(i, osd): (usize, &OsdId)| PgShard {
        osd: *osd,
        shard: if coded { ShardId(i as i8) } else { ShardId::NONE },
    };
    set.iter().enumerate().map(copy).filter(|c| c.osd != OsdId::NONE)
}

/// The copy that leads.
pub(crate) fn primary_of(set: &[OsdId], primary: OsdId, coded: bool) -> PgShard {
    let shard = ShardId::NONE;
    let mut all = copies_of(set, coded);
    all.find(|c| c.osd == primary).unwrap_or(PgShard { osd: primary, shard })
}

impl Pg {
    /// Whether the pool is erasure-coded.
    pub(crate) fn is_coded(&self) -> bool {
        self.id.shard != ShardId::NONE
    }

    /// This copy, on OSD `me`.
    pub(crate) fn me(&self, me: OsdId) -> PgShard {
        PgShard { osd: me, shard: self.id.shard }
    }

    /// The copies that serve.
    pub(crate) fn acting_copies(&self) -> impl Iterator<Item = PgShard> + '_ {
        copies_of(&self.info.acting, self.is_coded())
    }

    /// The copies that CRUSH chose.
    pub(crate) fn up_copies(&self) -> impl Iterator<Item = PgShard> + '_ {
        copies_of(&self.info.up, self.is_coded())
    }

    /// Whether that copy serves.
    pub(crate) fn acts(&self, c: &PgShard) -> bool {
        self.acting_copies().any(|x| x == *c)
    }

    /// Whether CRUSH chose that copy.
    pub(crate) fn is_chosen(&self, c: &PgShard) -> bool {
        self.up_copies().any(|x| x == *c)
    }

    /// The copy that leads.
    pub(crate) fn primary(&self) -> PgShard {
        primary_of(&self.info.acting, self.info.primary, self.is_coded())
    }

    /// Whether nobody serves for that shard.
    pub(crate) fn is_without(&self, shard: ShardId) -> bool {
        let at = usize::try_from(shard.0);
        at.is_ok_and(|at| self.info.acting.get(at).is_none_or(|o| *o == OsdId::NONE))
    }

    /// Whether that copy leads, and not this one.
    pub(crate) fn is_led_by(&self, c: &PgShard) -> bool {
        !self.leads && self.primary() == *c
    }

    /// How many copies serve.
    pub(crate) fn members(&self) -> usize {
        self.info.acting.iter().filter(|o| **o != OsdId::NONE).count()
    }

    /// Whether as many serve as should.
    pub(crate) fn is_full_sized(&self) -> bool {
        self.members() >= self.pool.size
    }
}
