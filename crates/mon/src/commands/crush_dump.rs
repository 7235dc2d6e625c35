//! The CRUSH map as fields. Source: the peer's `CrushWrapper::dump*`.

use cli::Formatter;
use crush::{CrushMap, Op, Profile, Tunables};
use maps::OsdMap;

use super::weight_float;

/// One rule.
pub(super) fn rule(f: &mut Formatter, map: &CrushMap, id: u32) {
    let Some(rule) = map.rule(id) else { return };
    f.object("rule", |f| {
        f.int("rule_id", id);
        if let Some(name) = map.rule_names().get(id as i32) {
            f.string("rule_name", name);
        }
        f.int("type", rule.kind);
        f.array("steps", |f| {
            for step in &rule.steps {
                f.object("step", |f| one_step(f, map, step));
            }
        });
    });
}

fn one_step(f: &mut Formatter, map: &CrushMap, step: &crush::Step) {
    let kind = |n: i32| {
        let name = u16::try_from(n).ok().and_then(|k| map.type_name(k));
        name.unwrap_or("unknown").to_owned()
    };
    let choose = |f: &mut Formatter, op: &str| {
        f.string("op", op);
        f.int("num", step.arg1);
        f.string("type", kind(step.arg2));
    };
    let number = |f: &mut Formatter, op: &str| {
        f.string("op", op);
        f.int("num", step.arg1);
    };
    match step.known() {
        Some(Op::Noop) => f.string("op", "noop"),
        Some(Op::Take) => {
            f.string("op", "take");
            f.int("item", step.arg1);
            f.string("item_name", map.names().get(step.arg1).unwrap_or(""));
        }
        Some(Op::Emit) => f.string("op", "emit"),
        Some(Op::ChooseFirstn) => choose(f, "choose_firstn"),
        Some(Op::ChooseIndep) => choose(f, "choose_indep"),
        Some(Op::ChooseleafFirstn) => choose(f, "chooseleaf_firstn"),
        Some(Op::ChooseleafIndep) => choose(f, "chooseleaf_indep"),
        Some(Op::ChooseMsr) => choose(f, "choosemsr"),
        Some(Op::SetChooseTries) => number(f, "set_choose_tries"),
        Some(Op::SetChooseleafTries) => number(f, "set_chooseleaf_tries"),
        _ => {
            f.int("opcode", step.op);
            f.int("arg1", step.arg1);
            f.int("arg2", step.arg2);
        }
    }
}

fn is_profile(t: &Tunables, profile: Profile) -> bool {
    let mut other = *t;
    other.set_profile(profile);
    other == *t
}

/// The tunables and what they mean for clients.
pub(super) fn tunables(f: &mut Formatter, map: &CrushMap) {
    let t = map.tunables();
    f.int("choose_local_tries", t.choose_local_tries);
    f.int("choose_local_fallback_tries", t.choose_local_fallback_tries);
    f.int("choose_total_tries", t.choose_total_tries);
    f.int("chooseleaf_descend_once", t.chooseleaf_descend_once);
    f.int("chooseleaf_vary_r", t.chooseleaf_vary_r);
    f.int("chooseleaf_stable", t.chooseleaf_stable);
    f.int("msr_descents", t.msr_descents);
    f.int("msr_collision_tries", t.msr_collision_tries);
    f.int("straw_calc_version", t.straw_calc_version);
    f.int("allowed_bucket_algs", t.allowed_bucket_algs);
    let profiles = [
        ("jewel", Profile::Jewel),
        ("hammer", Profile::Hammer),
        ("firefly", Profile::Firefly),
        ("bobtail", Profile::Bobtail),
        ("argonaut", Profile::Argonaut),
    ];
    let profile = profiles.iter().find(|(_, p)| is_profile(t, *p)).map_or("unknown", |p| p.0);
    f.string("profile", profile);
    f.int("optimal_tunables", i32::from(profile == "jewel"));
    f.int("legacy_tunables", i32::from(profile == "argonaut"));
    let v5 = t.chooseleaf_stable != 0;
    let v4 = map.buckets().any(|b| b.alg() == crush::BucketAlg::Straw2);
    let v3 = t.chooseleaf_vary_r != 0;
    let v2 = t.chooseleaf_descend_once != 0;
    let v1 = t.choose_local_tries != 2
        || t.choose_local_fallback_tries != 5
        || t.choose_total_tries != 19;
    let uses = |ops: &[Op]| {
        map.rules()
            .any(|(_, r)| r.steps.iter().any(|s| s.known().is_some_and(|o| ops.contains(&o))))
    };
    let indep =
        uses(&[Op::ChooseIndep, Op::ChooseleafIndep, Op::SetChooseTries, Op::SetChooseleafTries]);
    let needs = if v5 {
        "jewel"
    } else if v4 {
        "hammer"
    } else if v3 {
        "firefly"
    } else if v2 || v1 {
        "bobtail"
    } else {
        "argonaut"
    };
    f.string("minimum_required_version", needs);
    f.int("require_feature_tunables", i32::from(v1));
    f.int("require_feature_tunables2", i32::from(v2));
    f.int("has_v2_rules", i32::from(indep));
    f.int("require_feature_tunables3", i32::from(v3));
    f.int("has_v3_rules", i32::from(uses(&[Op::SetChooseleafVaryR])));
    f.int("has_v4_buckets", i32::from(v4));
    f.int("require_feature_tunables5", i32::from(v5));
    f.int("has_v5_rules", i32::from(uses(&[Op::SetChooseleafStable])));
    f.int("has_msr_rules", i32::from(map.rules().any(|(_, r)| r.is_msr())));
}

