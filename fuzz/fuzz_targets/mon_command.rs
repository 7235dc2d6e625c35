//! A command as JSON: parsing, and every way of reading its arguments.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(args) = cli::Args::parse(&[data]) else { return };
    let _ = (args.prefix(), args.format(), cli::find(&args));
    // Commands go through the audit log as text, and come back the same.
    let text = args.to_json();
    let again = cli::Args::parse(&[&text]).expect("what was written is read");
    assert_eq!(again.to_json(), text);
    for name in args.strings().keys() {
        let _ = (args.has(name), args.flag(name), args.str(name), args.int(name));
        let _ = (args.float(name), args.list(name), args.ints(name), args.need_osd(name));
        let _ = args.need_parsed::<types::PgId>(name);
        let _ = args.need_parsed::<types::EntityName>(name);
        let _ = args.need_parsed::<types::Uuid>(name);
    }
});
