//! Where bytes of new objects come from: bodies of requests, and objects that are copied.

use std::collections::VecDeque;

use rgw_core::crypt::{CHUNK, Cipher, part_at};
use rgw_core::meta::BucketAt;
use rgw_core::object::{HEAD_BYTES, ObjectAt};
use rgw_proto::Result;
use rgw_proto::checksum::{self, Sums};
use types::Bytes;

use crate::body::Reader;
use crate::crypt::ObjectKey;
use crate::server::Server;

/// What bytes come from.
pub(crate) trait Source {
    /// How many there are; `None` where that is not told.
    fn len(&self) -> Option<u64>;
    /// The next bytes; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>>;
    /// What they sum to.
    fn finish(self) -> Result<Sums>;
}

impl Source for Reader {
    fn len(&self) -> Option<u64> {
        self.len
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        Reader::next(self).await
    }

    fn finish(self) -> Result<Sums> {
        Reader::finish(self)
    }
}

/// Bytes of an object that is copied, decrypted where it has a key.
pub(crate) struct Opened<'a> {
    server: &'a Server,
    bucket: &'a BucketAt,
    object: &'a ObjectAt,
    cipher: Option<Cipher>,
    parts: Vec<(u32, u64, u64)>,
    reads: Reads<rgw_core::objects::Place>,
    at: u64,
    range: (u64, u64),
    sums: checksum::Body,
}

impl<'a> Opened<'a> {
    /// Of a range: first byte and length.
    pub(crate) fn new(
        server: &'a Server,
        bucket: &'a BucketAt,
        object: &'a ObjectAt,
        key: Option<&ObjectKey>,
        (from, len): (u64, u64),
    ) -> Self {
        let end = from + len;
        let parts = object.manifest.as_ref().map(|m| m.part_bounds()).unwrap_or_default();
        let (first, last) = match key {
            Some(_) => aligned(&parts, object.size, from, end),
            None => (from, end),
        };
        let reads = Reads::new(server.gateway.reads(bucket, object, first, last - first));
        let sums = checksum::Body::new(checksum::Expected::default());
        let cipher = key.map(ObjectKey::cipher);
        let range = (from, end);
        Self { server, bucket, object, cipher, parts, reads, at: first, range, sums }
    }
}

impl Source for Opened<'_> {
    fn len(&self) -> Option<u64> {
        Some(self.range.1 - self.range.0)
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        let Some(read) = self.reads.next(HEAD_BYTES) else { return Ok(None) };
        let piece = self.server.gateway.read(self.bucket, self.object, &read).await?;
        let begin = self.at;
        self.at += piece.len() as u64;
        let (from, end) = self.range;
        let bytes = match &self.cipher {
            None => piece,
            Some(cipher) => {
                let (part, _) = part_at(&self.parts, self.object.size, begin);
                let mut open = piece.to_vec();
                cipher.decrypt(begin - part, &mut open);
                let (cut, keep) = (from.max(begin), end.min(self.at).max(from.max(begin)));
                Bytes::from(open).slice((cut - begin) as usize..(keep - begin) as usize)
            }
        };
        self.sums.update(&bytes);
        Ok(Some(bytes))
    }

    fn finish(self) -> Result<Sums> {
        self.sums.finish(&[])
    }
}

/// The chunks of cipher that a run of bytes lies in: from the first one's beginning to the last one's end.
pub(crate) fn aligned(parts: &[(u32, u64, u64)], size: u64, from: u64, end: u64) -> (u64, u64) {
    if from >= end {
        return (from, end);
    }
    let chunk = CHUNK as u64;
    let (first, _) = part_at(parts, size, from);
    let (last, last_len) = part_at(parts, size, end - 1);
    let until = (end - last).next_multiple_of(chunk).min(last_len);
    (first + (from - first) / chunk * chunk, last + until)
}

/// Runs to be read, cut as memory allows; one answer of RADOS is never larger than a head.
pub(crate) struct Reads<P>(VecDeque<(P, u64, u64)>);

impl<P: Clone> Reads<P> {
    pub(crate) fn new(reads: Vec<(P, u64, u64)>) -> Self {
        Self(reads.into_iter().filter(|read| read.2 > 0).collect())
    }

    /// Bytes that the next read would have.
    pub(crate) fn next_len(&self) -> u64 {
        self.0.front().map_or(0, |read| read.2.min(HEAD_BYTES))
    }

    /// The next read, of `most` bytes at most.
    pub(crate) fn next(&mut self, most: u64) -> Option<(P, u64, u64)> {
        let (at, from, left) = self.0.front_mut()?;
        let len = (*left).min(most);
        let read = (at.clone(), *from, len);
        *from += len;
        *left -= len;
        if *left == 0 {
            self.0.pop_front();
        }
        Some(read)
    }
}
