//! Every message decoder. What was read is written so that it is read again.
//!
//! Input: u8 which message, u8 version, u8 compat, u16 length of the front, front, data.
#![no_main]
use denc::{Bytes, Denc};
use messages::{Envelope, KINDS};

fn entry(env: &Envelope) {
    if let Ok(entry) = messages::PgLogEntry::from_bytes(&env.front) {
        assert_eq!(messages::PgLogEntry::from_bytes(&entry.to_bytes()), Ok(entry));
    }
}

/// What stands in blobs of answers and caps.
fn extras(env: &Envelope) {
    fn blob<T: Denc + PartialEq + std::fmt::Debug>(bytes: &Bytes) {
        if let Ok(value) = T::from_bytes(bytes) {
            assert_eq!(T::from_bytes(&value.to_bytes()), Ok(value));
        }
    }
    blob::<messages::fs::DirListing>(&env.front);
    blob::<messages::fs::CreatedInode>(&env.front);
    blob::<messages::fs::FileLock>(&env.front);
    blob::<messages::fs::HeldLocks>(&env.front);
    let _ = messages::fs::read_snap_trace(&env.front);
    let _ = messages::fs::read_snap_trace_new(&env.front);
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if data.len() < 5 {
        return;
    }
    let (head, rest) = data.split_at(5);
    let cut = usize::from(u16::from_le_bytes([head[3], head[4]])).min(rest.len());
    let env = Envelope {
        version: u16::from(head[1]),
        compat: u16::from(head[2] % 10),
        front: Bytes::copy_from_slice(&rest[..cut]),
        data: Bytes::copy_from_slice(&rest[cut..]),
        ..Envelope::default()
    };
    match usize::from(head[0]) % (KINDS.len() + 2) {
        0 => entry(&env),
        1 => extras(&env),
        n => drop((KINDS[n - 2].again)(&env)),
    }
});
