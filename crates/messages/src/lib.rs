//! What is said on the wire: one struct per message type, and the [`Envelope`] that the
//! messenger carries without looking inside.
//!
//! Invariants: decoding never panics and keeps payload (data segments, object names) as
//! shared slices of the received buffers; a message encodes for the features given.
//!
//! Source: the peer's `messages/M*.h`; layouts checked against live traffic.

mod daemon;
pub mod fs;
pub mod fuzz;
mod log;
mod mgr;
mod mon;
mod osd;
mod osd_internal;
mod table;

use bytes::Bytes;
use denc::{DecodeError, Features, Reader, Writer};
use stdx::BlockSums;

pub use daemon::*;
pub use log::*;
pub use mgr::*;
pub use mon::*;
pub use osd::*;
pub use osd_internal::*;
pub use table::{KINDS, Kind, name};

/// A message as the messenger moves it: what a role sees of the header, and the segments.
///
/// Sequence numbers and acks are the connection's own; the sender is the connection's peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// The sender's number for this exchange; replies repeat it.
    pub tid: u64,
    /// Which message: [`Message::KIND`].
    pub kind: u16,
    /// 64 low, 127 default, 196 high, 255 highest.
    pub priority: u16,
    /// Version of the payload's layout.
    pub version: u16,
    /// The oldest reader that understands it.
    pub compat: u16,
    /// Where in its object the data lies; an alignment hint.
    pub data_off: u16,
    /// The struct.
    pub front: Bytes,
    /// Rarely used second part.
    pub middle: Bytes,
    /// Payload.
    pub data: Bytes,
    /// The data's, where they are known: who received large data unencrypted has them, and who
    /// sends such data with them need not go through it again.
    pub data_sums: Option<BlockSums>,
}

impl Envelope {
    /// Bytes of all segments: what back-pressure counts.
    #[must_use]
    pub fn size(&self) -> usize {
        self.front.len() + self.middle.len() + self.data.len()
    }

    /// With another tid; for replies.
    #[must_use]
    pub fn with_tid(mut self, tid: u64) -> Self {
        self.tid = tid;
        self
    }

    /// With another priority.
    #[must_use]
    pub fn with_priority(mut self, priority: u16) -> Self {
        self.priority = priority;
        self
    }
}

/// Priority of replies and maps from monitors.
pub const PRIO_HIGH: u16 = 196;
/// Default priority.
pub const PRIO_DEFAULT: u16 = 127;

/// A message type.
pub trait Message: Sized {
    /// Its number on the wire.
    const KIND: u16;
    /// The layout version written here, and the newest one known.
    const VERSION: u16 = 1;
    /// The oldest reader that understands what is written here.
    const COMPAT: u16 = 1;
    /// Priority unless the sender says otherwise.
    const PRIORITY: u16 = PRIO_DEFAULT;

    /// Appends the front segment.
    fn encode_front(&self, w: &mut Writer);

    /// The data segment.
    fn data(&self) -> Bytes {
        Bytes::new()
    }

    /// The header version for a peer with `features`.
    fn version_for(&self, _features: Features) -> u16 {
        Self::VERSION
    }

    /// Reads the front segment of a message whose header says `version`; `data` is the
    /// data segment.
    ///
    /// # Errors
    /// [`DecodeError`].
    fn decode_front(r: &mut Reader<'_>, version: u16, data: &Bytes) -> Result<Self, DecodeError>;

    /// The message for a peer with `features`, tid 0.
    fn envelope(&self, features: Features) -> Envelope {
        let mut w = Writer::new(features);
        self.encode_front(&mut w);
        Envelope {
            kind: Self::KIND,
            priority: Self::PRIORITY,
            version: self.version_for(features),
            compat: Self::COMPAT,
            front: w.finish(),
            data: self.data(),
            ..Envelope::default()
        }
    }

    /// Reads a received message. Fields that a later version appended are skipped.
    ///
    /// # Errors
    /// [`DecodeError::TooNew`] when the sender's compat is beyond what is known;
    /// otherwise as the fields.
    fn decode(env: &Envelope) -> Result<Self, DecodeError> {
        if env.compat > Self::VERSION {
            return Err(DecodeError::TooNew {
                what: "message",
                compat: env.compat.min(255) as u8,
                known: Self::VERSION as u8,
            });
        }
        Self::decode_front(&mut Reader::shared(&env.front), env.version, &env.data)
    }
}

/// A message whose fields are all [`denc::Denc`], in order: struct, numbers, impl.
macro_rules! plain_message {
    ($(#[$doc:meta])* $name:ident, $kind:expr $(, version $v:expr)? $(, compat $c:expr)? $(, priority $p:expr)?;
     { $($(#[$fdoc:meta])* $f:ident: $t:ty,)* } $(data $d:ident)?) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            $($(#[$fdoc])* pub $f: $t,)*
            $(
                /// The data segment.
                pub $d: bytes::Bytes,
            )?
        }
        impl $crate::Message for $name {
            const KIND: u16 = $kind;
            $(const VERSION: u16 = $v;)?
            $(const COMPAT: u16 = $c;)?
            $(const PRIORITY: u16 = $p;)?
            fn encode_front(&self, _w: &mut denc::Writer) {
                $(denc::Denc::encode(&self.$f, _w);)*
            }
            $(fn data(&self) -> bytes::Bytes {
                self.$d.clone()
            })?
            fn decode_front(
                _r: &mut denc::Reader<'_>,
                _version: u16,
                _data: &bytes::Bytes,
            ) -> Result<Self, denc::DecodeError> {
                Ok(Self { $($f: denc::Denc::decode(_r)?,)* $($d: _data.clone(),)? })
            }
        }
    };
}
pub(crate) use plain_message;
