//! The process' memory: who gives it, and that it goes back in time.

/// Made for memory that one thread takes and another frees: `docs/adr/0012-jemalloc.md`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What jemalloc reads at its start. Memory that was freed goes back after a minute instead of
/// ten seconds. Large buffers begin where a page does, not somewhere in it: direct writes take
/// no others. A buffer may be cut from freed memory of up to 2^9 times its size. What is small
/// comes from slabs of 64 pages, so that buffers of a request's 4 KiB do not each take a page of
/// the arena's, and a thread keeps more of it for itself: others free what this one takes.
// SAFETY: the name is jemalloc's own and nothing else's; what it finds there is the address of
// a text with a zero at its end, for as long as the process lives.
#[allow(unsafe_code)]
#[unsafe(export_name = "_rjem_malloc_conf")]
static MALLOC_CONF: &[u8] =
    b"dirty_decay_ms:60000,muzzy_decay_ms:60000,cache_oblivious:false,lg_extent_max_active_fit:9,\
      slab_sizes:8-14336:64,tcache_nslots_small_max:2000,lg_tcache_nslots_mul:3\0";

/// Bytes of this process that are in memory.
///
/// # Errors
/// When the system does not tell.
pub fn resident() -> std::io::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
    Ok(pages.unwrap_or(0) * 4096)
}

/// Bytes of memory that are taken and not freed. Costs some microseconds.
pub fn taken() -> u64 {
    count_anew();
    stat(c"stats.allocated")
}

/// Gives back at once what was freed and is kept for the next who asks.
pub fn give_back() {
    // All arenas: `MALLCTL_ARENAS_ALL` of jemalloc.h.
    const PURGE: &std::ffi::CStr = c"arena.4096.purge";
    use std::ptr::null_mut;
    // SAFETY: the name ends with a zero; this control takes and returns nothing, for which
    // jemalloc asks for null pointers.
    #[allow(unsafe_code)]
    let code = unsafe {
        tikv_jemalloc_sys::mallctl(PURGE.as_ptr(), null_mut(), null_mut(), null_mut(), 0)
    };
    if code != 0 {
        tracing::warn!(code, "jemalloc does not give memory back");
    }
}

/// Bytes from which on jemalloc gives buffers an arena of their own, from which they go back as
/// soon as they are freed: its default `oversize_threshold`.
const HUGE: usize = 8 << 20;

/// From now on freed memory goes back by [`give_back`] only, but for buffers of 8 MiB and more. For
/// daemons that take and free buffers of large writes all the time: a page touched anew costs more
/// than all work on it. Of the largest requests that clients make, a few freed buffers would be all that
/// a daemon may take.
pub fn keep() {
    // The arena of large buffers is made by the first one, and is to have the setting from before.
    drop(std::hint::black_box(Vec::<u8>::with_capacity(HUGE)));
    // Those to come, then those that are there: each has its own copy of the setting.
    let arenas: u32 = read(c"arenas.narenas").unwrap_or(0);
    let huge: u32 = read(c"opt.narenas").unwrap_or(u32::MAX);
    let names = ["arenas.dirty_decay_ms".to_owned(), "arenas.muzzy_decay_ms".to_owned()];
    let each = (0..arenas)
        .filter(|i| *i != huge)
        .flat_map(|i| ["dirty", "muzzy"].map(|kind| format!("arena.{i}.{kind}_decay_ms")));
    for name in names.into_iter().chain(each) {
        // Arenas that nobody uses yet do not take it; they get it when they are made.
        write::<isize>(&std::ffi::CString::new(name).expect("no zero within"), -1).ok();
    }
}

/// A control of jemalloc's, whose value is a `T` by its manual page.
fn read<T: Copy + Default>(name: &std::ffi::CStr) -> Option<T> {
    let (mut value, mut size) = (T::default(), size_of::<T>());
    // SAFETY: the name ends with a zero; jemalloc writes at most `size` bytes, and none when the
    // control's value has another size.
    #[allow(unsafe_code)]
    let code = unsafe {
        tikv_jemalloc_sys::mallctl(
            name.as_ptr(),
            (&raw mut value).cast(),
            &raw mut size,
            std::ptr::null_mut(),
            0,
        )
    };
    (code == 0).then_some(value)
}

