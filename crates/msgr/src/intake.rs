//! Where the bytes of a socket arrive.
//!
//! Most go to the *stage*, a buffer of [`STAGE_LEN`] bytes that one read fills with as many frames
//! as the socket has. When a long segment is under way, the rest of it is read right into the
//! segment's own buffer ([`Intake::read_buf`]), so a payload is copied at most for the part that
//! came together with its header.

use bytes::buf::Limit;
use bytes::{Buf, BufMut, BytesMut};

/// Capacity of the stage.
pub(crate) const STAGE_LEN: usize = 32 << 10;
/// From this many missing bytes on, a segment is read straight into its buffer.
const DIRECT_MIN: usize = 8 << 10;
/// Data from here on lies on a page boundary, so that it can go to a disk as it is.
pub(crate) const ALIGN_MIN: usize = 32 << 10;
const PAGE: usize = 4096;

/// A buffer being filled to `len` bytes.
pub(crate) struct Target {
    pub(crate) buf: BytesMut,
    pub(crate) len: usize,
}

impl Target {
    fn missing(&self) -> usize {
        self.len - self.buf.len()
    }
}

/// A buffer for `len` bytes, of which offset `lead` lies on a page boundary.
pub(crate) fn page_buffer(len: usize, lead: usize) -> BytesMut {
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

/// One direction of a connection, before it is cut into frames.
#[derive(Default)]
pub(crate) struct Intake {
    /// What has come and belongs to no segment yet.
    pub(crate) stage: BytesMut,
    /// The segment under way.
    pub(crate) target: Option<Target>,
}

impl Intake {
    /// Where the next bytes of the socket belong.
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

    /// Bytes held.
    pub(crate) fn held(&self) -> usize {
        self.stage.len() + self.target.as_ref().map_or(0, |target| target.buf.len())
    }

    /// A buffer with the next `len` bytes, when all have come. `make` allocates it, with a
    /// beginning that counts towards `len`.
    pub(crate) fn gather(
        &mut self,
        len: usize,
        make: impl FnOnce() -> BytesMut,
    ) -> Option<BytesMut> {
        let target = self.target.get_or_insert_with(|| Target { buf: make(), len });
        let n = target.missing().min(self.stage.len());
        target.buf.extend_from_slice(&self.stage[..n]);
        self.stage.advance(n);
        if target.missing() > 0 {
            return None;
        }
        self.target.take().map(|target| target.buf)
    }

    /// The next `N` bytes, when all have come.
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let raw = *self.stage.first_chunk::<N>()?;
        self.stage.advance(N);
        Some(raw)
    }
}
