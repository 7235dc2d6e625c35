//! `ceph balancer ...`.
//!
//! Source: the peer's `pybind/mgr/balancer/module.py`.

use std::collections::BTreeSet;

use types::PoolId;

use super::manager::as_python;
use super::{EINVAL, ENOENT, EOPNOTSUPP, EPERM, Fail, Run, fail, ok, out};
use crate::balancer::{self, EVEN, MADE, Mode, Options, Plan};
use crate::eval::Eval;
use crate::{BalancerStep, CommandCtx, Mutation, Outcome, Reply};

/// Plans kept; the leader forgets them when it no longer leads.
const PLANS_MAX: usize = 100;

pub(super) fn run(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    let plan = || ctx.cmd.str_or_empty("plan").map(str::to_owned);
    match what {
        "status" => status(ctx),
        "mode" => mode(ctx),
        "on" => set("active", Some("true")),
        "off" => set("active", Some("false")),
        "eval" => eval(ctx, false),
        "eval-verbose" => eval(ctx, true),
        "optimize" => optimize(ctx),
        "ls" => {
            let names: Vec<&String> = ctx.volatile.balancer.plans.keys().collect();
            out(as_python(&serde_json::json!(names)))
        }
        "show" => out(find(ctx, &plan()?)?.show()),
        "dump" => out(as_python(&find(ctx, &plan()?)?.dump())),
        "rm" => step(BalancerStep::Forget(Some(plan()?)), Outcome::ok("")),
        "reset" => step(BalancerStep::Forget(None), Outcome::ok("")),
        "execute" => execute(ctx, &plan()?),
        "pool ls" => pool_ls(ctx),
        "pool add" => pool_change(ctx, true),
        "pool rm" => pool_change(ctx, false),
        _ => Err(fail(EINVAL, "command not known")),
    }
}

fn step(step: BalancerStep, then: Outcome) -> Run {
    Ok(Outcome::Balancer { step: Box::new(step), then: Box::new(then) })
}

fn set(name: &str, value: Option<&str>) -> Run {
    let (who, name) = ("mgr".to_owned(), format!("mgr/balancer/{name}"));
    Ok(Outcome::propose(Mutation::Config { who, name, value: value.map(str::to_owned) }, ""))
}

fn mode(ctx: &CommandCtx<'_>) -> Run {
    let name = ctx.cmd.str_or_empty("mode")?;
    let mode = Mode::parse(name).ok_or_else(|| {
        let why = "it has upmap, read, upmap-read and none";
        fail(EOPNOTSUPP, format!("the balancer has no mode '{name}' here; {why}"))
    })?;
    match mode.lacks(ctx.osdmap()) {
        Some(why) => Err(fail(EPERM, why)),
        None => set("mode", Some(name)),
    }
}

/// In the peer's form, which is the same in every format.
fn status(ctx: &CommandCtx<'_>) -> Run {
    let options = Options::read(&ctx.state.config);
    let b = &ctx.volatile.balancer;
    let began = if b.began.is_zero() { String::new() } else { b.began.to_string() };
    out(as_python(&serde_json::json!({
        "active": options.active,
        "last_optimize_duration": "",
        "last_optimize_started": began,
        "mode": options.mode.name(),
        "no_optimization_needed": b.even,
        "optimize_result": b.result,
        "plans": b.plans.keys().collect::<Vec<_>>(),
    })))
}

fn find<'a>(ctx: &CommandCtx<'a>, name: &str) -> Result<&'a Plan, Fail> {
    let found = ctx.volatile.balancer.plans.get(name);
    found.ok_or_else(|| fail(ENOENT, format!("plan {name} not found")))
}

/// As the peer's language shows a list of texts.
fn listed(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|n| format!("'{n}'")).collect();
    format!("[{}]", names.join(", "))
}

/// The pools that an argument names, or the names that are of none.
fn pools(ctx: &CommandCtx<'_>, says: &str) -> Result<BTreeSet<PoolId>, Fail> {
    let names = if ctx.cmd.has("pools") { ctx.cmd.list("pools")? } else { Vec::new() };
    let map = ctx.osdmap();
    let unknown: Vec<String> =
        names.iter().filter(|n| map.pool_by_name(n).is_none()).cloned().collect();
    if !unknown.is_empty() {
        return Err(fail(EINVAL, format!("{says} {} not found", listed(&unknown))));
    }
    Ok(names.iter().filter_map(|n| map.pool_by_name(n)).collect())
}

