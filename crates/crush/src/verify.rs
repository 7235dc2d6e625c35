//! Whether placements are what a rule may give: exceptions to it, and what it gives itself.
//!
//! Source: the peer's `CrushWrapper::verify_upmap` and `CrushTester`.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{CrushMap, Op};

/// Inputs that [`CrushMap::smoke_test`] tries with each rule.
const SMOKE_INPUTS: u32 = 50;
/// Copies that [`CrushMap::smoke_test`] asks for at most.
const SMOKE_COPIES: usize = 10;

impl CrushMap {
    /// Whether `osds` of a pool with `size` copies keep what `rule` promises: one at most in each
    /// failure domain, as many domains as are chosen, all beneath the buckets that are taken.
    ///
    /// # Errors
    /// Why not.
    pub fn verify_upmap(&self, rule: u32, size: usize, osds: &[i32]) -> Result<(), String> {
        let Some(rule_steps) = self.rule(rule) else {
            return Err(format!("rule {rule} does not exist"));
        };
        let count = |arg: i32| match usize::try_from(arg) {
            Ok(n) if n > 0 => n,
            _ => size.saturating_sub(arg.unsigned_abs() as usize),
        };
        let parent = |osd: i32, kind: i32| {
            let kind = u16::try_from(kind).ok()?;
            self.parent_of_kind(osd, kind, Some(rule))
        };
        let there = || osds.iter().copied().filter(|osd| *osd >= 0 && *osd != crate::ITEM_NONE);
        let (mut root, mut places, mut at) = (0, 1usize, 0usize);
        for step in &rule_steps.steps {
            match step.known() {
                Some(Op::Take) => root = step.arg1,
                Some(Op::ChooseleafFirstn | Op::ChooseleafIndep) => {
                    places = places.saturating_mul(count(step.arg1));
                    let mut by_domain: BTreeMap<i32, BTreeSet<i32>> = BTreeMap::new();
                    for osd in there() {
                        if let Some(domain) = parent(osd, step.arg2) {
                            by_domain.entry(domain).or_default().insert(osd);
                        }
                    }
                    if let Some((domain, osds)) = by_domain.iter().find(|(_, o)| o.len() > 1) {
                        return Err(format!("osds {osds:?} share the failure domain {domain}"));
                    }
                }
                Some(Op::ChooseFirstn | Op::ChooseIndep) => {
                    places = places.saturating_mul(count(step.arg1));
                    if step.arg2 == 0 {
                        continue;
                    }
                    let domains: BTreeSet<i32> =
                        there().filter_map(|osd| parent(osd, step.arg2)).collect();
                    if domains.len() > count(step.arg1) {
                        return Err(format!("{} buckets are more than chosen", domains.len()));
                    }
                }
                Some(Op::Emit) if !rule_steps.is_msr() => {
                    let end = at.max(osds.len().min(at.saturating_add(places)));
                    let beneath = |osd: &i32| {
                        *osd == crate::ITEM_NONE || root >= 0 || self.subtree_contains(root, *osd)
                    };
                    if let Some(osd) = osds[at..end].iter().find(|osd| !beneath(osd)) {
                        return Err(format!("osd.{osd} is not beneath {root}"));
                    }
                    (at, places, root) = (end, 1, 0);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Tries every rule with some inputs: all that it gives must be devices.
    ///
    /// # Errors
    /// The first rule that gives something else, and what.
    pub fn smoke_test(&self) -> Result<(), String> {
        let weights = vec![0x1_0000; usize::try_from(self.max_devices()).unwrap_or(0)];
        for (id, _) in self.rules() {
            for x in 0..SMOKE_INPUTS {
                let items = self.do_rule(id, x, SMOKE_COPIES, &weights, None);
                if let Some(item) = items.iter().find(|item| **item < 0) {
                    return Err(format!("rule {id} places on item {item}, which is no device"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Location, RULE_TYPE_REPLICATED, Rule, Step};

    /// Hosts h0 { 0, 1 } and h1 { 2 }, rule 1 by host.
    fn map() -> CrushMap {
        let mut map = CrushMap::build_initial(0);
        for (osd, host) in [(0, "h0"), (1, "h0"), (2, "h1")] {
            let at: Location =
                [("host", host), ("root", "default")].map(|(k, v)| (k.into(), v.into())).into();
            map.insert_item(osd, 0x1_0000, &format!("osd.{osd}"), &at, true).unwrap();
        }
        map.add_replicated_rule("byhost", "default", "host", "").unwrap();
        map
    }

    #[test]
    fn one_copy_in_each_domain() {
        let map = map();
        assert_eq!(map.verify_upmap(1, 2, &[0, 2]), Ok(()));
        assert!(map.verify_upmap(1, 2, &[0, 1]).is_err(), "both on one host");
        assert_eq!(map.verify_upmap(0, 2, &[0, 1]), Ok(()), "rule 0 is by device");
        assert!(map.verify_upmap(0, 2, &[0, 9]).is_err(), "beneath no root");
        assert!(map.verify_upmap(7, 2, &[0, 2]).is_err());
    }

    #[test]
    fn a_rule_that_stops_at_hosts_gives_no_devices() {
        let mut map = map();
        assert_eq!(map.smoke_test(), Ok(()));
        let root = map.names().id("default").unwrap();
        let steps = vec![
            Step::new(Op::Take, root, 0),
            Step::new(Op::ChooseFirstn, 0, 1),
            Step::new(Op::Emit, 0, 0),
        ];
        map.add_rule(None, "stopper", Rule::new(RULE_TYPE_REPLICATED, steps)).unwrap();
        assert!(map.smoke_test().is_err());
    }

    /// Straw buckets become straw2 with the same weights.
    #[test]
    fn straws_are_turned() {
        let mut map = map();
        map.tunables_mut().set_profile(crate::Profile::Argonaut);
        let id = map.add_named_bucket("old", "rack").unwrap();
        let at: Location = [("rack".to_owned(), "old".to_owned())].into();
        map.insert_item(3, 0x2_0000, "osd.3", &at, true).unwrap();
        let alg = |map: &CrushMap| map.bucket(id).unwrap().alg();
        assert_eq!(alg(&map), crate::BucketAlg::Straw);
        map.straw_to_straw2();
        assert_eq!(alg(&map), crate::BucketAlg::Straw2);
        assert_eq!(map.bucket(id).unwrap().weight(), 0x2_0000);
    }
}
