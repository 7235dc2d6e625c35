//! The map as the values that `osd crush dump` and its kin show; how they are printed is
//! the caller's.

use crate::model::{CrushMap, Op, Rule, Step};

/// A value with its parts, in the order in which they are shown.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A whole number.
    Int(i64),
    /// Single precision.
    Float(f32),
    /// Text.
    Text(String),
    /// Values, each called `item` in formats that give elements names.
    Array {
        /// The name of an element.
        item: &'static str,
        /// The elements.
        values: Vec<Value>,
    },
    /// Named values.
    Object(Vec<(String, Value)>),
}

impl Value {
    fn array(item: &'static str, values: impl IntoIterator<Item = Self>) -> Self {
        Self::Array { item, values: values.into_iter().collect() }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Value {
    fn from(n: i64) -> Self {
        Self::Int(n)
    }
}

impl From<bool> for Value {
    fn from(on: bool) -> Self {
        Self::Int(on.into())
    }
}

/// An object being filled.
#[derive(Default)]
struct Fields(Vec<(String, Value)>);

impl Fields {
    fn put(&mut self, name: impl Into<String>, value: impl Into<Value>) -> &mut Self {
        self.0.push((name.into(), value.into()));
        self
    }

    fn done(&mut self) -> Value {
        Value::Object(std::mem::take(&mut self.0))
    }
}

impl CrushMap {
    /// `osd crush dump`.
    #[must_use]
    pub fn dump(&self) -> Value {
        let device = |id: i32| {
            let mut out = Fields::default();
            out.put("id", i64::from(id));
            let unnamed = format!("device{id}");
            out.put("name", self.names.get(id).unwrap_or(&unnamed));
            if let Some(class) = self.class_name_of(id) {
                out.put("class", class);
            }
            out.done()
        };
        let kind = |(id, name): (i32, &str)| {
            Fields::default().put("type_id", i64::from(id)).put("name", name).done()
        };
        let unnamed = (!self.types.is_empty() && !self.types.contains(0)).then_some((0, "device"));
        let types = unnamed.into_iter().chain(self.types.iter().filter(|(id, _)| *id >= 0));
        Fields::default()
            .put("devices", Value::array("device", (0..self.max_devices).map(device)))
            .put("types", Value::array("type", types.map(kind)))
            .put("buckets", Value::array("bucket", self.buckets().map(|b| self.dump_bucket(b))))
            .put("rules", self.dump_rules())
            .put("tunables", self.dump_tunables())
            .put("choose_args", self.dump_choose_args())
            .done()
    }

    fn dump_bucket(&self, b: &crate::Bucket) -> Value {
        let item = |(pos, id): (usize, &i32)| {
            Fields::default()
                .put("id", i64::from(*id))
                .put("weight", i64::from(b.item_weight(pos) as i32))
                .put("pos", pos as i64)
                .done()
        };
        let mut out = Fields::default();
        out.put("id", i64::from(b.id));
        if let Some(name) = self.names.get(b.id) {
            out.put("name", name);
        }
        out.put("type_id", i64::from(b.kind));
        if let Some(name) = self.type_name(b.kind) {
            out.put("type_name", name);
        }
        let hash = if b.hash == crate::HASH_RJENKINS1 { "rjenkins1" } else { "unknown" };
        out.put("weight", i64::from(b.weight as i32))
            .put("alg", b.alg().name())
            .put("hash", hash)
            .put("items", Value::array("item", b.items.iter().enumerate().map(item)))
            .done()
    }

    /// `osd crush rule dump`, of all rules.
    #[must_use]
    pub fn dump_rules(&self) -> Value {
        Value::array("rule", self.rules().map(|(id, rule)| self.dump_one(id, rule)))
    }

    /// `osd crush rule dump NAME`.
    #[must_use]
    pub fn dump_rule(&self, id: u32) -> Option<Value> {
        self.rule(id).map(|rule| self.dump_one(id, rule))
    }

    fn dump_one(&self, id: u32, rule: &Rule) -> Value {
        let mut out = Fields::default();
        out.put("rule_id", i64::from(id));
        if let Some(name) = self.rule_names.get(id as i32) {
            out.put("rule_name", name);
        }
        out.put("type", i64::from(rule.kind))
            .put("steps", Value::array("step", rule.steps.iter().map(|s| self.dump_step(*s))))
            .done()
    }

    fn dump_step(&self, step: Step) -> Value {
        let mut out = Fields::default();
        let (arg1, arg2) = (i64::from(step.arg1), i64::from(step.arg2));
        let (name, with_type) = match step.known() {
            Some(Op::Noop) => return out.put("op", "noop").done(),
            Some(Op::Emit) => return out.put("op", "emit").done(),
            Some(Op::Take) => {
                let name = self.names.get(step.arg1).unwrap_or("");
                return out.put("op", "take").put("item", arg1).put("item_name", name).done();
            }
            Some(Op::ChooseFirstn) => ("choose_firstn", true),
            Some(Op::ChooseIndep) => ("choose_indep", true),
            Some(Op::ChooseleafFirstn) => ("chooseleaf_firstn", true),
            Some(Op::ChooseleafIndep) => ("chooseleaf_indep", true),
            Some(Op::ChooseMsr) => ("choosemsr", true),
            Some(Op::SetChooseTries) => ("set_choose_tries", false),
            Some(Op::SetChooseleafTries) => ("set_chooseleaf_tries", false),
            Some(Op::SetMsrDescents) => ("set_msr_descents", false),
            Some(Op::SetMsrCollisionTries) => ("set_msr_collision_tries", false),
            _ => {
                let op = i64::from(step.op);
                return out.put("opcode", op).put("arg1", arg1).put("arg2", arg2).done();
            }
        };
        out.put("op", name).put("num", arg1);
        if with_type {
            out.put("type", self.types.get(step.arg2).unwrap_or(""));
        }
        out.done()
    }

    /// `osd crush show-tunables`.
    #[must_use]
    pub fn dump_tunables(&self) -> Value {
        let t = self.tunables();
        let int = |n: u32| i64::from(n as i32);
        Fields::default()
            .put("choose_local_tries", int(t.choose_local_tries))
            .put("choose_local_fallback_tries", int(t.choose_local_fallback_tries))
            .put("choose_total_tries", int(t.choose_total_tries))
            .put("chooseleaf_descend_once", int(t.chooseleaf_descend_once))
            .put("chooseleaf_vary_r", i64::from(t.chooseleaf_vary_r))
            .put("chooseleaf_stable", i64::from(t.chooseleaf_stable))
            .put("msr_descents", int(t.msr_descents))
            .put("msr_collision_tries", int(t.msr_collision_tries))
            .put("straw_calc_version", i64::from(t.straw_calc_version))
            .put("allowed_bucket_algs", i64::from(t.allowed_bucket_algs))
            .put("profile", t.profile_name())
            .put("optimal_tunables", t.is_optimal())
            .put("legacy_tunables", t.is_legacy())
            .put("minimum_required_version", self.min_required_version())
            .put("require_feature_tunables", t.need_tunables())
            .put("require_feature_tunables2", t.need_tunables2())
            .put("has_v2_rules", self.has_v2_rules())
            .put("require_feature_tunables3", t.need_tunables3())
            .put("has_v3_rules", self.has_v3_rules())
            .put("has_v4_buckets", self.has_v4_buckets())
            .put("require_feature_tunables5", t.need_tunables5())
            .put("has_v5_rules", self.has_v5_rules())
            .put("has_msr_rules", self.has_msr_rules())
            .done()
    }

    /// The weight sets.
    #[must_use]
    pub fn dump_choose_args(&self) -> Value {
        let weights = |list: &Vec<u32>| {
            Value::array("weight", list.iter().map(|w| Value::Float(*w as f32 / 65536.0)))
        };
        let arg = |(bucket, arg): (i32, &crate::ChooseArg)| {
            let mut out = Fields::default();
            out.put("bucket_id", i64::from(bucket));
            if !arg.weight_set().is_empty() {
                out.put(
                    "weight_set",
                    Value::array("weights", arg.weight_set().iter().map(weights)),
                );
            }
            if !arg.ids().is_empty() {
                let ids = arg.ids().iter().map(|id| Value::Int(i64::from(*id)));
                out.put("ids", Value::array("id", ids));
            }
            out.done()
        };
        let mut out = Fields::default();
        for (id, args) in &self.choose_args {
            out.put(id.to_string(), Value::array("choose_args", args.iter().map(arg)));
        }
        out.done()
    }
}
