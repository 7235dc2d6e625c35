//! Between OSDs: our own messages. Version 2 of those about a PG says which shards of it
//! receiver and sender are; a version 1 is of a replicated pool.
//!
//! Invariants: every message may be sent twice and may be lost; the receiver tells by the
//! versions inside what it has seen already. Payload of writes travels in the data
//! segment and is shared, not copied, when one write carries it all.
//!
//! Source: ours. The kinds 70, 112 and 113 are the numbers the peer gives to messages of
//! the same purpose; clients never see any of these.

mod change;
mod part;
mod peer;
mod pg;
mod push;
mod scrub;
mod write;

pub use change::{Mutation, ObjectChange};
pub use part::{OsdPart, Parts, in_parts};
pub use peer::{OsdPeer, PeerMsg};
pub use pg::{Answered, Interval, LogKind, PgCounts, PgInfo, PgLogEntry, Touched};
pub use push::{Listed, Push};
pub use scrub::{OmapDigest, ScrubHistory, ScrubMsg, ScrubObject};
pub use write::{OsdPing, RepOp, RepOpReply};

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use denc::{Denc, Features};
    use types::{EVersion, Epoch, HObject, PgId, ShardId, SpgId};

    use super::*;
    use crate::Message;

    fn tier_op() -> crate::MOsdOp {
        crate::MOsdOp {
            pg: SpgId::default(),
            hash: 5,
            epoch: Epoch(3),
            flags: 4,
            reqid: types::ReqId::default(),
            client_inc: 0,
            mtime: types::UTime::ZERO,
            locator: types::ObjectLocator::default(),
            oid: Bytes::from_static(b"a"),
            ops: vec![crate::OsdOp::extent(0x2202, 0, 3, Bytes::from_static(b"abc"))],
            snapid: types::SnapId::HEAD,
            snap_seq: types::SnapId(2),
            snaps: vec![types::SnapId(1)],
            retry_attempt: 0,
            features: 0,
        }
    }

    fn repop(datas: &[&'static [u8]]) -> RepOp {
        let oid = HObject { hash: 7, name: Bytes::from_static(b"o"), ..HObject::min() };
        let mut mutations = vec![
            Mutation::Touch,
            Mutation::Zero { off: 1, len: 2 },
            Mutation::Truncate(9),
            Mutation::SetAttr(Bytes::from_static(b"_"), Bytes::from_static(b"info")),
            Mutation::RmAttr(Bytes::from_static(b"x")),
            Mutation::OmapHeader(Bytes::from_static(b"h")),
            Mutation::OmapSet(vec![(Bytes::from_static(b"k"), Bytes::from_static(b"v"))]),
            Mutation::OmapRm(vec![Bytes::from_static(b"k")]),
            Mutation::OmapRmRange(Bytes::from_static(b"a"), Bytes::from_static(b"b")),
            Mutation::OmapClear,
            Mutation::CloneFrom(oid.clone()),
            Mutation::CloneRange { from: oid.clone(), off: 3, len: 4 },
            Mutation::Was { off: 5, data: Bytes::from_static(b"old") },
        ];
        for data in datas {
            mutations.push(Mutation::Write { off: 5, data: Bytes::from_static(data) });
        }
        let entry = PgLogEntry { oid: oid.clone(), result: -2, ..PgLogEntry::default() };
        RepOp {
            pg: SpgId { pg: PgId::new(3, 1), shard: ShardId(2) },
            from: ShardId(0),
            epoch: Epoch(9),
            interval: Epoch(8),
            prev: EVersion::new(8, 1),
            trim_to: EVersion::ZERO,
            settled: EVersion::new(8, 1),
            entry: entry.to_bytes(),
            changes: vec![ObjectChange { oid, mutations }],
        }
    }

    /// What a replica reads is what the primary wrote; one payload is shared end to end.
    #[test]
    fn repop_round_trips() {
        let (abc, defg): (&'static [u8], &'static [u8]) = (b"abc", b"defg");
        for datas in [vec![], vec![abc], vec![abc, b"", defg]] {
            let m = repop(&datas);
            let env = m.envelope(Features::ALL);
            assert_eq!(RepOp::decode(&env), Ok(m.clone()));
            if let [one] = datas[..] {
                assert_eq!(env.data.as_ptr(), one.as_ptr());
            }
            assert_eq!(PgLogEntry::from_bytes(&m.entry).unwrap().result, -2);
        }
    }

    /// An entry of no object tells of each request's; one of an object was the same before.
    #[test]
    fn entries_of_requests_know_hashes() {
        let asked = |hash| Answered { user_version: 7, result: 1, hash, ..Answered::default() };
        let mut entry = PgLogEntry {
            kind: LogKind::Error,
            oid: HObject { hash: 9, ..HObject::default() },
            answered: vec![asked(3), asked(5)],
            ..PgLogEntry::default()
        };
        let raw = entry.to_bytes();
        assert_eq!((raw[0], PgLogEntry::from_bytes(&raw).unwrap()), (4, entry.clone()));
        assert!((0..raw.len()).all(|n| PgLogEntry::from_bytes(&raw[..n]).is_err()));
        entry.oid.name = Bytes::from_static(b"x");
        let raw = entry.to_bytes();
        entry.answered = vec![asked(0), asked(0)];
        assert_eq!((raw[0], PgLogEntry::from_bytes(&raw).unwrap()), (3, entry));
    }

    /// Every kind of peer message is read back, and no cut-off copy is accepted.
    #[test]
    fn peer_messages_round_trip() {
        let (v, oid) = (EVersion::new(3, 4), HObject::min());
        let k = Bytes::from_static(b"k");
        let bodies = [
            PeerMsg::Query,
            PeerMsg::Info { known: true, info: PgInfo { epoch: Epoch(4), ..PgInfo::default() } },
            PeerMsg::GetLog(v),
            PeerMsg::Log {
                since: v,
                info: PgInfo { past: vec![Interval::default()], ..PgInfo::default() },
                entries: vec![PgLogEntry::default().to_bytes()],
                missing: vec![(oid.clone(), v)],
            },
            PeerMsg::Scan(oid.clone()),
            PeerMsg::Objects { begin: oid.clone(), end: HObject::max(), objects: vec![] },
            PeerMsg::Activate {
                round: 3,
                info: PgInfo::default(),
                since: v,
                reset: true,
                entries: vec![],
                missing: vec![(oid.clone(), v)],
                surplus: vec![oid.clone()],
            },
            PeerMsg::Activated { round: 3, missing: vec![], record_max: 77 },
            PeerMsg::Unrelated { round: 3 },
            PeerMsg::CopyGet { id: 4, oid: oid.clone(), off: 5, omap_after: k.clone() },
            PeerMsg::CopyPart {
                id: 4,
                push: Push { last: true, ..Push::default() },
                answered: vec![],
            },
            PeerMsg::CopyPart {
                id: 4,
                push: Push { last: true, ..Push::default() },
                answered: vec![Answered { user_version: 7, result: 1, ..Answered::default() }],
            },
            PeerMsg::TierAsk {
                id: 9,
                who: types::EntityId::default(),
                addr: types::EntityAddr::default(),
                op: Box::new(tier_op()),
            },
            PeerMsg::TierTold {
                id: 9,
                reply: Box::new(crate::MOsdOpReply {
                    oid: Bytes::from_static(b"a"),
                    result: -2,
                    ..Default::default()
                }),
            },
            PeerMsg::Settle { history_les: Epoch(1), last_epoch_clean: Epoch(2) },
            PeerMsg::Pull { oid: oid.clone(), version: v, off: 5, omap_after: k.clone() },
            PeerMsg::Push(Push { data: Bytes::from_static(b"data"), ..Push::default() }),
            PeerMsg::Pushed { oid, version: v, off: 4, omap_after: k, last: true },
            PeerMsg::Remove,
            PeerMsg::BackfillAsk,
            PeerMsg::BackfillSlot { granted: false, full: true },
            PeerMsg::BackfillEnd,
            PeerMsg::ShardRead {
                id: 3,
                oid: HObject::min(),
                version: v,
                off: 4,
                len: 5,
                attrs: true,
            },
            PeerMsg::ShardData {
                id: 3,
                result: -5,
                size: 9,
                attrs: vec![(Bytes::from_static(b"_"), Bytes::new())],
                data: Bytes::from_static(b"data"),
            },
            PeerMsg::Settled(v),
            PeerMsg::Follow { since: v, entries: vec![Bytes::from_static(b"e")] },
            PeerMsg::RecoveryAsk,
            PeerMsg::RecoverySlot,
            PeerMsg::RecoveryEnd,
            PeerMsg::Room { full: true, bare: false },
            PeerMsg::Scrub(ScrubMsg::Slot(true)),
            PeerMsg::Scrub(ScrubMsg::Ask {
                id: 3,
                deep: true,
                begin: HObject::min(),
                end: HObject::max(),
            }),
            PeerMsg::Scrub(ScrubMsg::Chunk {
                id: 3,
                objects: vec![ScrubObject {
                    data: Some(3),
                    omap: Some(OmapDigest { crc: 1, keys: 2, bytes: 3 }),
                    ..ScrubObject::default()
                }],
            }),
            PeerMsg::Scrub(ScrubMsg::Result(ScrubHistory {
                objects: 9,
                ..ScrubHistory::default()
            })),
        ];
        for body in bodies {
            let pg = SpgId { pg: PgId::new(1, 2), shard: ShardId(4) };
            let (epoch, interval) = (Epoch(3), Epoch(2));
            let m = OsdPeer { pg, from: ShardId(1), epoch, interval, felt: 150, body };
            let env = m.envelope(Features::ALL);
            assert_eq!(OsdPeer::decode(&env), Ok(m));
            for cut in 0..env.front.len() {
                let short = crate::Envelope { front: env.front.slice(..cut), ..env.clone() };
                assert!(OsdPeer::decode(&short).is_err());
            }
        }
    }

    /// A write that claims more payload than there is is refused.
    #[test]
    fn repop_with_lost_data_is_refused() {
        let mut env = repop(&[b"abc", b"defg"]).envelope(Features::ALL);
        env.data = env.data.slice(..5);
        assert!(RepOp::decode(&env).is_err());
    }
}
