//! Every message decoder.
#![no_main]
use denc::Bytes;
use messages::{Envelope, Message};

fn one<M: Message>(env: &Envelope) {
    if env.kind == M::KIND {
        if let Ok(message) = M::decode(env) {
            let _ = message.envelope(denc::Features::ALL);
        }
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if data.len() < 6 {
        return;
    }
    let (head, rest) = data.split_at(6);
    let cut = usize::from(u16::from_le_bytes([head[4], head[5]])).min(rest.len());
    let mut env = Envelope {
        kind: u16::from(head[0]) | u16::from(head[1] & 0x87) << 8,
        version: u16::from(head[2]),
        compat: u16::from(head[3] % 10),
        front: Bytes::copy_from_slice(&rest[..cut]),
        data: Bytes::copy_from_slice(&rest[cut..]),
        ..Envelope::default()
    };
    if env.kind & 0x700 != 0x700 {
        env.kind &= 0x80ff;
    }
    macro_rules! all {
        ($($m:ident)*) => { $(one::<messages::$m>(&env);)* };
    }
    all!(MonMapMsg MonGetMap MonGetOsdMap Statfs StatfsReply MonSubscribe MonSubscribeAck Auth AuthReply
        MonGetVersion MonGetVersionReply MdsMapMsg FsMapMsg PoolOp PoolOpReply MonCommand MonCommandAck LogMsg
        LogAck GetPoolStats ConfigMsg GetConfig Command CommandReply FsMapUserMsg MgrMapMsg ServiceMapMsg
        MgrCommand MgrCommandReply Ping OsdMapMsg MOsdOp MOsdOpReply WatchNotify Backoff OsdBoot OsdAlive
        OsdFailure OsdBeacon OsdMarkMeDown PgTemp PgStats PgStatsAck);
});
