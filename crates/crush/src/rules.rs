//! Making, naming and dropping rules.

use crate::error::{CrushError, ErrorKind};
use crate::model::{
    CrushMap, Op, RULE_TYPE_ERASURE, RULE_TYPE_MSR_FIRSTN, RULE_TYPE_MSR_INDEP,
    RULE_TYPE_REPLICATED, Rule, Step,
};

/// What a rule is to spread over.
#[derive(Debug, Clone, Copy)]
pub struct Spread<'a> {
    /// The bucket to begin with.
    pub root: &'a str,
    /// The type of bucket that takes one replica each; empty for devices.
    pub failure_domain: &'a str,
    /// How many of them; 0 for as many as the pool needs.
    pub failure_domains: i32,
    /// Only devices of this class; empty for all.
    pub class: &'a str,
}

impl CrushMap {
    /// Adds a rule as it is, in slot `id` or in the first free one, and gives its id.
    ///
    /// # Errors
    /// `EEXIST` for a slot or name in use; `EINVAL` beyond 256 rules.
    pub fn add_rule(&mut self, id: Option<u32>, name: &str, rule: Rule) -> Result<u32, CrushError> {
        if self.rule_names.id(name).is_some() {
            return Err(CrushError::new(ErrorKind::Exists, format!("rule {name} exists")));
        }
        if let Some(id) = id.filter(|id| self.rule(*id).is_some()) {
            let message = format!("rule with ruleno {id} exists");
            return Err(CrushError::new(ErrorKind::Exists, message));
        }
        let id = self.place_rule(id, rule)?;
        self.rule_names.set(id as i32, name);
        Ok(id)
    }

    /// A rule that spreads over buckets of a type: `firstn` for replicas, `indep` (with
    /// `positional`) for shards.
    ///
    /// # Errors
    /// `EEXIST` for a name in use, `ENOENT` for an unknown root, `EINVAL` for an unknown
    /// type or class.
    pub fn add_simple_rule(
        &mut self,
        name: &str,
        spread: Spread<'_>,
        positional: bool,
        kind: u8,
    ) -> Result<u32, CrushError> {
        let (root, domain) = self.resolve(name, spread)?;
        let op = match (positional, domain) {
            (false, 0) => Op::ChooseFirstn,
            (false, _) => Op::ChooseleafFirstn,
            (true, 0) => Op::ChooseIndep,
            (true, _) => Op::ChooseleafIndep,
        };
        let mut steps = Vec::new();
        if positional {
            steps.push(Step::new(Op::SetChooseleafTries, 5, 0));
            steps.push(Step::new(Op::SetChooseTries, 100, 0));
        }
        steps.push(Step::new(Op::Take, root, 0));
        steps.push(Step::new(op, spread.failure_domains.max(0), domain));
        steps.push(Step::new(Op::Emit, 0, 0));
        self.add_rule(None, name, Rule::new(kind, steps))
    }

    /// The rule of `osd crush rule create-replicated`.
    ///
    /// # Errors
    /// Those of [`CrushMap::add_simple_rule`].
    pub fn add_replicated_rule(
        &mut self,
        name: &str,
        root: &str,
        failure_domain: &str,
        class: &str,
    ) -> Result<u32, CrushError> {
        let spread = Spread { root, failure_domain, failure_domains: 0, class };
        self.add_simple_rule(name, spread, false, RULE_TYPE_REPLICATED)
    }