/// Sets such a control; jemalloc's error number where it does not take the value.
fn write<T: Copy>(name: &std::ffi::CStr, mut value: T) -> Result<(), i32> {
    use std::ptr::null_mut;
    // SAFETY: the name ends with a zero; jemalloc reads a value of just this size or none.
    #[allow(unsafe_code)]
    let code = unsafe {
        let new = (&raw mut value).cast();
        tikv_jemalloc_sys::mallctl(name.as_ptr(), null_mut(), null_mut(), new, size_of::<T>())
    };
    if code == 0 { Ok(()) } else { Err(code) }
}

/// Bytes that were freed and are still in memory, for the next who asks.
fn freed() -> u64 {
    count_anew();
    stat(c"stats.resident").saturating_sub(stat(c"stats.active"))
}

/// Has jemalloc sum up: its numbers are of the last time that this was asked for.
fn count_anew() {
    write::<u64>(c"epoch", 1).ok();
}

/// One of its numbers of bytes.
fn stat(name: &std::ffi::CStr) -> u64 {
    read::<usize>(name).unwrap_or(0) as u64
}

/// A process that had nothing to do for so long keeps no freed memory.
const IDLE_MS: u64 = 60_000;
/// What was free for so long is not needed by the work at hand.
const UNUSED_MS: u64 = 4_000;
/// So much of it is not worth a purge.
const UNUSED_MIN: u64 = 32 << 20;
/// Who takes in so many bytes in that time needs it soon again: a page that was given back costs
/// more than all work on what is written there.
const BUSY_BYTES: u64 = 256 << 20;
/// How often it is looked at.
const LOOK_MS: u64 = 500;

/// Says when freed memory should go back: near the limit at once, after some seconds what a burst
/// has left, and after a minute without work all, once.
#[derive(Debug)]
pub struct Watch {
    worked_ms: u64,
    given_back: bool,
    looked_ms: u64,
    /// The least that was free at any look since then.
    least: u64,
    least_since_ms: u64,
    /// Bytes of messages since then.
    came: u64,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            worked_ms: 0,
            given_back: false,
            looked_ms: 0,
            least: u64::MAX,
            least_since_ms: 0,
            came: 0,
        }
    }
}

impl Watch {
    /// A message of so many bytes came, which takes memory.
    pub fn worked(&mut self, now_ms: u64, bytes: u64) {
        (self.worked_ms, self.given_back) = (now_ms, false);
        self.came += bytes;
    }

    /// How long there was no work, in ms.
    pub fn idle_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.worked_ms)
    }

    /// Whether to [`give_back`] now, with so many bytes in memory and so many allowed.
    pub fn is_due(&mut self, now_ms: u64, resident: u64, target: u64) -> bool {
        let idle = !self.given_back && now_ms >= self.worked_ms + IDLE_MS;
        self.given_back |= idle;
        let mut unused = false;
        if now_ms >= self.looked_ms + LOOK_MS {
            self.looked_ms = now_ms;
            unused = self.is_unused(now_ms, freed());
        }
        idle || unused || resident > target / 8 * 7
    }

    /// Whether much has been free for some time, whatever was taken and freed meanwhile. `freed` bytes
    /// are now.
    fn is_unused(&mut self, now_ms: u64, freed: u64) -> bool {
        let long = now_ms >= self.least_since_ms + UNUSED_MS;
        self.least = self.least.min(freed);
        if !long && self.least >= UNUSED_MIN {
            return false;
        }
        let unused = self.least >= UNUSED_MIN && self.came < BUSY_BYTES;
        (self.least, self.least_since_ms, self.came) = (u64::MAX, now_ms, 0);
        unused
    }
}

#[cfg(test)]
mod tests {
    use super::{IDLE_MS, Watch};

    /// As direct writes want them.
    #[test]
    fn large_buffers_begin_with_a_page() {
        let all: Vec<Vec<u8>> = (1..64).map(|i| Vec::with_capacity(i << 14)).collect();
        assert!(all.iter().all(|b| b.as_ptr().addr().is_multiple_of(4096)));
    }

