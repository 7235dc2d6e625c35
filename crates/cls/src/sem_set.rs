//! `sem_set`: counters by name. A counter at zero is not there; none goes down twice within
//! a caller's time of grace.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use types::{Errno, OpResult, UTime};

use crate::keys::{answer, key, read, read_if, write};
use crate::{Class, DONE, Object, READS, Reply, WRITES, method, params, record, stored};

pub(crate) const CLASS: Class = Class {
    name: "sem_set",
    methods: &[
        method("increment", READS | WRITES, increment),
        method("decrement", READS | WRITES, decrement),
        method("reset", READS | WRITES, reset),
        method("list", READS, list),
    ],
};

const PREFIX: &[u8] = b"CLS_SEM_SET_";
const KEYS_MAX: usize = 1000;
/// Counters of one answer, so that a listing ends.
const LISTED_MAX: u64 = 64 << 10;

record! {
    /// Times that were never set are zero.
    Counter(1, 1) { value: u64, last_decrement: UTime, }
}
record! { IncrementOp(1, 1) { keys: BTreeSet<Bytes>, } }
record! { DecrementOp(1, 1) { keys: BTreeSet<Bytes>, grace: UTime, } }
record! { ResetOp(1, 1) { values: BTreeMap<Bytes, u64>, } }
record! { ListOp(1, 1) { count: u64, cursor: Bytes, } }
record! { ListRet(1, 1) { values: BTreeMap<Bytes, u64>, cursor: Bytes, } }

fn check_count(count: usize) -> OpResult<()> {
    if count > KEYS_MAX { Err(Errno::TOOBIG) } else { Ok(()) }
}

fn increment(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: IncrementOp = params(input)?;
    check_count(op.keys.len())?;
    for name in &op.keys {
        let key = key(PREFIX, name);
        let mut counter: Counter = read_if(o, &key)?.unwrap_or_default();
        counter.value = counter.value.wrapping_add(1);
        write(o, &key, &counter)?;
    }
    Ok(DONE)
}

fn decrement(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: DecrementOp = params(input)?;
    check_count(op.keys.len())?;
    let now = o.now();
    for name in &op.keys {
        let key = key(PREFIX, name);
        let mut counter: Counter = read(o, &key)?;
        let last = counter.last_decrement;
        if now < last || now.nanos() - last.nanos() < op.grace.nanos() {
            continue;
        }
        if counter.value > 1 {
            counter.value -= 1;
            counter.last_decrement = now;
            write(o, &key, &counter)?;
        } else {
            o.omap_rm(vec![key])?;
        }
    }
    Ok(DONE)
}

fn reset(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ResetOp = params(input)?;
    check_count(op.values.len())?;
    for (name, value) in op.values {
        write(o, &key(PREFIX, &name), &Counter { value, last_decrement: UTime::ZERO })?;
    }
    Ok(DONE)
}

fn list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ListOp = params(input)?;
    let mut left = op.count.min(LISTED_MAX);
    let mut ret = ListRet { cursor: op.cursor, ..ListRet::default() };
    while left > 0 {
        let after = [PREFIX, &ret.cursor, b"\x01"].concat();
        let (pairs, more) = o.omap_page(&after, PREFIX, left)?;
        left = left.saturating_sub(pairs.len() as u64);
        let is_empty = pairs.is_empty();
        for (key, value) in pairs {
            let name = key.slice(PREFIX.len()..);
            ret.values.insert(name.clone(), stored::<Counter>(&value)?.value);
            ret.cursor = name;
        }
        if !more || is_empty {
            ret.cursor = Bytes::new();
            break;
        }
    }
    answer(&ret)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Mem, bytes};

    fn values(o: &mut Mem, count: u64, cursor: &str) -> (Vec<(String, u64)>, Bytes) {
        let op = ListOp { count, cursor: bytes(cursor) };
        let ret: ListRet = o.ask("sem_set", "list", &op).unwrap();
        let text = |b: &Bytes| String::from_utf8(b.to_vec()).unwrap();
        (ret.values.iter().map(|(k, v)| (text(k), *v)).collect(), ret.cursor)
    }

    fn keys(names: &[&str]) -> BTreeSet<Bytes> {
        names.iter().map(|name| bytes(name)).collect()
    }

    #[test]
    fn counters_go_up_and_down() {
        let mut o = Mem::created();
        o.run("sem_set", "increment", &IncrementOp { keys: keys(&["a", "b"]) }).unwrap();
        o.run("sem_set", "increment", &IncrementOp { keys: keys(&["a"]) }).unwrap();
        assert_eq!(values(&mut o, 9, "").0, [("a".into(), 2), ("b".into(), 1)]);
        let (page, cursor) = values(&mut o, 1, "");
        assert_eq!((page.len(), &cursor[..]), (1, &b"a"[..]));
        assert_eq!(values(&mut o, 1, "a"), (vec![("b".into(), 1)], Bytes::new()));
        // Ten seconds of grace: the first goes down, the second is too early.
        let op = DecrementOp { keys: keys(&["a"]), grace: UTime { sec: 10, nsec: 0 } };
        let reset_to = ResetOp { values: BTreeMap::from([(bytes("a"), 3)]) };
        o.run("sem_set", "reset", &reset_to).unwrap();
        o.run("sem_set", "decrement", &op).unwrap();
        o.run("sem_set", "decrement", &op).unwrap();
        assert_eq!(values(&mut o, 9, "").0[0], ("a".into(), 2));
        o.now.sec -= 5;
        o.run("sem_set", "decrement", &op).unwrap();
        assert_eq!(values(&mut o, 9, "").0[0], ("a".into(), 2), "time went back");
        // At one it goes.
        let op = DecrementOp { keys: keys(&["b"]), grace: UTime::ZERO };
        o.run("sem_set", "decrement", &op).unwrap();
        assert_eq!(o.run("sem_set", "decrement", &op), Err(Errno::NOENT));
        let many: BTreeSet<Bytes> = (0..=KEYS_MAX).map(|n| n.to_string().into()).collect();
        let op = IncrementOp { keys: many };
        assert_eq!(o.run("sem_set", "increment", &op), Err(Errno::TOOBIG));
        o.refuses_short_input("sem_set", &["increment", "decrement", "reset", "list"]);
    }
}
