//! Entry point for fuzzing: hostile bytes against both roles.

use crate::Fault;
use crate::reader::FrameReader;
use crate::secure::server_ciphers;

/// Cuts `bytes` into frames as a ready peer's, in crc and in secure mode, delivered in
/// pieces whose sizes the bytes themselves choose. Must neither panic nor hold more than
/// what was fed and what one frame may announce.
pub fn fuzz_frames(bytes: &[u8]) {
    for secured in [false, true] {
        let mut reader = FrameReader::new();
        reader.ready = true;
        reader.record = None;
        if secured {
            let (rx, _) = server_ciphers(&[7; 64]).expect("the secret is long enough");
            reader.secure(rx);
        }
        let _: Result<(), Fault> = feed(&mut reader, bytes);
    }
}

fn feed(reader: &mut FrameReader, mut bytes: &[u8]) -> Result<(), Fault> {
    use bytes::BufMut;
    while let Some(&step) = bytes.first() {
        let mut buf = reader.intake.read_buf();
        let n = bytes.len().min(usize::from(step) + 1).min(buf.remaining_mut());
        buf.put_slice(&bytes[..n]);
        bytes = &bytes[n..];
        while reader.next()?.is_some() {}
        assert!(reader.held() <= crate::frame::DATA_MAX as usize * 2, "memory is bounded");
    }
    Ok(())
}
