//! From bytes to frames.
//!
//! Bytes arrive in one of two places. Most go to the *stage*, a buffer of [`STAGE_LEN`]
//! bytes that one read fills with as many frames as the socket has. When a long segment is
//! under way, the reader asks for the rest of it right in the segment's own buffer
//! ([`FrameReader::read_buf`]), so a payload is copied at most for the part that came
//! together with its header.
//!
//! ```text
//!   Preamble ──► Head ──► Segment 1..3 ──► Tail ──► Preamble        crc mode
//!   Preamble ──► Head ──────► Body ───────────────► Preamble        secure mode
//! ```
//! Nothing is allocated before the preamble's crc (or tag) was verified and its lengths
//! were found within limits.

use bytes::buf::Limit;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use stdx::{BlockSums, crc32c};

use crate::Fault;
use crate::frame::{
    ABORTED, COMPLETE, EPILOGUE_LEN, HEADER_LEN, Header, PREAMBLE_LEN, Preamble, padded, tag,
};
use crate::secure::{self, Cipher, INLINE_LEN, TAG_LEN};

/// Capacity of the stage.
pub(crate) const STAGE_LEN: usize = 32 << 10;
/// From this many missing bytes on, a segment is read straight into its buffer.
const DIRECT_MIN: usize = 8 << 10;
/// Alignment of data segments of at least this size.
/// Data from here on lies on a page boundary, so that it can go to a disk as it is.
const ALIGN_MIN: usize = 32 << 10;
const PAGE: usize = 4096;

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

/// A buffer being filled to `len` bytes.
struct Target {
    buf: BytesMut,
    len: usize,
}

impl Target {
    fn missing(&self) -> usize {
        self.len - self.buf.len()
    }
}

/// Cuts one direction of a connection into frames.
pub(crate) struct FrameReader {
    stage: BytesMut,
    state: State,
    cipher: Option<Cipher>,
    /// The peer may send messages and long control frames.
    pub(crate) ready: bool,
    /// Do not begin another frame.
    pub(crate) hold: bool,
    /// Raw bytes of the handshake, for the signature.
    pub(crate) record: Option<Vec<u8>>,
    target: Option<Target>,
    head: Bytes,
    header: Header,
    segments: [Bytes; 3],
    crcs: [u32; 3],
    /// Of segment 3, where it is large.
    data_sums: Option<BlockSums>,
}

/// A buffer for `len` bytes, of which offset `lead` lies on a page boundary.
fn page_buffer(len: usize, lead: usize) -> BytesMut {
    if lead.is_multiple_of(PAGE) {
        // The daemons' allocator gives whole pages; what is added to align would cost it the
        // next class of sizes, a quarter more.
        let buf = BytesMut::with_capacity(len);
        if (buf.as_ptr() as usize).is_multiple_of(PAGE) {
            return buf;
        }
    }
    let mut buf = BytesMut::with_capacity(len + PAGE - 1);
    let pad = (PAGE - (buf.as_ptr() as usize + lead) % PAGE) % PAGE;
    buf.resize(pad, 0);
    buf.advance(pad);
    buf
}

