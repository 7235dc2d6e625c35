//! From frames to bytes.
//!
//! Small things (control frames, headers, short segments) are gathered in one growing
//! buffer; a long segment is put between two such buffers as it is. So a batch of small
//! frames leaves in one piece, and payload is never copied in crc mode.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};
use messages::Envelope;
use stdx::{BlockSums, crc32c};

use crate::Fault;
use crate::frame::{COMPLETE, Header, PREAMBLE_LEN, Preamble, padded, tag};
use crate::secure::{Cipher, EPILOGUE_LEN, INLINE_LEN, TAG_LEN};

/// Segments below this size are copied next to their neighbours.
const COPY_MAX: usize = 1024;
/// Growth step of the gathering buffer.
const TAIL_LEN: usize = 16 << 10;

/// Assembles one direction of a connection.
pub(crate) struct FrameWriter {
    /// Finished pieces, then `tail`.
    pieces: VecDeque<Bytes>,
    tail: BytesMut,
    len: usize,
    cipher: Option<Cipher>,
    /// Raw bytes of the handshake, for the signature.
    pub(crate) record: Option<Vec<u8>>,
}

impl FrameWriter {
    pub(crate) fn new() -> Self {
        Self {
            pieces: VecDeque::new(),
            tail: BytesMut::new(),
            len: 0,
            cipher: None,
            record: Some(Vec::new()),
        }
    }

    /// From the next frame on, everything is encrypted.
    pub(crate) fn secure(&mut self, cipher: Cipher) {
        self.cipher = Some(cipher);
    }

