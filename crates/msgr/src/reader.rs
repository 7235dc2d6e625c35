//! From bytes to frames.
//!
//! Where bytes arrive is [`Intake`]'s matter.
//!
//! ```text
//!   Preamble ──► Head ──► Segment 1..3 ──► Tail ──► Preamble        crc mode
//!   Preamble ──► Head ──────► Body ───────────────► Preamble        secure mode
//! ```
//! Nothing is allocated before the preamble's crc (or tag) was verified and its lengths
//! were found within limits.

use bytes::{Buf, Bytes, BytesMut};
use stdx::{BlockSums, crc32c};

use crate::Fault;
use crate::frame::{
    ABORTED, COMPLETE, EPILOGUE_LEN, HEADER_LEN, Header, PREAMBLE_LEN, Preamble, padded, tag,
};
use crate::intake::{ALIGN_MIN, Intake, Target, page_buffer};
use crate::secure::{self, Cipher, INLINE_LEN, TAG_LEN};

/// A frame whose checksums held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    Control {
        tag: u8,
        payload: Bytes,
    },
    Message {
        header: Header,
        front: Bytes,
        middle: Bytes,
        data: Bytes,
        data_sums: Option<BlockSums>,
    },
}

#[derive(Clone, Copy)]
enum State {
    Preamble,
    Head(Preamble),
    Segment(Preamble, usize),
    Tail(Preamble),
    Body(Preamble),
}

/// Cuts one direction of a connection into frames.
pub(crate) struct FrameReader {
    pub(crate) intake: Intake,
    state: State,
    cipher: Option<Cipher>,
    /// The peer may send messages and long control frames.
    pub(crate) ready: bool,
    /// Do not begin another frame.
    pub(crate) hold: bool,
    /// Raw bytes of the handshake, for the signature.
    pub(crate) record: Option<Vec<u8>>,
    head: Bytes,
    header: Header,
    segments: [Bytes; 3],
    crcs: [u32; 3],
    /// Of segment 3, where it is large.
    data_sums: Option<BlockSums>,
}

impl FrameReader {
    pub(crate) fn new() -> Self {
        Self {
            intake: Intake::default(),
            state: State::Preamble,
            cipher: None,
            ready: false,
            hold: false,
            record: Some(Vec::new()),
            head: Bytes::new(),
            header: Header::default(),
            segments: Default::default(),
            crcs: [0; 3],
            data_sums: None,
        }
    }

    /// From the next frame on, everything is encrypted.
    pub(crate) fn secure(&mut self, cipher: Cipher) {
        self.cipher = Some(cipher);
    }

    /// Bytes held in buffers of its own.
    pub(crate) fn held(&self) -> usize {
        let segments: usize = self.segments.iter().map(Bytes::len).sum();
        self.intake.held() + segments + self.head.len()
    }

    /// The first bytes at hand, outside of any frame.
    pub(crate) fn peek(&self) -> &[u8] {
        &self.intake.stage
    }

    /// Consumes `n` bytes of what [`FrameReader::peek`] showed: the banner.
    pub(crate) fn consume(&mut self, n: usize) {
        if let Some(record) = &mut self.record {
            record.extend_from_slice(&self.intake.stage[..n]);
        }
        self.intake.stage.advance(n);
    }