    /// The rule of `osd crush rule create-erasure`: one shard in each failure domain, or
    /// several (`osds_per_failure_domain` above 1) by an MSR rule.
    ///
    /// # Errors
    /// Those of [`CrushMap::add_simple_rule`]; `EINVAL` for several shards per domain
    /// without a number of domains.
    pub fn add_erasure_rule(
        &mut self,
        name: &str,
        spread: Spread<'_>,
        osds_per_failure_domain: i32,
    ) -> Result<u32, CrushError> {
        if osds_per_failure_domain <= 1 {
            return self.add_simple_rule(name, spread, true, RULE_TYPE_ERASURE);
        }
        if spread.failure_domains < 1 {
            return Err(CrushError::new(
                ErrorKind::Invalid,
                "crush-num-failure-domains must be >= 1 if crush-osds-per-failure-domain \
                 specified",
            ));
        }
        self.add_msr_rule(name, spread, osds_per_failure_domain, RULE_TYPE_MSR_INDEP)
    }

    /// An MSR rule with several devices in each failure domain.
    ///
    /// # Errors
    /// Those of [`CrushMap::add_simple_rule`]; `EINVAL` for a kind that is not MSR.
    pub fn add_msr_rule(
        &mut self,
        name: &str,
        spread: Spread<'_>,
        osds_per_failure_domain: i32,
        kind: u8,
    ) -> Result<u32, CrushError> {
        let (root, domain) = self.resolve(name, spread)?;
        if !matches!(kind, RULE_TYPE_MSR_INDEP | RULE_TYPE_MSR_FIRSTN) {
            let message = format!("unknown rule_type {kind}");
            return Err(CrushError::new(ErrorKind::Invalid, message));
        }
        let steps = vec![
            Step::new(Op::Take, root, 0),
            Step::new(Op::ChooseMsr, spread.failure_domains, domain),
            Step::new(Op::ChooseMsr, osds_per_failure_domain, 0),
            Step::new(Op::Emit, 0, 0),
        ];
        self.add_rule(None, name, Rule::new(kind, steps))
    }

    /// The bucket to take and the type to choose.
    fn resolve(&self, name: &str, spread: Spread<'_>) -> Result<(i32, i32), CrushError> {
        let fail = |kind, message: String| Err(CrushError::new(kind, message));
        if self.rule_names.id(name).is_some() {
            return fail(ErrorKind::Exists, format!("rule {name} exists"));
        }
        let Some(root) = self.names.id(spread.root) else {
            return fail(ErrorKind::NotFound, format!("root item {} does not exist", spread.root));
        };
        let domain = match spread.failure_domain {
            "" => 0,
            name => match self.types.id(name) {
                Some(domain) => domain,
                None => return fail(ErrorKind::Invalid, format!("unknown type {name}")),
            },
        };
        if spread.class.is_empty() {
            return Ok((root, domain));
        }
        let Some(class) = self.class_names.id(spread.class) else {
            let message = format!("device class {} does not exist", spread.class);
            return fail(ErrorKind::Invalid, message);
        };
        match self.class_buckets.get(&root).and_then(|classes| classes.get(&class)) {
            Some(shadow) => Ok((*shadow, domain)),
            None => {
                let message =
                    format!("root {} has no devices with class {}", spread.root, spread.class);
                fail(ErrorKind::Invalid, message)
            }
        }
    }

    /// Drops a rule.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn remove_rule(&mut self, id: u32) -> Result<(), CrushError> {
        if self.rule(id).is_none() {
            return Err(CrushError::new(ErrorKind::NotFound, format!("rule {id} does not exist")));
        }
        self.rules[id as usize] = None;
        self.rule_names.remove(id as i32);
        self.rebuild_roots_with_classes()
    }

    /// Renames a rule.
    ///
    /// # Errors
    /// `ENOENT` and `EEXIST`.
    pub fn rename_rule(&mut self, from: &str, to: &str) -> Result<(), CrushError> {
        let Some(id) = self.rule_names.id(from) else {
            let message = format!("source rule name '{from}' does not exist");
            return Err(CrushError::new(ErrorKind::NotFound, message));
        };
        if self.rule_names.id(to).is_some() {
            let message = format!("destination rule name '{to}' already exists");
            return Err(CrushError::new(ErrorKind::Exists, message));
        }
        self.rule_names.set(id, to);
        Ok(())
    }
}
