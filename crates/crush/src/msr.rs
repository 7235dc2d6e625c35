//! The mapping of multi-step-retry rules: several devices per failure domain, retried
//! across domains.
//!
//! A block `take, choose_msr..., emit` fills a range of the result. Each choose step
//! divides its range into strides, and no item serves two strides of a range. A device
//! that is out leaves its place open; the whole descent is then tried again, with what
//! was found kept.
//!
//! Source: the peer's `crush/mapper.c`, `crush_msr_*`.

use crate::mapper::{Input, Scratch};
use crate::model::{Bucket, ITEM_NONE, ITEM_UNDEF, Op, RULE_TYPE_MSR_FIRSTN, Rule};

/// What is fixed for a block.
struct Block<'a> {
    input: &'a Input<'a>,
    rule: &'a Rule,
    result_max: usize,
    collision_tries: u32,
    /// Index of the first choose step, and of the emit step.
    first: usize,
    emit: usize,
    try_number: u32,
}

/// What the mapping fills.
struct Space<'a> {
    /// Per choose step of the block, `result_max` items used.
    used: &'a mut [i32],
    undo: &'a mut Vec<(usize, usize, i32)>,
    out: &'a mut [i32],
    returned: usize,
}

pub(crate) fn do_rule(
    input: &Input<'_>,
    rule: &Rule,
    result_max: usize,
    scratch: &mut Scratch,
    out: &mut Vec<i32>,
) {
    let mut descents = input.map.tunables.msr_descents;
    let mut collision_tries = input.map.tunables.msr_collision_tries;
    let mut at = 0;
    for step in &rule.steps {
        match step.known() {
            Some(Op::SetMsrDescents) => descents = step.arg1 as u32,
            Some(Op::SetMsrCollisionTries) => collision_tries = step.arg1 as u32,
            _ => break,
        }
        at += 1;
    }
    out.resize(result_max, ITEM_NONE);
    let mut used = std::mem::take(&mut scratch.from);
    let mut start = 0;
    let mut returned = 0;
    let mut valid = true;
    while at < rule.steps.len() {
        let take = rule.steps[at].arg1;
        let block = scan(rule, result_max, at).filter(|(_, emit)| take < 0 || *emit == at + 1);
        let Some((total, emit)) = block else {
            valid = false;
            break;
        };
        if take >= 0 {
            if start < result_max {
                let to = if rule.kind == RULE_TYPE_MSR_FIRSTN { returned } else { start };
                out[to] = take;
                returned += 1;
                start += 1;
            }
        } else if let Some(root) = input.map.bucket(take).filter(|_| emit > at + 1) {
            used.clear();
            used.resize((emit - at - 1) * result_max, ITEM_UNDEF);
            let end = start.saturating_add(total as usize).min(result_max);
            let limit = returned + (end - start);
            scratch.undo.clear();
            let mut space = Space { used: &mut used, undo: &mut scratch.undo, out, returned };
            let mut block = Block {
                input,
                rule,
                result_max,
                collision_tries,
                first: at + 1,
                emit,
                try_number: 0,
            };
            while block.try_number < descents && space.returned < limit {
                block.choose(&mut space, root, total, (start, end), block.first);
                block.try_number += 1;
            }
            returned = space.returned;
            start = end;
        }
        at = emit + 1;
    }
    scratch.from = used;
    if !valid {
        out.clear();
    } else if rule.kind == RULE_TYPE_MSR_FIRSTN {
        out.truncate(returned);
    }
}

/// The fan-out of the block at `take`, and where its emit step is.
fn scan(rule: &Rule, result_max: usize, take: usize) -> Option<(u32, usize)> {
    if take + 1 >= rule.steps.len() || rule.steps[take].known() != Some(Op::Take) {
        return None;
    }
    let mut total = 1u32;
    for (i, step) in rule.steps.iter().enumerate().skip(take + 1) {
        match step.known() {
            Some(Op::Emit) => return Some((total, i)),
            Some(Op::ChooseMsr) => total = total.wrapping_mul(strides(step.arg1, result_max)),
            _ => return None,
        }
    }
    None
}