/// All weight sets, by id.
pub(super) fn choose_args(f: &mut Formatter, map: &CrushMap) {
    for (set, args) in map.choose_args() {
        f.array(&set.to_string(), |f| {
            for (bucket, arg) in args.iter() {
                if arg.is_empty() {
                    continue;
                }
                f.object("choose_args", |f| {
                    f.int("bucket_id", bucket);
                    if !arg.weight_set().is_empty() {
                        f.array("weight_set", |f| {
                            for weights in arg.weight_set() {
                                f.array("weights", |f| {
                                    for weight in weights {
                                        f.float("weight", weight_float(*weight));
                                    }
                                });
                            }
                        });
                    }
                    if !arg.ids().is_empty() {
                        f.array("ids", |f| {
                            for id in arg.ids() {
                                f.int("id", *id);
                            }
                        });
                    }
                });
            }
        });
    }
}

/// The whole map.
pub(super) fn all(f: &mut Formatter, osdmap: &OsdMap) {
    let map: &CrushMap = &osdmap.crush;
    f.array("devices", |f| {
        for id in 0..map.max_devices() {
            f.object("device", |f| {
                f.int("id", id);
                let name = map.names().get(id).map_or_else(|| format!("device{id}"), str::to_owned);
                f.string("name", name);
                if let Some(class) = map.class_name_of(id) {
                    f.string("class", class);
                }
            });
        }
    });
    f.array("types", |f| {
        for (id, name) in map.types().iter() {
            f.object("type", |f| {
                f.int("type_id", id);
                f.string("name", name);
            });
        }
    });
    f.array("buckets", |f| {
        for bucket in map.buckets() {
            f.object("bucket", |f| {
                f.int("id", bucket.id());
                if let Some(name) = map.names().get(bucket.id()) {
                    f.string("name", name);
                }
                f.int("type_id", bucket.kind());
                if let Some(name) = map.type_name(bucket.kind()) {
                    f.string("type_name", name);
                }
                f.int("weight", bucket.weight());
                f.string("alg", bucket.alg().name());
                f.string("hash", if bucket.hash() == 0 { "rjenkins1" } else { "unknown" });
                f.array("items", |f| {
                    for (pos, item) in bucket.items().iter().enumerate() {
                        f.object("item", |f| {
                            f.int("id", *item);
                            f.int("weight", bucket.item_weight(pos));
                            f.len("pos", pos);
                        });
                    }
                });
            });
        }
    });
    f.array("rules", |f| {
        for (id, _) in map.rules() {
            rule(f, map, id);
        }
    });
    f.object("tunables", |f| tunables(f, map));
    f.object("choose_args", |f| choose_args(f, map));
}
