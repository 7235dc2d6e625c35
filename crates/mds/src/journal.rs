//! The journal: records in bounded objects at explicit places, chained by sums.
//!
//! `argo.journal.<rank>.head` says where it begins; `argo.journal.<rank>.<n>` (n in 16 hex
//! digits) holds batches: u32 length, u32 sum, then the body. The sum is CRC-32C over the body,
//! continued from the batch before, so that nothing is taken for a batch that does not follow. A
//! body is records, each with u32 length, packed behind those before it in the object
//! ([`crate::pack`]): one record is much like another, and whole values cost what differs. Numbers of objects are never used twice. One write is in flight;
//! it names its place, so that one that is sent again does no harm.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use denc::{DecodeError, Denc, Reader, Writer};
use stdx::crc32c;

use crate::pack::{Packer, Unpacker};
use crate::record::Record;

/// An object takes no batch that begins beyond so many bytes.
pub(crate) const OBJECT_BYTES: u64 = 4 << 20;
/// In a batch's length: its body is packed. Without it records' runs of zeros are made short.
const PACKED: u32 = 1 << 31;
/// How the head begins.
pub(crate) const MAGIC: &str = "argonaut journal v1";

/// The object that says where the journal begins.
pub(crate) fn head_object(rank: i32) -> String {
    format!("argo.journal.{rank:x}.head")
}

/// An object with batches.
pub(crate) fn data_object(rank: i32, n: u64) -> String {
    format!("argo.journal.{rank:x}.{n:016x}")
}

/// Where the journal begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// Its first object.
    pub first: u64,
    /// The sum that the first batch there continues.
    pub sum: u32,
}

impl Denc for Head {
    fn encode(&self, w: &mut Writer) {
        w.str(MAGIC);
        // Whoever knows 1 alone reads no packed batches.
        w.framed(2, 2, |w| {
            w.u64(self.first);
            w.u32(self.sum);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let magic = r.blob_ref()?;
        r.require(magic == MAGIC.as_bytes(), "a journal's head begins with its magic")?;
        r.framed("journal head", 2, |r, _| Ok(Self { first: r.u64()?, sum: r.u32()? }))
    }
}

/// One write to the journal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Append {
    pub object: u64,
    pub off: u64,
    pub data: Bytes,
}

/// Where the journal ends, what is on its way, and what is durable.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// The newest record that was handed in.
    pub submitted: u64,
    /// The newest one that is durable.
    pub durable: u64,
    /// Bytes of all that were handed in.
    pub handed_in: u64,
    /// The object that takes the next batch, and where.
    object: u64,
    off: u64,
    sum: u32,
    buffer: Vec<u8>,
    packer: Packer,
    in_flight: Option<u64>,
    /// Objects with the sum before their first batch, and the bytes in each, oldest first.
    objects: VecDeque<(u64, u32, u64)>,
}

impl Journal {
    /// One that goes on in a new object behind `last`.
    pub fn resume(seq: u64, last: u64, sum: u32, objects: VecDeque<(u64, u32, u64)>) -> Self {
        let mut journal = Self { submitted: seq, durable: seq, sum, objects, ..Self::default() };
        journal.object = last + 1;
        journal.objects.push_back((journal.object, sum, 0));
        journal
    }

    /// Hands in a record. Returns the object that it will be in, at the earliest.
    pub fn submit(&mut self, record: &mut Record) -> u64 {
        self.submitted += 1;
        record.seq = self.submitted;
        let bytes = record.to_bytes();
        self.handed_in += bytes.len() as u64;
        self.buffer.put_u32_le(bytes.len() as u32);
        self.buffer.extend_from_slice(&bytes);
        self.object
    }

    /// Whether everything that was handed in is durable.
    pub fn is_settled(&self) -> bool {
        self.durable == self.submitted
    }

    /// Whether a record is durable, or will be with the write that is on its way.
    pub fn is_written(&self, seq: u64) -> bool {
        seq <= self.in_flight.unwrap_or(self.durable)
    }

    /// Bytes in all objects.
    pub fn bytes(&self) -> u64 {
        self.objects.iter().map(|o| o.2).sum()
    }

    /// The oldest and the newest object.
    pub fn span(&self) -> (u64, u64) {
        (self.objects.front().map_or(self.object, |o| o.0), self.object)
    }

    /// What is to be written next; none while a write is in flight, or with nothing to write.
    pub fn next(&mut self) -> Option<Append> {
        if self.in_flight.is_some() || self.buffer.is_empty() {
            return None;
        }
        if self.off >= OBJECT_BYTES {
            self.begin_object();
        }
        let records = std::mem::take(&mut self.buffer);
        let mut body = (records.len() as u32).to_le_bytes().to_vec();
        body.extend_from_slice(&self.packer.pack(&records));
        let sum = crc32c(self.sum, &body);
        let mut data = BytesMut::with_capacity(body.len() + 8);
        data.put_u32_le(body.len() as u32 | PACKED);
        data.put_u32_le(sum);
        data.extend_from_slice(&body);
        let append = Append { object: self.object, off: self.off, data: data.freeze() };
        self.sum = sum;
        self.off += append.data.len() as u64;
        if let Some(last) = self.objects.back_mut() {
            last.2 = self.off;
        }
        self.in_flight = Some(self.submitted);
        Some(append)
    }

    /// The write in flight is durable.
    pub fn appended(&mut self) {
        if let Some(seq) = self.in_flight.take() {
            self.durable = seq;
        }
    }

