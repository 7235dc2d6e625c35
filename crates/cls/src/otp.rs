//! `otp`: one time passwords by time (TOTP, RFC 6238 with SHA-1), as the S3 gateway asks
//! for when it deletes with a second factor.
//!
//! A check leaves its result in the object and says nothing; the caller then asks for the
//! result by its token: a method that fails would leave nothing behind.

use std::collections::BTreeSet;

use aws_lc_rs::hmac;
use bytes::Bytes;
use types::{Errno, OpResult, UTime};

use crate::keys::{answer, key, read, read_if, remove_if, write};
use crate::{Class, DONE, Object, READS, Reply, WRITES, method, params, record};

pub(crate) const CLASS: Class = Class {
    name: "otp",
    methods: &[
        method("otp_set", READS | WRITES, set),
        method("otp_get", READS, get),
        method("otp_check", READS | WRITES, check),
        method("otp_get_result", READS, result),
        method("otp_remove", READS | WRITES, remove),
        method("get_current_time", READS, |o, _| answer(&Time { time: o.now() })),
    ],
};

const HEADER: &[u8] = b"header";
const PREFIX: &[u8] = b"otp/";
/// Checks within one step.
const ATTEMPTS_MAX: usize = 5;
/// Steps that are tried on either side; the peer has no bound.
const WINDOW_MAX: u32 = 1000;

const SEED_BASE32: u8 = 2;
const UNKNOWN: u8 = 0;
const SUCCESS: u8 = 1;
const FAIL: u8 = 2;

record! {
    /// `otp_info_t`; the seed as text, and as bytes once it is stored.
    Info(1, 1) {
        kind: u8,
        id: Bytes,
        seed: Bytes,
        seed_kind: u8,
        seed_raw: Bytes,
        time_ofs: i32,
        step_s: u32,
        window: u32,
    }
}
record! {
    /// `otp_check_t`.
    Check(1, 1) { token: Bytes, time: UTime, result: u8, }
}
record! {
    /// `otp_instance`, under `otp/ID`.
    Instance(1, 1) { otp: Info, checks: Vec<Check>, last_success: u64, }
}
record! {
    /// `otp_header`, under `header`.
    Header(1, 1) { ids: BTreeSet<Bytes>, }
}
record! { SetOp(1, 1) { entries: Vec<Info>, } }
record! { CheckOp(1, 1) { id: Bytes, value: Bytes, token: Bytes, } }
record! { Ids(1, 1) { ids: Vec<Bytes>, } }
record! { GetOp(1, 1) { all: bool, ids: Vec<Bytes>, } }
record! { Found(1, 1) { entries: Vec<Info>, } }
record! { ResultRet(1, 1) { check: Check, } }
record! { Time(1, 1) { time: UTime, } }

fn header(o: &mut dyn Object) -> OpResult<Header> {
    Ok(read_if(o, HEADER)?.unwrap_or_default())
}

/// A seed's bytes: base32 (RFC 4648, blanks passed over), else hex.
fn parse_seed(seed: &[u8], kind: u8) -> Option<Bytes> {
    if kind != SEED_BASE32 {
        let digit = |b: u8| char::from(b).to_digit(16);
        let pair = |pair: &[u8]| Some((digit(pair[0])? << 4 | digit(*pair.get(1)?)?) as u8);
        return seed.chunks(2).map(pair).collect::<Option<Vec<u8>>>().map(Bytes::from);
    }
    let (mut bits, mut held, mut raw) = (0u32, 0, Vec::new());
    for &byte in seed.trim_ascii_end() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a',
            b'2'..=b'7' => byte - b'2' + 26,
            b' ' | b'-' | b'=' => continue,
            _ => return None,
        };
        bits = (bits << 5 | u32::from(value)) & 0xfff;
        held += 5;
        if held >= 8 {
            held -= 8;
            raw.push((bits >> held) as u8);
        }
    }
    Some(raw.into())
}

/// The password of a step, `digits` of it. RFC 4226.
fn password(seed: &[u8], step: u64, digits: usize) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, seed);
    let mac = hmac::sign(&key, &step.to_be_bytes());
    let mac = mac.as_ref();
    let at = usize::from(mac[19] & 15);
    let word = u32::from_be_bytes([mac[at] & 0x7f, mac[at + 1], mac[at + 2], mac[at + 3]]);
    format!("{:0digits$}", u64::from(word) % 10u64.pow(digits as u32))
}

impl Instance {
    fn trim(&mut self, now: UTime) {
        let start = now.nanos().saturating_sub(u64::from(self.otp.step_s) * 1_000_000_000);
        let old = self.checks.iter().take_while(|check| check.time.nanos() < start).count();
        self.checks.drain(..old);
    }

    /// Whether the password is that of now or of a step nearby, and none was used of that
    /// step or later.
    fn verify(&mut self, now: UTime, value: &[u8]) -> bool {
        let otp = &self.otp;
        if otp.step_s == 0 || !(6..=8).contains(&value.len()) {
            return false;
        }
        let since = i64::from(now.sec) - i64::from(otp.time_ofs);
        let Ok(step) = u64::try_from(since).map(|s| s / u64::from(otp.step_s)) else {
            return false;
        };
        let is = |step: u64| password(&otp.seed_raw, step, value.len()).as_bytes() == value;
        let found = (0..=u64::from(otp.window.min(WINDOW_MAX)))
            .find(|&off| is(step + off) || step.checked_sub(off).is_some_and(is));
        // The peer counts the distance forward, whichever side it was found on.
        let Some(index) = found.map(|off| step + off).filter(|i| *i > self.last_success) else {
            return false;
        };
        self.last_success = index;
        true
    }
}

