//! Every message decoder. What was read is written so that it is read again.
//!
//! Input: u8 which message, u8 version, u8 compat, u16 length of the front, front, data.
#![no_main]
use denc::{Bytes, Denc, Features};
use messages::{Envelope, Message};

fn one<M: Message>(env: &Envelope) {
    let env = Envelope { kind: M::KIND, ..env.clone() };
    if let Ok(message) = M::decode(&env) {
        let _ = message.envelope(Features::PACIFIC_WORD);
        let written = message.envelope(Features::ALL);
        match M::decode(&written) {
            Ok(again) => assert!(again.envelope(Features::ALL) == written, "kind {}", M::KIND),
            Err(e) => panic!("kind {}: what was written is not read: {e}", M::KIND),
        }
    }
}

fn entry(env: &Envelope) {
    if let Ok(entry) = messages::PgLogEntry::from_bytes(&env.front) {
        assert_eq!(messages::PgLogEntry::from_bytes(&entry.to_bytes()), Ok(entry));
    }
}

/// What stands in blobs of answers and caps.
fn extras(env: &Envelope) {
    fn blob<T: Denc + PartialEq + std::fmt::Debug>(bytes: &Bytes) {
        if let Ok(value) = T::from_bytes(bytes) {
            assert_eq!(T::from_bytes(&value.to_bytes()), Ok(value));
        }
    }
    blob::<messages::fs::DirListing>(&env.front);
    blob::<messages::fs::CreatedInode>(&env.front);
    blob::<messages::fs::FileLock>(&env.front);
    blob::<messages::fs::HeldLocks>(&env.front);
    let _ = messages::fs::read_snap_trace(&env.front);
    let _ = messages::fs::read_snap_trace_new(&env.front);
}

macro_rules! kinds {
    ($($m:ident)*; fs: $($f:ident)*) => {
        &[$(one::<messages::$m>,)* $(one::<messages::fs::$f>,)* entry, extras]
    };
}
const KINDS: &[fn(&Envelope)] = kinds!(
    MonMapMsg MonGetMap MonGetOsdMap Statfs StatfsReply MonSubscribe MonSubscribeAck Auth AuthReply
    MonGetVersion MonGetVersionReply MdsMapMsg FsMapMsg PoolOp PoolOpReply MonCommand MonCommandAck
    LogMsg LogAck GetPoolStats ConfigMsg GetConfig Command CommandReply
    FsMapUserMsg MgrMapMsg ServiceMapMsg MgrCommand MgrCommandReply Ping OsdMapMsg MOsdOp
    MOsdOpReply WatchNotify Backoff OsdBoot OsdAlive OsdFailure OsdBeacon OsdMarkMeDown PgTemp
    PgStats PgStatsAck RepOp RepOpReply OsdPing OsdPeer;
    fs: ClientSession ClientReconnect ClientRequest ClientRequestForward ClientReply ClientReclaim
    ClientReclaimReply ClientMetrics ClientCaps ClientLease ClientSnap ClientCapRelease ClientQuota
    MdsBeacon MdsLoadTargets
);

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if data.len() < 5 {
        return;
    }
    let (head, rest) = data.split_at(5);
    let cut = usize::from(u16::from_le_bytes([head[3], head[4]])).min(rest.len());
    let env = Envelope {
        version: u16::from(head[1]),
        compat: u16::from(head[2] % 10),
        front: Bytes::copy_from_slice(&rest[..cut]),
        data: Bytes::copy_from_slice(&rest[cut..]),
        ..Envelope::default()
    };
    KINDS[usize::from(head[0]) % KINDS.len()](&env);
});
