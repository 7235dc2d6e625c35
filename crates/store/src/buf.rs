//! Memory aligned for direct I/O.

use std::sync::{Arc, Mutex};

use bytes::Bytes;

/// What direct I/O asks of addresses on every disk we know of, and blocks of ours.
pub(crate) const ALIGN: usize = 4096;

#[repr(C, align(4096))]
#[derive(Clone, Copy)]
struct Page([u8; ALIGN]);

/// A growing buffer whose first byte lies on a page.
#[derive(Default)]
pub struct AlignedBuf {
    pages: Vec<Page>,
    len: usize,
}

impl AlignedBuf {
    /// Empty, with room.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self { pages: Vec::with_capacity(bytes.div_ceil(ALIGN)), len: 0 }
    }

    /// `len` zeros.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self { pages: vec![Page([0; ALIGN]); len.div_ceil(ALIGN)], len }
    }

    /// Bytes in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Empties it; the memory stays.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    fn grow(&mut self, len: usize) {
        let pages = len.div_ceil(ALIGN);
        if pages > self.pages.len() {
            self.pages.resize(pages, Page([0; ALIGN]));
        }
    }

    /// Appends a copy.
    pub fn put(&mut self, bytes: &[u8]) {
        let at = self.len;
        self.grow(at + bytes.len());
        self.len += bytes.len();
        self[at..].copy_from_slice(bytes);
    }

    /// Zeros up to the next multiple of a page.
    pub fn pad(&mut self) {
        let at = self.len;
        self.len = at.next_multiple_of(ALIGN);
        self.grow(self.len);
        self[at..].fill(0);
    }

    /// Grows or cuts; bytes new to it are whatever was there before, zeros at first.
    pub fn set_len(&mut self, len: usize) {
        self.grow(len);
        self.len = len;
    }

    /// Its bytes, without a copy.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl std::ops::Deref for AlignedBuf {
    type Target = [u8];
    #[allow(unsafe_code)]
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` never passes the pages, which are initialised plain bytes.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.len) }
    }
}

impl std::ops::DerefMut for AlignedBuf {
    #[allow(unsafe_code)]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the borrow of `self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.len) }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Large buffers that come back when their last reader is done, so that a read neither
/// clears memory nor waits for the system to find some.
#[derive(Clone, Default)]
pub(crate) struct Pool(Arc<Mutex<Vec<AlignedBuf>>>);

/// Bytes kept, and the smallest and the largest buffers that are.
const KEPT_MAX: usize = 32 << 20;
const KEPT: std::ops::RangeInclusive<usize> = 64 << 10..=8 << 20;

/// A buffer of a [`Pool`].
pub(crate) struct Pooled {
    buf: AlignedBuf,
    pool: Pool,
}

impl AlignedBuf {
    fn room(&self) -> usize {
        self.pages.len() * ALIGN
    }
}

impl Pool {
    /// `len` bytes of anything.
    pub fn take(&self, len: usize) -> Pooled {
        let mut buf = AlignedBuf::default();
        if KEPT.contains(&len) {
            let mut kept = self.0.lock().expect("no holder of this lock panics");
            if let Some(i) = kept.iter().position(|b| (len..=2 * len).contains(&b.room())) {
                buf = kept.swap_remove(i);
            }
        }
        buf.set_len(len);
        Pooled { buf, pool: self.clone() }
    }
}

impl Pooled {
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl std::ops::Deref for Pooled {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buf
    }
}

impl std::ops::DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buf
    }
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if !KEPT.contains(&self.buf.room()) {
            return;
        }
        let mut kept = self.pool.0.lock().expect("no holder of this lock panics");
        let mut bytes = self.buf.room() + kept.iter().map(AlignedBuf::room).sum::<usize>();
        while bytes > KEPT_MAX {
            bytes -= kept.remove(0).room();
        }
        kept.push(std::mem::take(&mut self.buf));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes are where they were put, whatever it grows, is cut and is padded to.
    #[test]
    fn holds_what_was_put() {
        let mut buf = AlignedBuf::with_capacity(10);
        assert!(buf.is_empty() && buf[..].is_empty());
        buf.put(b"first");
        buf.put(&[7; ALIGN]);
        assert_eq!((&buf[..5], &buf[5..]), (&b"first"[..], &[7; ALIGN][..]));
        assert!(buf.as_ptr().addr().is_multiple_of(ALIGN));
        buf.pad();
        assert_eq!(buf.len(), 2 * ALIGN);
        assert!(buf[5 + ALIGN..].iter().all(|b| *b == 0));
        buf[2 * ALIGN - 1] = 9;
        buf.set_len(3 * ALIGN);
        assert_eq!((buf[2 * ALIGN - 1], buf[3 * ALIGN - 1]), (9, 0));
        buf.clear();
        buf.put(b"x");
        let frozen = buf.freeze();
        assert_eq!(&frozen.clone()[..], b"x");
        assert_eq!(AlignedBuf::zeroed(ALIGN + 1)[..], [0; ALIGN + 1]);
    }

    /// A buffer comes back when its last reader is done, and is used again.
    #[test]
    fn pooled_buffers_come_back() {
        let pool = Pool::default();
        let mut taken = pool.take(*KEPT.start());
        taken[0] = 1;
        let at = taken.as_ptr();
        let (read, again) = (taken.freeze(), pool.take(*KEPT.start()));
        assert_ne!(again.as_ptr(), at, "it is being read");
        let reader = read.slice(..1);
        drop(read);
        assert_eq!(reader[0], 1);
        drop(reader);
        let taken = pool.take(*KEPT.start());
        assert_eq!((taken.as_ptr(), taken[0]), (at, 1));
    }
}