fn strides(arg: i32, result_max: usize) -> u32 {
    if arg == 0 { result_max as u32 } else { arg as u32 }
}

impl Block<'_> {
    /// Fills what is open in `out[start..end]` with devices beneath `bucket`, by the step
    /// `stepno` and those after it. Gives how many it filled.
    fn choose(
        &self,
        space: &mut Space<'_>,
        bucket: &Bucket,
        total: u32,
        (start, end): (usize, usize),
        stepno: usize,
    ) -> usize {
        let step = self.rule.steps[stepno];
        let strides = strides(step.arg1, self.result_max);
        if strides == 0 || !total.is_multiple_of(strides) || total < strides {
            return 0;
        }
        let stride = (total / strides) as usize;
        let row = (stepno - self.first) * self.result_max;
        let leaf_row = (self.emit - self.first - 1) * self.result_max;
        let undo = space.undo.len();
        let mut mapped = 0;
        let mut index = 0;
        let mut from = start;
        while from < end {
            let range = (from, from.saturating_add(stride).min(end));
            from = range.1;
            let number = index;
            index += 1;
            if !space.used[leaf_row + range.0..leaf_row + range.1].contains(&ITEM_UNDEF) {
                continue;
            }
            let found = (0..self.collision_tries).find_map(|local| {
                let item = self.descend(bucket, step.arg2, local, number)?;
                let first = space.used[row + start..row + end].iter().position(|u| *u == item);
                let free = first.is_none_or(|i| (range.0..range.1).contains(&(start + i)));
                free.then_some(item)
            });
            let Some(item) = found else { continue };
            if step.arg2 == 0 {
                let last = stepno + 1 == self.emit;
                if stride != 1 || !last || item < 0 || self.input.is_out(item) {
                    continue;
                }
                push_used(&mut space.used[row + range.0..row + range.1], item);
                let firstn = self.rule.kind == RULE_TYPE_MSR_FIRSTN;
                space.out[if firstn { space.returned } else { range.0 }] = item;
                space.returned += 1;
                mapped += 1;
            } else {
                let Some(child) = self.input.map.bucket(item) else { continue };
                if stepno + 1 >= self.emit {
                    continue;
                }
                let below = self.choose(space, child, stride as u32, range, stepno + 1);
                let pushed = push_used(&mut space.used[row + range.0..row + range.1], item);
                if pushed && below == 0 {
                    // Until the end of this pass it still counts as used.
                    space.undo.push((row + range.0, row + range.1, item));
                } else {
                    mapped += below;
                }
            }
        }
        for (from, to, _) in space.undo.drain(undo..) {
            if let Some(last) = space.used[from..to].iter_mut().rfind(|u| **u != ITEM_UNDEF) {
                *last = ITEM_UNDEF;
            }
        }
        mapped
    }

    /// Goes down from `bucket` to a device, or to a bucket of type `kind`.
    fn descend(&self, bucket: &Bucket, kind: i32, local: u32, index: u32) -> Option<i32> {
        let total = self.try_number.wrapping_mul(self.result_max as u32).wrapping_add(index);
        let r = (total << 16).wrapping_add(local);
        let mut at = bucket;
        loop {
            if at.items.is_empty() {
                return None;
            }
            let item = self.input.choose_in(at, r, index as usize);
            if item >= 0 {
                return (item < self.input.map.max_devices).then_some(item);
            }
            at = self.input.map.bucket(item)?;
            if i32::from(at.kind) == kind {
                return Some(item);
            }
        }
    }
}

/// Adds `item` to the set; whether it was not in it.
fn push_used(set: &mut [i32], item: i32) -> bool {
    for u in set {
        if *u == item {
            return false;
        }
        if *u == ITEM_UNDEF {
            *u = item;
            return true;
        }
    }
    false
}
