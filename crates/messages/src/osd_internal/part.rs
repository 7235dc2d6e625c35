//! Messages between OSDs that are larger than the messenger takes, in parts.
//!
//! What a client puts into an object, or makes it grow to, decides how large a write on its way to
//! the copies is, or an object's last part in recovery: attributes and omap travel in the front, of
//! which the messenger takes 16 MiB. So a message beyond [`WHOLE_FRONT`] or [`WHOLE_DATA`] travels
//! as a run of [`OsdPart`]s over the same connection, each with up to [`PART_BYTES`] of it in its
//! data segment, in order and without others of the kind in between. A run that starts anew,
//! or the connection's end, voids what came of the run before.

use bytes::{Bytes, BytesMut};

use crate::{Envelope, Message, plain_message};

/// Bytes of front and of middle that go as they are. Below what releases that know no parts refuse.
const WHOLE_FRONT: usize = 12 << 20;
/// Bytes of data that go as they are.
const WHOLE_DATA: usize = 92 << 20;
/// Bytes of one part, at most.
const PART_BYTES: usize = 32 << 20;
/// Bytes that a message in parts has, at most; what is taken from a peer grows with what has come.
const PARTED_MAX: u64 = 2 << 30;

plain_message! {
    /// A part of a message between OSDs.
    OsdPart, 0x4102;
    {
        /// The message's tid.
        tid: u64,
        /// Its kind.
        kind: u16,
        /// Its version.
        version: u16,
        /// Its compat.
        compat: u16,
        /// Bytes of its front.
        front: u32,
        /// Bytes of its middle.
        middle: u32,
        /// Bytes of its data.
        data_len: u32,
        /// Where in all of them, joined, this part lies.
        at: u64,
    }
    data bytes
}

impl OsdPart {
    fn total(&self) -> u64 {
        u64::from(self.front) + u64::from(self.middle) + u64::from(self.data_len)
    }

    fn is_of(&self, first: &Self) -> bool {
        let header = |p: &Self| (p.tid, p.kind, p.version, p.compat, p.front, p.middle, p.data_len);
        header(self) == header(first)
    }
}

/// The envelopes that `e` travels in: itself, or its parts in order; none when it has more than
/// 2 GiB, which no receiver takes. Shares its bytes.
#[must_use]
pub fn in_parts(e: Envelope) -> Vec<Envelope> {
    if e.front.len() <= WHOLE_FRONT && e.middle.len() <= WHOLE_FRONT && e.data.len() <= WHOLE_DATA {
        return vec![e];
    }
    let len = |b: &Bytes| u32::try_from(b.len()).unwrap_or(u32::MAX);
    let mut part = OsdPart {
        tid: e.tid,
        kind: e.kind,
        version: e.version,
        compat: e.compat,
        front: len(&e.front),
        middle: len(&e.middle),
        data_len: len(&e.data),
        at: 0,
        bytes: Bytes::new(),
    };
    if part.total() > PARTED_MAX {
        return Vec::new();
    }
    let mut all = Vec::with_capacity(e.size() / PART_BYTES + 3);
    for segment in [&e.front, &e.middle, &e.data] {
        let mut from = 0;
        while from < segment.len() {
            let to = segment.len().min(from + PART_BYTES);
            part.bytes = segment.slice(from..to);
            all.push(part.envelope(denc::Features::ALL).with_priority(e.priority));
            part.at += (to - from) as u64;
            from = to;
        }
    }
    all
}

/// A message of which some parts have come.
#[derive(Debug, Default)]
pub struct Parts {
    first: Option<OsdPart>,
    bytes: BytesMut,
}

