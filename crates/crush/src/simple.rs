//! The map a new cluster begins with.

use crate::error::CrushError;
use crate::model::{Bucket, BucketAlg, CrushMap, Op, RULE_TYPE_REPLICATED, Rule, Step, Weights};

/// The types of a new map, by number.
pub const DEFAULT_TYPES: [&str; 12] = [
    "osd",
    "host",
    "chassis",
    "rack",
    "row",
    "pdu",
    "pod",
    "room",
    "datacenter",
    "zone",
    "region",
    "root",
];

impl CrushMap {
    /// What `ceph-mon --mkfs` makes: the default types, an empty root `default` with id
    /// -1, and the rule `replicated_rule` (id 0), which spreads replicas over buckets of
    /// type `chooseleaf_kind`: 1 for hosts, 0 for OSDs (`osd_crush_chooseleaf_type`).
    #[must_use]
    pub fn build_initial(chooseleaf_kind: u16) -> Self {
        let mut map =
            Self { types: (0..).zip(DEFAULT_TYPES.map(String::from)).collect(), ..Self::default() };
        let root = Bucket {
            id: -1,
            kind: 11,
            hash: 0,
            weight: 0,
            items: Vec::new(),
            weights: Weights::Straw2 { items: Vec::new() },
        };
        debug_assert_eq!(root.alg(), BucketAlg::Straw2);
        map.place_bucket(-1, root).expect("the map is empty");
        map.names.set(-1, "default");
        let choose = if chooseleaf_kind == 0 { Op::ChooseFirstn } else { Op::ChooseleafFirstn };
        let steps = vec![
            Step::new(Op::Take, -1, 0),
            Step::new(choose, 0, chooseleaf_kind.into()),
            Step::new(Op::Emit, 0, 0),
        ];
        map.place_rule(None, Rule::new(RULE_TYPE_REPLICATED, steps)).expect("the map is empty");
        map.rule_names.set(0, "replicated_rule");
        map
    }

    /// [`CrushMap::build_initial`] with OSDs in it, all on `host`, weights 16.16. The rule
    /// chooses hosts, or OSDs with `over_osds`.
    ///
    /// # Errors
    /// `ERANGE` when the weights do not add up in 16.16; `EINVAL` for negative ids.
    pub fn build_simple(
        host: &str,
        osds: &[(i32, u32)],
        over_osds: bool,
    ) -> Result<Self, CrushError> {
        let mut map = Self::build_initial(u16::from(!over_osds));
        if osds.is_empty() {
            return Ok(map);
        }
        let bucket = Bucket::new(BucketAlg::Straw2, 0, 1, osds, 1)?;
        let weight = bucket.weight;
        let id = map.place_bucket(0, bucket)?;
        map.names.set(id, host);
        for (osd, _) in osds {
            if !(0..crate::DEVICES_MAX).contains(osd) {
                return Err(CrushError::new(crate::ErrorKind::Invalid, "OSD id out of range"));
            }
            map.names.set(*osd, format!("osd.{osd}"));
        }
        map.bucket_mut(-1).expect("made above").add_item(id, weight, 1)?;
        map.finalize();
        Ok(map)
    }
}
