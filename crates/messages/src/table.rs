//! Every message: its number, its name, and its decoder, a line each. What goes over all kinds (names
//! for people, fuzzing) reads this table; a test finds a message that has no line.

use denc::{DecodeError, Features};

use crate::{Envelope, Message};

/// A kind of message.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its number on the wire.
    pub number: u16,
    /// The struct's name.
    pub name: &'static str,
    /// Reads a message of this kind, whatever the envelope's kind says, writes it and reads it again.
    ///
    /// # Errors
    /// When it cannot be read.
    ///
    /// # Panics
    /// When what was written is not read, or reads as another message.
    pub again: fn(&Envelope) -> Result<(), DecodeError>,
}

fn again<M: Message>(env: &Envelope) -> Result<(), DecodeError> {
    let env = Envelope { kind: M::KIND, ..env.clone() };
    let message = M::decode(&env)?;
    let _ = message.envelope(Features::PACIFIC_WORD);
    let written = message.envelope(Features::ALL);
    match M::decode(&written) {
        Ok(read) => assert!(read.envelope(Features::ALL) == written, "kind {}", M::KIND),
        Err(e) => panic!("kind {}: what was written is not read: {e}", M::KIND),
    }
    Ok(())
}

/// The name of a kind of message; `None` for one that is not known.
#[must_use]
pub fn name(number: u16) -> Option<&'static str> {
    KINDS.iter().find(|kind| kind.number == number).map(|kind| kind.name)
}

/// Rows of the crate's own messages, and of those of file systems.
macro_rules! messages {
    ($($m:ident)*; fs: $($f:ident)*) => {
        /// Every kind.
        pub const KINDS: &[Kind] = &[
            $(Kind { number: crate::$m::KIND, name: stringify!($m), again: again::<crate::$m> },)*
            $(Kind {
                number: crate::fs::$f::KIND,
                name: stringify!($f),
                again: again::<crate::fs::$f>,
            },)*
        ];
    };
}

messages! {
    OsdBoot OsdAlive OsdFailure OsdBeacon OsdMarkMeDown PgTemp PgReadyToMerge PgStats
    PgStatsAck ScrubRequest ClassModules ForceRecovery LogMsg MgrOpen MgrConfigure
    MgrReport MgrClose MgrBeacon ManagerAsk ManagerReport MonMapMsg MonGetMap MonGetOsdMap
    RemoveSnaps Statfs StatfsReply MonSubscribe MonSubscribeAck Auth AuthReply
    MonGetVersion MonGetVersionReply MdsMapMsg PoolOp MonCommand MonCommandAck LogAck
    GetPoolStats ConfigMsg GetConfig Command CommandReply MgrCommand MgrCommandReply Ping
    FsMapMsg FsMapUserMsg MgrMapMsg ServiceMapMsg PoolOpReply OsdMapMsg MOsdOp MOsdOpReply
    WatchNotify Backoff OsdPart OsdPeer RepOp RepOpReply OsdPing;
    fs:
    MdsBeacon MdsLoadTargets ClientCaps ClientCapRelease ClientLease ClientMetrics
    ClientQuota ClientReclaim ClientReclaimReply ClientReconnect ClientReply ClientRequest
    ClientRequestForward ClientSession ClientSnap
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// Names in these sources that `Message` is implemented for, by any of the ways.
    fn written() -> BTreeSet<String> {
        let src = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        let mut names = BTreeSet::new();
        let mut dirs = vec![std::path::PathBuf::from(src)];
        while let Some(dir) = dirs.pop() {
            for file in std::fs::read_dir(dir).unwrap().flatten() {
                if file.path().is_dir() {
                    dirs.push(file.path());
                }
                if file.path().extension().is_none_or(|e| e != "rs") {
                    continue;
                }
                let text = std::fs::read_to_string(file.path()).unwrap();
                let mut in_macro = false;
                for line in text.lines() {
                    let is_macro = line == "plain_message! {" || line == "map_message! {";
                    in_macro |= is_macro;
                    let first = line.trim().split(',').next().unwrap_or_default();
                    let is_name = !first.is_empty()
                        && first.starts_with(|c: char| c.is_ascii_uppercase())
                        && first.chars().all(|c| c.is_ascii_alphanumeric());
                    if in_macro && !is_macro && is_name && line.contains(',') {
                        names.insert(first.to_owned());
                        in_macro = false;
                    }
                    let implemented = ["impl Message for ", "impl crate::Message for "]
                        .iter()
                        .find_map(|start| line.strip_prefix(start));
                    names.extend(implemented.map(|rest| rest.trim_end_matches(" {").to_owned()));
                }
            }
        }
        names
    }

    #[test]
    fn every_message_has_a_line() {
        let listed: BTreeSet<String> = KINDS.iter().map(|kind| kind.name.to_owned()).collect();
        assert_eq!(listed, written());
        let mut by_number: BTreeMap<u16, &str> = BTreeMap::new();
        for kind in KINDS {
            let other = by_number.insert(kind.number, kind.name);
            assert_eq!(other, None, "{} is {} too", kind.number, kind.name);
        }
        assert_eq!((name(42), name(9_999)), (Some("MOsdOp"), None));
    }

    /// Bytes of any kind are read or refused, and what is read is written as it is read.
    #[test]
    fn any_bytes_are_read_or_refused() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u32
        };
        let mut read = 0;
        for _ in 0..200 {
            for kind in KINDS {
                let len = (next() % 300) as usize;
                // Mostly zeros: lengths and counts that fit.
                let front: Vec<u8> =
                    (0..len).map(|_| if next() % 4 == 0 { next() as u8 } else { 0 }).collect();
                let version = next() as u16 % 12;
                let env = Envelope { version, front: front.into(), ..Envelope::default() };
                read += u32::from((kind.again)(&env).is_ok());
            }
        }
        assert!(read > 1_000, "{read} were read");
    }
}