impl Parts {
    /// Bytes that are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.bytes.len()
    }

    /// Takes the next part. Returns the whole message with the last one.
    ///
    /// # Errors
    /// [`denc::DecodeError::Invalid`] for a part that does not go on where the last one ended, or
    /// a message of more than 2 GiB; what had come is void then.
    pub fn take(&mut self, part: OsdPart) -> Result<Option<Envelope>, denc::DecodeError> {
        let wrong = |rule| denc::DecodeError::Invalid { what: "OsdPart", rule };
        if part.at == 0 {
            *self = Self::default();
        }
        let end = part.at + part.bytes.len() as u64;
        let goes_on = self.first.as_ref().is_none_or(|first| part.is_of(first));
        if !goes_on || part.at != self.bytes.len() as u64 || end > part.total() {
            *self = Self::default();
            return Err(wrong("parts come in order"));
        }
        if part.total() > PARTED_MAX || part.kind == OsdPart::KIND {
            *self = Self::default();
            return Err(wrong("a message in parts has 2 GiB at most"));
        }
        self.bytes.extend_from_slice(&part.bytes);
        if end < part.total() {
            self.first.get_or_insert(OsdPart { bytes: Bytes::new(), ..part });
            return Ok(None);
        }
        let mut rest = std::mem::take(self).bytes.freeze();
        let front = rest.split_to(part.front as usize);
        let middle = rest.split_to(part.middle as usize);
        Ok(Some(Envelope {
            tid: part.tid,
            kind: part.kind,
            version: part.version,
            compat: part.compat,
            front,
            middle,
            data: rest,
            ..Envelope::default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(front: usize, middle: usize, data: usize) -> Envelope {
        let made = |n: usize, seed: u8| {
            let mut all = vec![seed; n];
            (0..n).step_by(1 << 16).for_each(|i| all[i] ^= (i >> 16) as u8);
            Bytes::from(all)
        };
        Envelope {
            tid: 7,
            kind: 112,
            priority: crate::PRIO_HIGH,
            version: 2,
            compat: 1,
            front: made(front, 1),
            middle: made(middle, 2),
            data: made(data, 3),
            ..Envelope::default()
        }
    }

    /// Whatever the sizes: no envelope that is sent has a segment which the messenger refuses, and
    /// the receiver has the message as it was.
    #[test]
    fn large_messages_come_whole() {
        let (front, data) = (WHOLE_FRONT, WHOLE_DATA);
        for (f, m, d, parts) in [
            (10, 0, 10, 1),
            (front, front, data, 1),
            (front + 1, 0, 0, 1),
            (front + 1, 5, 7, 3),
            (10, 0, data + 1, 4),
            (70 << 20, 0, 100 << 20, 7),
            (2 * PART_BYTES, front + 1, 0, 3),
        ] {
            let whole = envelope(f, m, d);
            let sent = in_parts(whole.clone());
            assert_eq!(sent.len(), parts, "{f} {m} {d}");
            assert!(sent.iter().all(|e| e.front.len() <= 16 << 20 && e.data.len() <= 96 << 20));
            if let [one] = &sent[..]
                && one.kind != OsdPart::KIND
            {
                assert!(*one == whole);
                continue;
            }
            let mut came = Parts::default();
            // The beginning of an earlier one that was not sent to its end.
            came.take(OsdPart::decode(&sent[0]).unwrap()).unwrap();
            let mut got = None;
            for e in &sent {
                assert!(got.is_none() && e.priority == whole.priority);
                got = came.take(OsdPart::decode(e).unwrap()).unwrap();
            }
            let got = got.expect("with the last one").with_priority(whole.priority);
            assert!(got == whole, "{f} {m} {d}");
            assert_eq!(came.held(), 0);
        }
    }

    /// Parts out of order, of two messages or of none are refused, and nothing is kept of them.
    #[test]
    fn broken_runs_are_refused() {
        let parts = |tid| {
            let sent = in_parts(envelope(70 << 20, 0, 0).with_tid(tid));
            sent.iter().map(|e| OsdPart::decode(e).unwrap()).collect::<Vec<_>>()
        };
        let (one, other) = (parts(1), parts(2));
        let larger = |p: &OsdPart| OsdPart { data_len: u32::MAX, ..p.clone() };
        let nested = OsdPart { kind: OsdPart::KIND, ..one[0].clone() };
        for (before, wrong) in [
            (&one[..0], one[1].clone()),
            (&one[..1], one[2].clone()),
            (&one[..1], other[1].clone()),
            (&one[..0], larger(&one[0])),
            (&one[..0], nested),
            (&one[..2], OsdPart { bytes: one[0].bytes.clone(), ..one[2].clone() }),
        ] {
            let mut came = Parts::default();
            for part in before {
                assert_eq!(came.take(part.clone()), Ok(None));
            }
            assert!(came.take(wrong).is_err());
            assert_eq!(came.held(), 0);
            assert_eq!(came.take(one[0].clone()), Ok(None), "a new run may begin");
        }
    }
}