fn eval(ctx: &CommandCtx<'_>, verbose: bool) -> Run {
    let (map, pgmap) = (ctx.osdmap(), &ctx.volatile.pgmap);
    let option = ctx.cmd.str_or_empty("option")?;
    if option.is_empty() {
        let all = Eval::new(map, pgmap, &BTreeSet::new());
        return out(all.show("current cluster", verbose));
    }
    if let Some(plan) = ctx.volatile.balancer.plans.get(option) {
        let mut inc = ctx.osd_change();
        plan.put(map, &mut inc);
        let mut after = map.clone();
        let items = std::sync::Arc::make_mut(&mut after.pg_upmap_items);
        items.extend(inc.new_pg_upmap_items);
        items.retain(|pg, _| !inc.old_pg_upmap_items.contains(pg));
        let eval = Eval::new(&after, pgmap, &plan.pools);
        return out(eval.show(&format!("plan \"{option}\""), verbose));
    }
    let Some(pool) = map.pool_by_name(option) else {
        return Err(fail(EINVAL, format!("option \"{option}\" not a plan or a pool")));
    };
    let eval = Eval::new(map, pgmap, &BTreeSet::from([pool]));
    out(eval.show(&format!("pool \"{option}\""), verbose))
}

fn optimize(ctx: &CommandCtx<'_>) -> Run {
    let name = ctx.cmd.need_str("plan")?;
    let options = Options::read(&ctx.state.config);
    if options.active {
        return Err(fail(EINVAL, "Balancer enabled, disable to optimize manually"));
    }
    let plans = &ctx.volatile.balancer.plans;
    if plans.len() >= PLANS_MAX && !plans.contains_key(name) {
        return Err(fail(EINVAL, format!("{PLANS_MAX} plans are there already")));
    }
    let pools = pools(ctx, "pools")?;
    let pgmap = &ctx.volatile.pgmap;
    match balancer::optimize(name, ctx.osdmap(), pgmap, &options, &pools, MISPLACED_MAX) {
        Ok(plan) => {
            let result = MADE.to_owned();
            step(BalancerStep::Keep { plan: Some(plan), result, even: false }, Outcome::ok(""))
        }
        Err((errno, why)) => {
            let even = why == EVEN;
            let keep = BalancerStep::Keep { plan: None, result: why.clone(), even };
            step(keep, Outcome::Reply(Reply::err(errno, why)))
        }
    }
}

/// `target_max_misplaced_ratio`, by default.
const MISPLACED_MAX: f64 = 0.05;

fn execute(ctx: &CommandCtx<'_>, name: &str) -> Run {
    if Options::read(&ctx.state.config).active {
        return Err(fail(EINVAL, "Balancer enabled, disable to execute a plan"));
    }
    let mut inc = ctx.osd_change();
    find(ctx, name)?.put(ctx.osdmap(), &mut inc);
    let then = Outcome::propose(Mutation::Osd(Box::new(inc)), "");
    step(BalancerStep::Forget(Some(name.to_owned())), then)
}

fn pool_ls(ctx: &CommandCtx<'_>) -> Run {
    let ids = Options::read(&ctx.state.config).pools;
    if ids.is_empty() {
        return ok("");
    }
    let mut names: Vec<&String> =
        ids.iter().filter_map(|id| ctx.osdmap().pool_names.get(id)).collect();
    names.sort();
    out(as_python(&serde_json::json!(names)))
}

fn pool_change(ctx: &CommandCtx<'_>, add: bool) -> Run {
    let mut ids = Options::read(&ctx.state.config).pools;
    ids.retain(|id| ctx.osdmap().pools.contains_key(id));
    if add {
        ids.extend(pools(ctx, "pool(s)")?);
    } else {
        for name in ctx.cmd.list("pools")? {
            ctx.osdmap().pool_by_name(&name).map(|id| ids.remove(&id));
        }
    }
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    set("pool_ids", (!ids.is_empty()).then(|| ids.join(",")).as_deref())
}