    /// Bytes not yet taken by the socket.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Fills `out` with what is to be written next; returns how many entries are used.
    pub(crate) fn slices<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        let tail = (!self.tail.is_empty()).then_some(&self.tail[..]);
        let pieces = self.pieces.iter().map(|piece| &piece[..]).chain(tail);
        out.iter_mut().zip(pieces).map(|(slot, piece)| *slot = IoSlice::new(piece)).count()
    }

    /// The socket took the first `n` bytes.
    ///
    /// # Panics
    /// When there were fewer.
    pub(crate) fn advance(&mut self, mut n: usize) {
        assert!(n <= self.len, "only bytes that are there are taken");
        self.len -= n;
        while n > 0 {
            let Some(front) = self.pieces.front_mut() else {
                self.tail.advance(n);
                break;
            };
            if front.len() > n {
                front.advance(n);
                break;
            }
            n -= front.len();
            self.pieces.pop_front();
        }
        if self.tail.is_empty() {
            self.tail.clear();
        }
    }

    /// Room for `n` more bytes at the end of the gathering buffer.
    fn room(&mut self, n: usize) {
        if self.tail.capacity() - self.tail.len() < n {
            self.seal_tail();
            self.tail.reserve(n.max(TAIL_LEN));
        }
    }

    fn seal_tail(&mut self) {
        if !self.tail.is_empty() {
            let piece = self.tail.split().freeze();
            self.pieces.push_back(piece);
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Bytes outside of any frame: the banner.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.room(bytes.len());
        self.put(bytes);
        if let Some(record) = &mut self.record {
            record.extend_from_slice(bytes);
        }
    }

    /// A part of a message, as it is.
    pub(crate) fn segment(&mut self, segment: &Bytes) {
        if segment.len() < COPY_MAX {
            self.room(segment.len());
            self.put(segment);
        } else {
            self.seal_tail();
            self.len += segment.len();
            self.pieces.push_back(segment.clone());
        }
    }

    /// A control frame.
    ///
    /// # Errors
    /// [`Fault::Sealed`] when the nonces are used up.
    pub(crate) fn control(&mut self, tag: u8, payload: &[u8]) -> Result<(), Fault> {
        let len = u32::try_from(payload.len()).expect("control frames are short");
        let pre = Preamble::new(tag, [len, 0, 0, 0]);
        if self.cipher.is_some() {
            return self.secure_head(&pre, payload);
        }
        self.room(PREAMBLE_LEN + payload.len() + 4);
        let start = self.tail.len();
        self.plain_head(&pre, payload);
        if let Some(record) = &mut self.record {
            record.extend_from_slice(&self.tail[start..]);
        }
        Ok(())
    }

    /// A message.
    ///
    /// # Errors
    /// [`Fault::Sealed`] when the nonces are used up.
    pub(crate) fn message(&mut self, header: &Header, env: &Envelope) -> Result<(), Fault> {
        let len = |bytes: &Bytes| u32::try_from(bytes.len()).expect("segments are limited");
        let (head, segments) = (header.encode(), [&env.front, &env.middle, &env.data]);
        let lens = [head.len() as u32, len(&env.front), len(&env.middle), len(&env.data)];
        let pre = Preamble::new(tag::MESSAGE, lens);
        if self.cipher.is_some() {
            self.secure_head(&pre, &head)?;
            return if pre.count > 1 { self.secure_body(&pre, segments) } else { Ok(()) };
        }
        self.room(PREAMBLE_LEN + head.len() + 4);
        self.plain_head(&pre, &head);
        if pre.count == 1 {
            return Ok(());
        }
        let mut epilogue = [0; crate::frame::EPILOGUE_LEN];
        epilogue[0] = COMPLETE;
        for (i, segment) in segments.into_iter().enumerate() {
            if i + 1 >= usize::from(pre.count) {
                break;
            }
            let sums = env.data_sums.as_ref().filter(|_| i == 2);
            let known = sums.filter(|sums| sums.data_len() == segment.len()).map(BlockSums::crc);
            debug_assert!(
                known.is_none_or(|crc| crc == crc32c(!0, segment)),
                "the sums are not the data's"
            );
            let crc = known.unwrap_or_else(|| crc32c(!0, segment));
            epilogue[1 + 4 * i..5 + 4 * i].copy_from_slice(&crc.to_le_bytes());
            self.segment(segment);
        }
        self.room(epilogue.len());
        self.put(&epilogue);
        Ok(())
    }

    fn plain_head(&mut self, pre: &Preamble, head: &[u8]) {
        self.put(&pre.encode());
        if !head.is_empty() {
            self.put(head);
            self.put(&crc32c(!0, head).to_le_bytes());
        }
    }

    /// Encrypts what the gathering buffer holds from `start` on, and puts the tag behind.
    fn seal_from(&mut self, start: usize) -> Result<(), Fault> {
        let cipher = self.cipher.as_mut().expect("secure mode");
        let mac = cipher.seal(&mut self.tail[start..])?;
        self.put(&mac);
        Ok(())
    }

    fn secure_head(&mut self, pre: &Preamble, head: &[u8]) -> Result<(), Fault> {
        let full = padded(pre.lens[0]);
        self.room(PREAMBLE_LEN + INLINE_LEN + full + 2 * TAG_LEN);
        let start = self.tail.len();
        self.put(&pre.encode());
        let inline = head.len().min(INLINE_LEN);
        self.put(&head[..inline]);
        self.put(&[0; INLINE_LEN][inline..]);
        self.seal_from(start)?;
        if full > INLINE_LEN {
            let start = self.tail.len();
            self.put(&head[INLINE_LEN..]);
            self.put(&[0; 16][..full - head.len()]);
            self.seal_from(start)?;
        }
        Ok(())
    }

    fn secure_body(&mut self, pre: &Preamble, segments: [&Bytes; 3]) -> Result<(), Fault> {
        self.room(pre.body_len() + 3 * 16 + EPILOGUE_LEN + TAG_LEN);
        let start = self.tail.len();
        for segment in segments {
            self.put(segment);
            self.put(&[0; 16][..padded(segment.len() as u32) - segment.len()]);
        }
        let mut epilogue = [0; EPILOGUE_LEN];
        epilogue[0] = COMPLETE;
        self.put(&epilogue);
        self.seal_from(start)
    }
}
