//! The ceph.conf parser and its variables.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    if let Ok(file) = conf::ConfFile::parse(&text) {
        let config = conf::Config::new(&file, "osd", "3", "host", 1);
        let _ = (config.all().count(), config.overridden().count(), config.unknown());
    }
});