    /// Records in objects below `first` are in the tree. Returns the new head and the objects
    /// to remove once it is written.
    pub fn trim(&mut self, first: u64) -> Option<(Head, Vec<u64>)> {
        let mut gone = Vec::new();
        while let Some((n, _, _)) = self.objects.front()
            && *n < first
            && self.objects.len() > 1
        {
            gone.push(*n);
            self.objects.pop_front();
        }
        let (first, sum, _) = *self.objects.front()?;
        (!gone.is_empty()).then_some((Head { first, sum }, gone))
    }

    /// Closes the object that takes batches now, so that it can be trimmed.
    pub fn turn(&mut self) {
        if self.off > 0 && self.in_flight.is_none() && self.buffer.is_empty() {
            self.begin_object();
        }
    }

    fn begin_object(&mut self) {
        self.object += 1;
        self.off = 0;
        self.packer.clear();
        self.objects.push_back((self.object, self.sum, 0));
    }
}

/// Reads the batches of one object that follow `sum`. Returns the records and the sum behind
/// them; ends before what does not follow.
pub(crate) fn read_object(data: &[u8], mut sum: u32) -> (Vec<Record>, u32, bool) {
    let (mut records, mut unpacker) = (Vec::new(), Unpacker::default());
    let r = &mut Reader::new(data);
    while r.left() >= 8 {
        let (Ok(len), Ok(want)) = (r.u32(), r.u32()) else { break };
        let is_packed = len & PACKED != 0;
        let Ok(body) = r.take("batch", (len & !PACKED) as usize) else {
            return (records, sum, false);
        };
        let got = crc32c(sum, body);
        if got != want {
            return (records, sum, false);
        }
        let body = match body.split_first_chunk::<4>().filter(|_| is_packed) {
            Some((len, packed)) => unpacker.unpack(packed, u32::from_le_bytes(*len) as usize),
            None => Some(body).filter(|_| !is_packed),
        };
        let Some(body) = body else { return (records, sum, false) };
        let b = &mut Reader::new(body);
        while b.left() > 0 {
            let Ok(bytes) = b.blob_ref() else { return (records, sum, false) };
            let record =
                if is_packed { Record::from_bytes(bytes) } else { Record::from_payload(bytes) };
            let Ok(record) = record else { return (records, sum, false) };
            records.push(record);
        }
        sum = got;
    }
    (records, sum, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Change;
    use types::Ino;

    fn record(tid: u64) -> Record {
        let change = Change::Request { version: tid, client: 4, tid, ino: Ino(tid) };
        Record { seq: 0, changes: vec![change] }
    }

    /// A file is made, and closed again: what that costs when others were made before.
    #[test]
    fn a_create_is_small() {
        let mut j = Journal::resume(0, 0, 5, VecDeque::new());
        let (mut image, mut all) = (Vec::new(), Vec::new());
        for n in 0..200u64 {
            for step in 0..2 {
                let mut record = crate::record::a_create(n, step);
                j.submit(&mut record);
                all.push(record);
                image.extend_from_slice(&j.next().unwrap().data);
                j.appended();
            }
        }
        let each = image.len() / 200;
        assert!(each < 300, "{each} bytes");
        let (records, sum, whole) = read_object(&image, 5);
        assert_eq!((sum, whole), (j.sum, true));
        assert!(records == all);
        // Where a byte is another nothing behind it is taken, whatever it says.
        for at in (8..image.len()).step_by(997) {
            let mut broken = image.clone();
            broken[at] ^= 0x40;
            let (records, _, whole) = read_object(&broken, 5);
            assert!(!whole && records[..] == all[..records.len()], "{at}");
        }
    }

    /// The journal of an earlier version.
    #[test]
    fn batches_that_are_not_packed() {
        let mut body = Vec::new();
        for n in 1..4 {
            let payload = Record { seq: n, ..record(n) }.to_payload();
            body.extend_from_slice(&(payload.len() as u32).to_le_bytes());
            body.extend_from_slice(&payload);
        }
        let sum = crc32c(9, &body);
        let mut image = (body.len() as u32).to_le_bytes().to_vec();
        image.extend_from_slice(&sum.to_le_bytes());
        image.extend_from_slice(&body);
        let (records, got, whole) = read_object(&image, 9);
        assert_eq!((records.len(), records[2].seq, got, whole), (3, 3, sum, true));
        let mut head = Head { first: 7, sum: 8 }.to_bytes().to_vec();
        let version = 4 + MAGIC.len();
        assert_eq!(head[version..version + 2], [2, 2]);
        head[version..version + 2].copy_from_slice(&[1, 1]);
        assert_eq!(Head::from_bytes(&head), Ok(Head { first: 7, sum: 8 }));
    }

    #[test]
    fn batches_follow_one_another() {
        let mut j = Journal::resume(0, 0, 5, VecDeque::new());
        let mut image = Vec::new();
        for tid in 1..=6 {
            j.submit(&mut record(tid));
            if tid % 2 == 0 {
                let append = j.next().unwrap();
                assert_eq!((append.object, append.off), (1, image.len() as u64));
                image.extend_from_slice(&append.data);
                assert_eq!(j.next(), None, "one write is in flight");
                assert!(!j.is_settled());
                j.appended();
                assert!(j.is_settled());
            }
        }
        let (records, sum, whole) = read_object(&image, 5);
        assert_eq!((records.len(), records[5].seq, whole), (6, 6, true));
        assert_eq!(sum, j.sum);
        assert_eq!(read_object(&image, 6).0.len(), 0, "another chain");
        let (records, _, whole) = read_object(&image[..image.len() - 1], 5);
        assert_eq!((records.len(), whole), (4, false), "a torn batch");
        j.turn();
        let (head, gone) = j.trim(2).unwrap();
        assert_eq!((head, gone), (Head { first: 2, sum }, vec![1]));
        assert_eq!(Head::from_bytes(&head.to_bytes()), Ok(head));
    }
}
