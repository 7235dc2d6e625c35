//! The process' memory: who gives it, and that it goes back in time.

/// Made for memory that one thread takes and another frees: `docs/adr/0012-jemalloc.md`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What jemalloc reads at its start. Memory that was freed goes back after a minute instead of
/// ten seconds: buffers of large writes are taken and freed all the time.
// SAFETY: the name is jemalloc's own and nothing else's; what it finds there is the address of
// a text with a zero at its end, for as long as the process lives.
#[allow(unsafe_code)]
#[unsafe(export_name = "_rjem_malloc_conf")]
static MALLOC_CONF: &[u8] = b"dirty_decay_ms:60000,muzzy_decay_ms:60000\0";

/// Bytes of this process that are in memory.
///
/// # Errors
/// When the system does not tell.
pub fn resident() -> std::io::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
    Ok(pages.unwrap_or(0) * 4096)
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

#[cfg(test)]
mod tests {
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