    /// Every arena there is keeps what is freed, and every one to come.
    #[test]
    fn nothing_decays() {
        super::keep();
        assert_eq!(super::read::<isize>(c"arenas.dirty_decay_ms"), Some(-1));
        assert_eq!(super::read::<isize>(c"arenas.muzzy_decay_ms"), Some(-1));
        assert_eq!(super::read::<isize>(c"arena.0.dirty_decay_ms"), Some(-1));
        assert_eq!(super::read::<u32>(c"arenas.dirty_decay_ms"), None, "a value of another size");
    }

    /// Buffers of the largest requests go back when they are freed, whatever else is kept.
    #[test]
    fn large_buffers_go_back_at_once() {
        super::keep();
        let huge: u32 = super::read(c"opt.narenas").unwrap();
        let name = std::ffi::CString::new(format!("arena.{huge}.dirty_decay_ms")).unwrap();
        assert_eq!(super::read::<isize>(&name), Some(0));
        let used = vec![1u8; 64 << 20];
        drop(std::hint::black_box(used));
        super::count_anew();
        let name = std::ffi::CString::new(format!("stats.arenas.{huge}.pdirty")).unwrap();
        assert_eq!(super::read::<usize>(&name), Some(0), "pages that were freed and are kept");
    }

    /// What a burst has left goes back after some seconds; what the work takes again and again stays.
    #[test]
    fn what_a_burst_left_goes_back() {
        const MIB: u64 = 1 << 20;
        let mut w = Watch::default();
        let mut due = |from_s: u64, came: u64, freed: &dyn Fn(u64) -> u64| {
            w.is_unused(from_s * 1000, 0); // it is looked at all the time
            let looks = from_s * 2..from_s * 2 + 40;
            let mut each = |n: &u64| {
                w.worked(n * 500, came * MIB);
                w.is_unused(n * 500, freed(*n) * MIB)
            };
            looks.filter(|n| each(n)).count()
        };
        assert_eq!(due(0, 1, &|_| 30), 0, "little");
        assert_eq!(due(100, 1, &|n| if n % 4 == 0 { 10 } else { 500 }), 0, "it is used");
        assert_eq!(due(200, 50, &|_| 500), 0, "100 MiB in a second");
        assert!(due(300, 1, &|_| 500) >= 4, "it is not used");
    }

    /// Freed memory is seen as such.
    #[test]
    fn freed_memory_is_counted() {
        super::keep();
        let used: Vec<Vec<u8>> = (0..128).map(|_| vec![1; 1 << 20]).collect();
        let before = super::freed();
        drop(used);
        let after = super::freed();
        assert!(after > before + (100 << 20), "{before} to {after}");
    }

    /// Near the limit at each look; without work after a minute and once, until there was work.
    #[test]
    fn idle_processes_give_back_once() {
        let mut w = Watch::default();
        w.worked(5_000, 0);
        assert!(!w.is_due(5_000 + IDLE_MS - 1, 10, 80));
        assert!(w.is_due(6_000, 71, 80), "near the limit");
        assert!(w.is_due(6_100, 71, 80), "and still");
        w.worked(9_000, 0);
        assert!(!w.is_due(5_000 + IDLE_MS, 10, 80));
        assert!(w.is_due(9_000 + IDLE_MS, 10, 80));
        assert!(!w.is_due(9_100 + IDLE_MS, 10, 80), "once");
        w.worked(200_000, 0);
        assert!(!w.is_due(200_100, 10, 80));
        assert!(w.is_due(200_000 + IDLE_MS, 10, 80));
    }

    /// What was used and freed is in memory until it is given back.
    #[test]
    fn what_is_freed_goes_back() {
        const SIZE: u64 = 256 << 20;
        let used: Vec<Vec<u8>> =
            (0..SIZE >> 20).map(|i| vec![1 + (i % 99) as u8; 1 << 20]).collect();
        let before = super::resident().expect("Linux");
        assert!(before > SIZE);
        drop(used);
        super::give_back();
        let after = super::resident().expect("Linux");
        assert!(after < before - SIZE / 2, "{before} to {after}");
    }
}