fn set(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: SetOp = params(input)?;
    let mut header = header(o)?;
    for otp in op.entries {
        let at = key(PREFIX, &otp.id);
        let mut instance: Instance = read_if(o, &at)?.unwrap_or_default();
        instance.otp = otp;
        let (seed, kind) = (&instance.otp.seed, instance.otp.seed_kind);
        instance.otp.seed_raw = parse_seed(seed, kind).ok_or(Errno::INVAL)?;
        write(o, &at, &instance)?;
        header.ids.insert(instance.otp.id);
    }
    write(o, HEADER, &header)?;
    Ok(DONE)
}

fn remove(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: Ids = params(input)?;
    let mut header = header(o)?;
    let before = header.ids.len();
    for id in &op.ids {
        if header.ids.remove(id) {
            remove_if(o, &key(PREFIX, id))?;
        }
    }
    if header.ids.len() != before {
        write(o, HEADER, &header)?;
    }
    Ok(DONE)
}

fn get(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: GetOp = params(input)?;
    let header = header(o)?;
    let ids = if op.all { header.ids.iter().cloned().collect() } else { op.ids };
    let mut found = Found::default();
    for id in ids.iter().filter(|id| header.ids.contains(*id)) {
        let instance: Instance = read(o, &key(PREFIX, id))?;
        found.entries.push(instance.otp);
    }
    answer(&found)
}

fn check(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: CheckOp = params(input)?;
    let at = key(PREFIX, &op.id);
    let mut instance: Instance = read(o, &at)?;
    let now = o.now();
    instance.trim(now);
    if instance.checks.len() < ATTEMPTS_MAX {
        let result = if instance.verify(now, &op.value) { SUCCESS } else { FAIL };
        instance.checks.push(Check { token: op.token, time: now, result });
        write(o, &at, &instance)?;
    }
    Ok(DONE)
}

fn result(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: CheckOp = params(input)?;
    let mut instance: Instance = read(o, &key(PREFIX, &op.id))?;
    let now = o.now();
    instance.trim(now);
    let found = instance.checks.into_iter().rfind(|check| check.token == op.token);
    let unknown = Check { token: op.token, time: now, result: UNKNOWN };
    answer(&ResultRet { check: found.unwrap_or(unknown) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Mem;

    /// RFC 6238, appendix B, SHA-1, and RFC 4226, appendix D.
    #[test]
    fn published_values() {
        let seed = b"12345678901234567890";
        for (secs, value) in
            [(59, "94287082"), (1_111_111_109, "07081804"), (20_000_000_000, "65353130")]
        {
            assert_eq!(password(seed, secs / 30, 8), value);
        }
        assert_eq!(password(seed, 0, 6), "755224");
        let text = b"GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
        assert_eq!(parse_seed(text, SEED_BASE32).as_deref(), Some(&seed[..]));
        assert_eq!(parse_seed(b"0aFF", 1).as_deref(), Some(&[10, 255][..]));
        assert_eq!(parse_seed(b"0a1", 1), None);
        assert_eq!(parse_seed(b"GEZ1", SEED_BASE32), None);
    }

    /// A password works once, in its window; five attempts a step.
    #[test]
    fn checks() {
        let mut o = Mem::created();
        o.now = UTime { sec: 59, nsec: 0 };
        let id = Bytes::from_static(b"me");
        let seed = Bytes::from_static(b"3132333435363738393031323334353637383930");
        let info = Info {
            kind: 2,
            id: id.clone(),
            seed,
            seed_kind: 1,
            step_s: 30,
            window: 1,
            ..Info::default()
        };
        o.run("otp", "otp_set", &SetOp { entries: vec![info.clone()] }).unwrap();
        let bad = Info { seed: Bytes::from_static(b"x"), ..info };
        assert_eq!(o.run("otp", "otp_set", &SetOp { entries: vec![bad] }), Err(Errno::INVAL));
        let mut attempt = |value: &'static str, token: &'static str| -> u8 {
            let op = CheckOp { id: id.clone(), value: value.into(), token: token.into() };
            o.run("otp", "otp_check", &op).unwrap();
            let ret: ResultRet = o.ask("otp", "otp_get_result", &op).unwrap();
            ret.check.result
        };
        assert_eq!(attempt("94287083", "1"), FAIL);
        assert_eq!(attempt("94287082", "2"), SUCCESS);
        assert_eq!(attempt("94287082", "3"), FAIL);
        assert_eq!(attempt("1", "4"), FAIL);
        assert_eq!(attempt("", "5"), FAIL);
        assert_eq!(attempt("94287082", "6"), UNKNOWN);
        let found: Found = o.ask("otp", "otp_get", &GetOp { all: true, ids: vec![] }).unwrap();
        assert_eq!(found.entries.len(), 1);
        o.run("otp", "otp_remove", &Ids { ids: vec![id.clone()] }).unwrap();
        let op = CheckOp { id, ..CheckOp::default() };
        assert_eq!(o.run("otp", "otp_check", &op), Err(Errno::NOENT));
        o.refuses_short_input("otp", &["otp_set", "otp_get", "otp_check", "otp_remove"]);
    }
}
