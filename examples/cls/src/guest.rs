//! What a class needs to run inside an OSD: the imports of `argonaut_cls_v1` as safe functions,
//! and an allocator. Copy it into your own class.
//!
//! Source: `docs/protocols/classes-wasm.md`.

use alloc::vec;
use alloc::vec::Vec;
use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicUsize, Ordering};

/// An error number, negative.
pub type Errno = i32;
/// No such object, or key.
pub const ENOENT: Errno = -2;
/// Parameters that make no sense.
pub const EINVAL: Errno = -22;
/// No such attribute.
pub const ENODATA: Errno = -61;

#[link(wasm_import_module = "argonaut_cls_v1")]
#[allow(dead_code)]
unsafe extern "C" {
    fn input_len() -> i32;
    fn input(from: u32, at: *mut u8, len: usize) -> i32;
    fn output(at: *const u8, len: usize) -> i32;
    fn log(level: u32, at: *const u8, len: usize) -> i32;
    fn stat(at: *mut u8) -> i32;
    fn read(off: u64, at: *mut u8, len: usize) -> i32;
    fn append(at: *const u8, len: usize) -> i32;
    fn write_full(at: *const u8, len: usize) -> i32;
    fn getxattr(name: *const u8, len: usize, at: *mut u8, room: usize) -> i32;
    fn setxattr(name: *const u8, len: usize, at: *const u8, vlen: usize) -> i32;
    fn omap_get(key: *const u8, len: usize, at: *mut u8, room: usize) -> i32;
    fn omap_set(key: *const u8, len: usize, at: *const u8, vlen: usize) -> i32;
    #[allow(clippy::too_many_arguments)]
    fn omap_list(
        after: *const u8,
        after_len: usize,
        prefix: *const u8,
        prefix_len: usize,
        max: u32,
        at: *mut u8,
        room: usize,
    ) -> i32;
}

fn done(result: i32) -> Result<(), Errno> {
    if result < 0 { Err(result) } else { Ok(()) }
}

/// Asks with some room, and again with enough where that was too little.
fn whole(ask: impl Fn(&mut [u8]) -> i32) -> Result<Vec<u8>, Errno> {
    let mut room = vec![0; 256];
    loop {
        let len = ask(&mut room);
        done(len)?;
        let fits = len as usize <= room.len();
        room.resize(len as usize, 0);
        if fits {
            return Ok(room);
        }
    }
}

/// What the client sent.
pub fn params() -> Vec<u8> {
    // SAFETY: the host writes to the buffer, at most its length.
    unsafe {
        let mut data = vec![0; input_len() as usize];
        input(0, data.as_mut_ptr(), data.len());
        data
    }
}

/// Appends to what the client gets.
pub fn reply(data: &[u8]) {
    // SAFETY: the host reads the slice; so in all functions below.
    unsafe { output(data.as_ptr(), data.len()) };
}

/// A line in the OSD's log: 0 error, 1 warning, 2 info, 3 debug.
pub fn say(level: u32, text: &str) {
    unsafe { log(level, text.as_ptr(), text.len()) };
}

/// The object's size in bytes.
pub fn size() -> Result<u64, Errno> {
    let mut out = [0; 16];
    done(unsafe { stat(out.as_mut_ptr()) })?;
    Ok(u64::from_le_bytes(out[..8].try_into().unwrap_or_default()))
}

/// Fills `out` with data from an offset on; gives how many bytes there were.
pub fn read_at(off: u64, out: &mut [u8]) -> Result<usize, Errno> {
    let n = unsafe { read(off, out.as_mut_ptr(), out.len()) };
    done(n).map(|()| n as usize)
}

/// Writes at the end; creates the object.
pub fn append_data(data: &[u8]) -> Result<(), Errno> {
    done(unsafe { append(data.as_ptr(), data.len()) })
}

/// An attribute.
pub fn attr(name: &str) -> Result<Vec<u8>, Errno> {
    whole(|out| unsafe { getxattr(name.as_ptr(), name.len(), out.as_mut_ptr(), out.len()) })
}

/// Sets an attribute.
pub fn set_attr(name: &str, value: &[u8]) -> Result<(), Errno> {
    done(unsafe { setxattr(name.as_ptr(), name.len(), value.as_ptr(), value.len()) })
}

/// A value of the omap.
pub fn value(key: &[u8]) -> Result<Vec<u8>, Errno> {
    whole(|out| unsafe { omap_get(key.as_ptr(), key.len(), out.as_mut_ptr(), out.len()) })
}

/// Sets a pair of the omap.
pub fn set_value(key: &[u8], value: &[u8]) -> Result<(), Errno> {
    done(unsafe { omap_set(key.as_ptr(), key.len(), value.as_ptr(), value.len()) })
}

/// Pairs of the omap behind a key, and whether there are more.
pub fn values(after: &[u8], max: u32) -> Result<(Vec<(Vec<u8>, Vec<u8>)>, bool), Errno> {
    let mut room = vec![0; 64 << 10];
    let (at, len) = (room.as_mut_ptr(), room.len());
    let (from, n) = (after.as_ptr(), after.len());
    done(unsafe { omap_list(from, n, from, 0, max, at, len) })?;
    let mut rest = &room[..];
    let number = |rest: &mut &[u8]| {
        let (n, tail) = rest.split_at(4);
        *rest = tail;
        u32::from_le_bytes(n.try_into().unwrap_or_default()) as usize
    };
    let (more, count) = (number(&mut rest) != 0, number(&mut rest));
    let mut pairs = Vec::with_capacity(count);
    for _ in 0..count {
        let mut part = || {
            let len = number(&mut rest);
            let (part, tail) = rest.split_at(len);
            rest = tail;
            part.to_vec()
        };
        pairs.push((part(), part()));
    }
    Ok((pairs, more))
}

/// Memory that is never given back: an instance lives for one call.
struct Bump(AtomicUsize);

#[global_allocator]
static ALLOCATOR: Bump = Bump(AtomicUsize::new(0));

const PAGE: usize = 65_536;

// SAFETY: each block begins where the one before ended, inside of memory that was grown for it;
// there is one thread.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let end = core::arch::wasm32::memory_size(0) * PAGE;
        // What the module came with belongs to data and stack.
        let next = match self.0.load(Ordering::Relaxed) {
            0 => end,
            next => next,
        };
        let start = next.next_multiple_of(layout.align());
        let Some(stop) = start.checked_add(layout.size()) else { return core::ptr::null_mut() };
        if stop > end {
            let pages = (stop - end).div_ceil(PAGE);
            if core::arch::wasm32::memory_grow(0, pages) == usize::MAX {
                return core::ptr::null_mut();
            }
        }
        self.0.store(stop, Ordering::Relaxed);
        start as *mut u8
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    say(0, "the class panicked");
    core::arch::wasm32::unreachable()
}