impl FrameReader {
    pub(crate) fn new() -> Self {
        Self {
            stage: BytesMut::new(),
            state: State::Preamble,
            cipher: None,
            ready: false,
            hold: false,
            record: Some(Vec::new()),
            target: None,
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

    /// Where the next bytes of the socket belong. Whoever fills it calls
    /// [`FrameReader::next`] until it gives nothing.
    pub(crate) fn read_buf(&mut self) -> Limit<&mut BytesMut> {
        if let Some(target) = &mut self.target
            && target.missing() >= DIRECT_MIN
        {
            let missing = target.missing();
            return (&mut target.buf).limit(missing);
        }
        if self.stage.is_empty() {
            self.stage.reserve(STAGE_LEN);
        } else if self.stage.capacity() - self.stage.len() < PAGE {
            let mut stage = BytesMut::with_capacity(STAGE_LEN.max(2 * self.stage.len()));
            stage.extend_from_slice(&self.stage);
            self.stage = stage;
        }
        let room = self.stage.capacity() - self.stage.len();
        (&mut self.stage).limit(room)
    }

    /// Takes `spare` for a stage unless there are bytes in the present one.
    pub(crate) fn lend_stage(&mut self, spare: &mut Option<BytesMut>) {
        if self.stage.is_empty()
            && let Some(stage) = spare.take()
        {
            self.stage = stage;
        }
    }

    /// Gives the stage back while it is empty.
    pub(crate) fn reclaim_stage(&mut self, spare: &mut Option<BytesMut>) {
        if self.stage.is_empty() {
            *spare = Some(std::mem::take(&mut self.stage));
        }
    }

    /// Bytes held in buffers of its own.
    pub(crate) fn held(&self) -> usize {
        let target = self.target.as_ref().map_or(0, |target| target.buf.len());
        let segments: usize = self.segments.iter().map(Bytes::len).sum();
        self.stage.len() + target + segments + self.head.len()
    }

    /// The first bytes at hand, outside of any frame.
    pub(crate) fn peek(&self) -> &[u8] {
        &self.stage
    }

    /// Consumes `n` bytes of what [`FrameReader::peek`] showed: the banner.
    pub(crate) fn consume(&mut self, n: usize) {
        if let Some(record) = &mut self.record {
            record.extend_from_slice(&self.stage[..n]);
        }
        self.stage.advance(n);
    }

    /// A buffer with the next `len` bytes, when all have come. `make` allocates it, with a
    /// beginning that counts towards `len`.
    fn gather(&mut self, len: usize, make: impl FnOnce() -> BytesMut) -> Option<BytesMut> {
        let target = self.target.get_or_insert_with(|| Target { buf: make(), len });
        let n = target.missing().min(self.stage.len());
        target.buf.extend_from_slice(&self.stage[..n]);
        self.stage.advance(n);
        if target.missing() > 0 {
            return None;
        }
        self.target.take().map(|target| target.buf)
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
                        let buf = self.gather(len, || {
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
                    if self.stage.len() < EPILOGUE_LEN {
                        return Ok(None);
                    }
                    let status = self.stage[0] & 0x0f;
                    let sent: [u32; 3] = std::array::from_fn(|i| {
                        let raw = &self.stage[1 + 4 * i..5 + 4 * i];
                        u32::from_le_bytes(raw.try_into().expect("four bytes"))
                    });
                    self.stage.advance(EPILOGUE_LEN);
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
                    let buf = self.gather(len, || {
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
        let Some(raw) = self.stage.first_chunk::<PREAMBLE_LEN>() else { return Ok(None) };
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
            let Some(raw) = self.stage.first_chunk::<{ HEADER_LEN + 4 }>() else {
                return Ok(false);
            };
            let (head, crc) = raw.split_first_chunk::<HEADER_LEN>().expect("longer");
            if crc32c(!0, head).to_le_bytes() != crc {
                return Err(Fault::Crc("header"));
            }
            self.header = Header::parse(head);
            self.stage.advance(HEADER_LEN + 4);
            return Ok(true);
        }
        let Some(mut buf) = self.gather(len + 4, || BytesMut::with_capacity(len + 4)) else {
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
        if self.stage.len() < UNIT {
            return Ok(None);
        }
        self.cipher.as_mut().expect("secure mode").open(&mut self.stage[..UNIT])?;
        let raw = self.stage.first_chunk::<PREAMBLE_LEN>().expect("unit is longer");
        let pre = Preamble::parse(raw, self.ready)?;
        self.stage.advance(PREAMBLE_LEN);
        Ok(Some(pre))
    }

    fn secure_head(&mut self, pre: &Preamble) -> Result<bool, Fault> {
        let len = pre.lens[0] as usize;
        if padded(pre.lens[0]) <= INLINE_LEN {
            if pre.tag == tag::MESSAGE {
                let raw = self.stage.first_chunk::<HEADER_LEN>().expect("inline bytes");
                self.header = Header::parse(raw);
            } else {
                self.head = Bytes::copy_from_slice(&self.stage[..len]);
            }
            self.stage.advance(INLINE_LEN + TAG_LEN);
            return Ok(true);
        }
        let unit = padded(pre.lens[0]) + TAG_LEN;
        if self.target.is_none() {
            let mut buf = BytesMut::with_capacity(unit);
            buf.extend_from_slice(&self.stage[..INLINE_LEN]);
            self.stage.advance(INLINE_LEN + TAG_LEN);
            self.target = Some(Target { buf, len: unit });
        }
        let Some(mut buf) = self.gather(unit, BytesMut::new) else { return Ok(false) };
        self.cipher.as_mut().expect("secure mode").open(&mut buf[INLINE_LEN..])?;
        buf.truncate(len);
        self.head = buf.freeze();
        Ok(true)
    }
}
