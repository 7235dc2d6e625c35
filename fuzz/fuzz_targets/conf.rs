//! The ceph.conf parser, its variables, and every option's value in force.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(file) = conf::ConfFile::parse(text) {
        let config = conf::Config::new(&file, "osd", "3", "host", 1);
        let _ = (config.all().count(), config.overridden().count(), config.unknown());
        let key = conf::key::OSD_MAX_BACKFILLS;
        let _ = (config.get(key), config.is_set(key), config.get(conf::key::OSD_MEMORY_TARGET));
        for spec in conf::OPTIONS {
            let _ = (config.text(spec.name), config.raw(spec.name));
        }
    }
});