    /// The next whole frame. Frames that their sender aborted are passed over.
    ///
    /// # Errors
    /// Any breach of the format; the connection is then beyond saving.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, Fault> {
        loop {
            match self.state {
                State::Preamble => {
                    if self.hold {
                        return Ok(None);
                    }
                    let pre = if self.cipher.is_some() {
                        self.secure_preamble()?
                    } else {
                        self.plain_preamble()?
                    };
                    let Some(pre) = pre else { return Ok(None) };
                    self.state = State::Head(pre);
                }
                State::Head(pre) => {
                    let whole = if self.cipher.is_some() {
                        self.secure_head(&pre)?
                    } else {
                        self.plain_head(&pre)?
                    };
                    if !whole {
                        return Ok(None);
                    }
                    self.state = if pre.count == 1 {
                        State::Preamble
                    } else if self.cipher.is_some() {
                        State::Body(pre)
                    } else {
                        State::Segment(pre, 1)
                    };
                    if pre.count == 1 {
                        return Ok(Some(self.finish(&pre)));
                    }
                }
                State::Segment(pre, i) => {
                    let len = pre.lens[i] as usize;
                    self.crcs[i - 1] = if i < usize::from(pre.count) { !0 } else { 0 };
                    if len > 0 {
                        let buf = self.intake.gather(len, || {
                            if i == 3 && len >= ALIGN_MIN {
                                page_buffer(len, 0)
                            } else {
                                BytesMut::with_capacity(len)
                            }
                        });
                        let Some(buf) = buf else { return Ok(None) };
                        let large = i == 3 && len >= ALIGN_MIN;
                        self.data_sums = if large { BlockSums::of(&buf) } else { None };
                        let known = self.data_sums.as_ref().map(BlockSums::crc);
                        self.crcs[i - 1] = known.unwrap_or_else(|| crc32c(!0, &buf));
                        self.segments[i - 1] = buf.freeze();
                    }
                    self.state = if i == 3 { State::Tail(pre) } else { State::Segment(pre, i + 1) };
                }
                State::Tail(pre) => {
                    if self.intake.stage.len() < EPILOGUE_LEN {
                        return Ok(None);
                    }
                    let status = self.intake.stage[0] & 0x0f;
                    let sent: [u32; 3] = std::array::from_fn(|i| {
                        let raw = &self.intake.stage[1 + 4 * i..5 + 4 * i];
                        u32::from_le_bytes(raw.try_into().expect("four bytes"))
                    });
                    self.intake.stage.advance(EPILOGUE_LEN);
                    self.state = State::Preamble;
                    // An aborted frame may be torn; its crcs say nothing.
                    if let Some(frame) = self.close(&pre, status)? {
                        let n = usize::from(pre.count) - 1;
                        if sent[..n] != self.crcs[..n] {
                            return Err(Fault::Crc("segment"));
                        }
                        return Ok(Some(frame));
                    }
                }
                State::Body(pre) => {
                    let lead = padded(pre.lens[1]) + padded(pre.lens[2]);
                    let plain = lead + padded(pre.lens[3]) + secure::EPILOGUE_LEN;
                    let len = plain + TAG_LEN;
                    let buf = self.intake.gather(len, || {
                        if pre.lens[3] as usize >= ALIGN_MIN {
                            page_buffer(len, lead)
                        } else {
                            BytesMut::with_capacity(len)
                        }
                    });
                    let Some(mut buf) = buf else { return Ok(None) };
                    self.cipher.as_mut().expect("secure mode").open(&mut buf)?;
                    let status = buf[plain - secure::EPILOGUE_LEN] & 0x0f;
                    let body = buf.freeze();
                    let mut at = 0;
                    for i in 1..4 {
                        let len = pre.lens[i] as usize;
                        if len > 0 {
                            self.segments[i - 1] = body.slice(at..at + len);
                        }
                        at += padded(pre.lens[i]);
                    }
                    self.state = State::Preamble;
                    if let Some(frame) = self.close(&pre, status)? {
                        return Ok(Some(frame));
                    }
                }
            }
        }
    }

    /// Judges a frame of several segments by its late status.
    fn close(&mut self, pre: &Preamble, status: u8) -> Result<Option<Frame>, Fault> {
        let frame = self.finish(pre);
        match status {
            COMPLETE => Ok(Some(frame)),
            ABORTED => Ok(None),
            _ => Err(Fault::Frame("a frame ends complete or aborted")),
        }
    }

    fn finish(&mut self, pre: &Preamble) -> Frame {
        let [front, middle, data] = std::mem::take(&mut self.segments);
        let data_sums = self.data_sums.take();
        if pre.tag == tag::MESSAGE {
            Frame::Message { header: self.header, front, middle, data, data_sums }
        } else {
            Frame::Control { tag: pre.tag, payload: std::mem::take(&mut self.head) }
        }
    }

    fn plain_preamble(&mut self) -> Result<Option<Preamble>, Fault> {
        let Some(raw) = self.intake.stage.first_chunk::<PREAMBLE_LEN>() else { return Ok(None) };
        let pre = Preamble::parse(raw, self.ready)?;
        self.consume(PREAMBLE_LEN);
        Ok(Some(pre))
    }

    fn plain_head(&mut self, pre: &Preamble) -> Result<bool, Fault> {
        let len = pre.lens[0] as usize;
        if len == 0 {
            self.head = Bytes::new();
            return Ok(true);
        }
        if pre.tag == tag::MESSAGE {
            let Some(raw) = self.intake.stage.first_chunk::<{ HEADER_LEN + 4 }>() else {
                return Ok(false);
            };
            let (head, crc) = raw.split_first_chunk::<HEADER_LEN>().expect("longer");
            if crc32c(!0, head).to_le_bytes() != crc {
                return Err(Fault::Crc("header"));
            }
            self.header = Header::parse(head);
            self.intake.stage.advance(HEADER_LEN + 4);
            return Ok(true);
        }
        let Some(mut buf) = self.intake.gather(len + 4, || BytesMut::with_capacity(len + 4)) else {
            return Ok(false);
        };
        if let Some(record) = &mut self.record {
            record.extend_from_slice(&buf);
        }
        let crc = buf.split_off(len);
        if crc32c(!0, &buf).to_le_bytes() != crc[..] {
            return Err(Fault::Crc("control segment"));
        }
        self.head = buf.freeze();
        Ok(true)
    }

    /// Preamble and the first bytes of segment 0 are one unit; the latter stay in the
    /// stage, decrypted, for [`FrameReader::secure_head`].
    fn secure_preamble(&mut self) -> Result<Option<Preamble>, Fault> {
        const UNIT: usize = PREAMBLE_LEN + INLINE_LEN + TAG_LEN;
        if self.intake.stage.len() < UNIT {
            return Ok(None);
        }
        self.cipher.as_mut().expect("secure mode").open(&mut self.intake.stage[..UNIT])?;
        let raw = self.intake.stage.first_chunk::<PREAMBLE_LEN>().expect("unit is longer");
        let pre = Preamble::parse(raw, self.ready)?;
        self.intake.stage.advance(PREAMBLE_LEN);
        Ok(Some(pre))
    }

    fn secure_head(&mut self, pre: &Preamble) -> Result<bool, Fault> {
        let len = pre.lens[0] as usize;
        if padded(pre.lens[0]) <= INLINE_LEN {
            if pre.tag == tag::MESSAGE {
                let raw = self.intake.stage.first_chunk::<HEADER_LEN>().expect("inline bytes");
                self.header = Header::parse(raw);
            } else {
                self.head = Bytes::copy_from_slice(&self.intake.stage[..len]);
            }
            self.intake.stage.advance(INLINE_LEN + TAG_LEN);
            return Ok(true);
        }
        let unit = padded(pre.lens[0]) + TAG_LEN;
        if self.intake.target.is_none() {
            let mut buf = BytesMut::with_capacity(unit);
            buf.extend_from_slice(&self.intake.stage[..INLINE_LEN]);
            self.intake.stage.advance(INLINE_LEN + TAG_LEN);
            self.intake.target = Some(Target { buf, len: unit });
        }
        let Some(mut buf) = self.intake.gather(unit, BytesMut::new) else { return Ok(false) };
        self.cipher.as_mut().expect("secure mode").open(&mut buf[INLINE_LEN..])?;
        buf.truncate(len);
        self.head = buf.freeze();
        Ok(true)
    }
}
