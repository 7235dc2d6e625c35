//! The peer's journals: enough to see that one is empty, and to leave one that is.

use bytes::Bytes;
use striper::FileLayout;
use types::{DecodeError, Denc, PoolId, Reader, Writer};

use crate::wire::record;

/// How journal headers, inodes of system directories and tables of open files begin.
pub const MAGIC: &str = "ceph fs volume v011";
/// Where a journal's first entry is: behind the first object, which is the header's.
pub const STREAM_START: u64 = 4 << 20;

record! {
    /// Where a rank's journal is. The peer's `JournalPointer`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    JournalPointer "JournalPointer", compat 1, known 1, |f| 1; {
        /// The inode number of the one in use.
        front: u64,
        /// That of one being written in another format; 0 for none.
        back: u64,
    }
}

/// A journal's header. The peer's `Journaler::Header`, 2/2; 90 bytes with [`MAGIC`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalHeader {
    /// [`MAGIC`]; another one makes the peer's servers and tools refuse the journal.
    pub magic: Bytes,
    /// Objects below were removed.
    pub trimmed_pos: u64,
    /// Entries below are not needed.
    pub expire_pos: u64,
    /// The end, or a place before it.
    pub write_pos: u64,
    /// How positions lie in objects.
    pub layout: FileLayout,
    /// 1: entries have sentinels and their own positions. 0 is read only.
    pub stream_format: u8,
}

impl JournalHeader {
    /// A journal without entries in `pool`.
    #[must_use]
    pub fn empty(pool: PoolId) -> Self {
        Self {
            magic: MAGIC.into(),
            trimmed_pos: STREAM_START,
            expire_pos: STREAM_START,
            write_pos: STREAM_START,
            layout: FileLayout::plain(pool),
            stream_format: 1,
        }
    }
}

impl Denc for JournalHeader {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 2, |w| {
            w.blob(&self.magic);
            w.u64(self.trimmed_pos);
            w.u64(self.expire_pos);
            w.u64(self.expire_pos); // a field without meaning
            w.u64(self.write_pos);
            self.layout.encode_legacy(w);
            w.u8(self.stream_format);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("Journaler::Header", 2, |r, v| {
            let (magic, trimmed_pos, expire_pos) = (r.blob()?, r.u64()?, r.u64()?);
            r.skip(8)?;
            Ok(Self {
                magic,
                trimmed_pos,
                expire_pos,
                write_pos: r.u64()?,
                layout: FileLayout::decode(r)?,
                stream_format: if v >= 2 { r.u8()? } else { 0 },
            })
        })
    }
}

/// An entry of a journal in stream format 1: u64 sentinel, blob, u64 its own position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// What it says.
    pub payload: Bytes,
    /// Where it begins in the stream.
    pub start: u64,
}

impl JournalEntry {
    const SENTINEL: u64 = 0x3141_5926_5358_9793;
    /// Bytes around a payload.
    pub const OVERHEAD: u64 = 20;

    /// Bytes in the stream.
    #[must_use]
    pub fn size(&self) -> u64 {
        Self::OVERHEAD + self.payload.len() as u64
    }
}

impl Denc for JournalEntry {
    fn encode(&self, w: &mut Writer) {
        w.u64(Self::SENTINEL);
        w.blob(&self.payload);
        w.u64(self.start);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let sentinel = r.u64()?;
        r.require(sentinel == Self::SENTINEL, "a journal's entry begins with its sentinel")?;
        Ok(Self { payload: r.blob()?, start: r.u64()? })
    }
}

/// The kind of an event in a rank's journal. The peer's `EVENT_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventKind(pub u32);

impl EventKind {
    /// What is served, and by whom.
    pub const SUBTREEMAP: Self = Self(2);
    /// The journal begins anew.
    pub const RESETJOURNAL: Self = Self(9);
    /// An event that says nothing.
    pub const NOOP: Self = Self(51);
    /// A part begins.
    pub const SEGMENT: Self = Self(100);
    /// The journal is not without an event.
    pub const LID: Self = Self(101);

    /// Whether such an event changes nothing in the tree or its tables: a journal of these
    /// alone is as good as empty.
    #[must_use]
    pub const fn is_harmless(self) -> bool {
        matches!(
            self,
            Self::SUBTREEMAP | Self::RESETJOURNAL | Self::NOOP | Self::SEGMENT | Self::LID
        )
    }
}

/// An event: the payload of a [`JournalEntry`]. The peer's `LogEvent`: u32 0, 1/1 { u32 kind,
/// event }; before release 0.55 u32 kind, event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEvent {
    /// What kind.
    pub kind: EventKind,
    /// The event's own struct.
    pub body: Bytes,
}

impl LogEvent {
    /// That the journal begins anew: all that is in it when a clean tree is handed on.
    #[must_use]
    pub fn reset_journal() -> Self {
        Self {
            kind: EventKind::RESETJOURNAL,
            body: Bytes::from_static(&[2, 2, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        }
    }
}

impl Denc for LogEvent {
    fn encode(&self, w: &mut Writer) {
        w.u32(0);
        w.framed(1, 1, |w| {
            w.u32(self.kind.0);
            w.raw(&self.body);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match r.u32()? {
            0 => r.framed("LogEvent", 1, |r, _| {
                Ok(Self { kind: EventKind(r.u32()?), body: r.rest() })
            }),
            kind => Ok(Self { kind: EventKind(kind), body: r.rest() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a clean stop leaves, as 20.2.4 takes it.
    #[test]
    fn clean_state() {
        let pointer = JournalPointer { front: 0x200, back: 0 };
        assert_eq!(
            pointer.to_bytes(),
            &b"\x01\x01\x10\0\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0"[..]
        );
        let entry =
            JournalEntry { payload: LogEvent::reset_journal().to_bytes(), start: STREAM_START };
        let stock =
            b"\x93\x97\x58\x53\x26\x59\x41\x31\x1c\0\0\0\0\0\0\0\x01\x01\x12\0\0\0\x09\0\0\0\
            \x02\x02\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\x40\0\0\0\0\0";
        assert_eq!(entry.to_bytes(), &stock[..]);
        assert_eq!(entry.size(), 48);
        let again = JournalEntry::from_bytes(stock).unwrap();
        let event = LogEvent::from_bytes(&again.payload).unwrap();
        assert!(event == LogEvent::reset_journal() && event.kind.is_harmless());
        assert!(!EventKind(20).is_harmless());
        let header = JournalHeader::empty(PoolId(1));
        let bytes = header.to_bytes();
        assert_eq!((bytes.len(), &bytes[..6]), (90, &[2, 2, 0x54, 0, 0, 0][..]));
        assert_eq!(
            bytes[61..],
            *b"\0\0\x40\0\x01\0\0\0\0\0\x40\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x01"
        );
        assert_eq!(JournalHeader::from_bytes(&bytes), Ok(header));
    }
}
