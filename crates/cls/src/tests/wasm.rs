//! Classes of modules: what they do, what is refused, and what ends those that misbehave.

use bytes::Bytes;
use types::Errno;

use super::{Mem, bytes};
use crate::wasm::{ABI, Budget, CRASHED, Module, NO_MEMORY, TIMED_OUT};
use crate::{Callable, READS, Registry, Reply, WRITES};

/// A module of text, with imports by their names, a page of memory and what `body` says.
fn wat(imports: &str, body: &str) -> Vec<u8> {
    let imports: String = imports
        .lines()
        .filter_map(|line| line.trim().split_once(' '))
        .map(|(name, ty)| format!("(import \"{ABI}\" \"{name}\" (func ${name} {ty}))\n"))
        .collect();
    let text = format!("(module {imports} (memory (export \"memory\") 1) {body})");
    wat::parse_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// One method `run`.
fn method(flags: &str, code: &str) -> String {
    format!("(func (export \"{ABI}:{flags}:run\") (result i32) {code})")
}

fn registry(code: &[u8]) -> Registry {
    let mut all = Registry::default();
    all.put("mine", code).unwrap_or_else(|e| panic!("{e}"));
    all
}

impl Mem {
    /// Calls a method, with a budget; what a failed one did is undone.
    fn ask_with(
        &mut self,
        all: &Registry,
        method: &str,
        input: &str,
        budget: &mut Budget,
    ) -> Result<Reply, Errno> {
        let found = all.find(b"mine", method.as_bytes())?;
        let before = self.clone();
        self.flags = found.flags();
        let result = found.call(self, &bytes(input), budget);
        if result.is_err() {
            *self = before;
        }
        result
    }

    fn ask_mine(&mut self, code: &[u8], input: &str) -> Result<Reply, Errno> {
        self.ask_with(&registry(code), "run", input, &mut Budget::default())
    }
}

const ECHO: &str = "input_len (result i32)
    input (param i32 i32 i32) (result i32)
    output (param i32 i32) (result i32)";

/// Input comes in parts, output goes out in parts, the result is the function's.
#[test]
fn input_and_output() {
    let code = wat(
        ECHO,
        &method(
            "-",
            "(drop (call $input (i32.const 0) (i32.const 100) (i32.const 5)))
             (drop (call $output (i32.const 100) (i32.const 5)))
             ;; Behind the end there is nothing.
             (drop (call $output (i32.const 100)
                (call $input (i32.const 3) (i32.const 100) (i32.const 500))))
             (drop (call $input (i32.const -1) (i32.const 0) (i32.const 9)))
             (i32.add (call $input_len) (i32.const 40))",
        ),
    );
    let reply = Mem::new().ask_mine(&code, "hello").unwrap();
    assert_eq!(reply, Reply { value: 45, data: bytes("hellolo") });
}

/// Every call to the object, on one that is empty at first.
#[test]
fn an_object_is_read_and_changed() {
    let imports = "write (param i64 i32 i32) (result i32)
        append (param i32 i32) (result i32)
        write_full (param i32 i32) (result i32)
        zero (param i64 i64) (result i32)
        truncate (param i64) (result i32)
        create (param i32) (result i32)
        read (param i64 i32 i32) (result i32)
        stat (param i32) (result i32)
        setxattr (param i32 i32 i32 i32) (result i32)
        getxattr (param i32 i32 i32 i32) (result i32)
        rmxattr (param i32 i32) (result i32)
        listxattr (param i32 i32) (result i32)
        omap_set (param i32 i32 i32 i32) (result i32)
        omap_get (param i32 i32 i32 i32) (result i32)
        omap_rm (param i32 i32) (result i32)
        omap_list (param i32 i32 i32 i32 i32 i32 i32) (result i32)
        omap_set_header (param i32 i32) (result i32)
        omap_get_header (param i32 i32) (result i32)
        omap_rm_range (param i32 i32 i32 i32) (result i32)
        object (param i32 i32) (result i32)
        caller (param i32 i32) (result i32)
        now (result i64)
        version (result i64)
        random (param i32 i32) (result i32)
        log (param i32 i32 i32) (result i32)
        output (param i32 i32) (result i32)";
    // 0: "abcdefgh"; 64..: room. `is` traps with the number of the step that went wrong.
    let steps = [
        ("(call $append (i32.const 0) (i32.const 3))", 0), // abc
        ("(call $create (i32.const 1))", -17),
        ("(call $write (i64.const 2) (i32.const 3) (i32.const 5))", 0), // abdefgh
        ("(call $zero (i64.const 0) (i64.const 1))", 0),
        ("(call $truncate (i64.const 6))", 0),
        ("(call $append (i32.const 0) (i32.const 1))", 0), // \0bdefga
        ("(call $read (i64.const 1) (i32.const 64) (i32.const 100))", 6),
        ("(call $output (i32.const 64) (i32.const 6))", 0),
        ("(call $stat (i32.const 64))", 0),
        ("(i32.load (i32.const 64))", 7),
        ("(i32.load (i32.const 72))", 1000),
        ("(call $getxattr (i32.const 0) (i32.const 1) (i32.const 64) (i32.const 8))", -61),
        ("(call $setxattr (i32.const 0) (i32.const 1) (i32.const 1) (i32.const 4))", 0),
        ("(call $getxattr (i32.const 0) (i32.const 1) (i32.const 64) (i32.const 2))", 4),
        ("(i32.load16_u (i32.const 64))", 0x6362),
        ("(call $listxattr (i32.const 64) (i32.const 100))", 17),
        ("(call $rmxattr (i32.const 0) (i32.const 1))", 0),
        ("(call $listxattr (i32.const 64) (i32.const 0))", 4),
        ("(call $omap_set (i32.const 0) (i32.const 1) (i32.const 4) (i32.const 2))", 0), // a: ef
        ("(call $omap_set (i32.const 0) (i32.const 2) (i32.const 6) (i32.const 1))", 0), // ab: g
        ("(call $omap_set (i32.const 1) (i32.const 1) (i32.const 0) (i32.const 0))", 0), // b:
        ("(call $omap_get (i32.const 0) (i32.const 1) (i32.const 64) (i32.const 9))", 2),
        ("(call $omap_get (i32.const 3) (i32.const 1) (i32.const 64) (i32.const 9))", -2),
        // All that begin with a, as many as fit: one.
        (
            "(call $omap_list (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1)
              (i32.const 9) (i32.const 64) (i32.const 20))",
            19,
        ),
        ("(i32.load (i32.const 64))", 1),
        ("(i32.load (i32.const 68))", 1),
        (
            "(call $omap_list (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 0)
              (i32.const 9) (i32.const 64) (i32.const 99))",
            8 + 11 + 9,
        ),
        ("(i32.load (i32.const 64))", 0),
        (
            "(call $omap_list (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
              (i32.const 9) (i32.const 64) (i32.const 17))",
            -34,
        ),
        ("(call $omap_rm (i32.const 0) (i32.const 1))", 0),
        ("(call $omap_rm_range (i32.const 0) (i32.const 1) (i32.const 1) (i32.const 1))", 0),
        ("(call $omap_set_header (i32.const 0) (i32.const 8))", 0),
        ("(call $omap_get_header (i32.const 64) (i32.const 8))", 8),
        ("(call $object (i32.const 64) (i32.const 8))", 6),
        ("(i32.load (i32.const 64))", i32::from_le_bytes(*b"obje")),
        ("(i32.gt_s (call $caller (i32.const 64) (i32.const 8)) (i32.const 8))", 1),
        ("(i64.eq (call $now) (i64.const 1000000000000))", 1),
        ("(i32.wrap_i64 (call $version))", 0),
        ("(call $random (i32.const 64) (i32.const 2))", 0),
        ("(call $log (i32.const 3) (i32.const 0) (i32.const 8))", 0),
    ];
    let code: String = steps
        .iter()
        .enumerate()
        .map(|(i, (step, wanted))| {
            format!("(call $is (i32.const {i}) {step} (i32.const {wanted}))")
        })
        .collect();
    let body = format!(
        "(data (i32.const 0) \"abcdefgh\")
         (func $is (param i32 i32 i32)
            (if (i32.ne (local.get 1) (local.get 2)) (then
                (i32.store (i32.const 0) (local.get 0))
                (i32.store (i32.const 4) (local.get 1))
                (drop (call $output (i32.const 0) (i32.const 8)))
                (global.set $bad (i32.const -77)))))
         (global $bad (mut i32) (i32.const 0))
         {}",
        method("rw", &format!("{code} (global.get $bad)"))
    );
    let mut o = Mem::new();
    let reply = o.ask_mine(&wat(imports, &body), "").unwrap();
    assert_eq!(reply, Reply { value: 0, data: bytes("bdefga") }, "else: step and result");
    assert_eq!(&o.data[..], b"\0bdefga");
    assert_eq!(o.omap.keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!(o.header, "abcdefgh");
    let all = wat(
        "write_full (param i32 i32) (result i32)
         omap_clear (result i32)
         remove (result i32)",
        &format!(
            "(func (export \"{ABI}:w:clear\") (result i32)
                (drop (call $write_full (i32.const 0) (i32.const 1)))
                (call $omap_clear))
             (func (export \"{ABI}:w:remove\") (result i32) (call $remove))"
        ),
    );
    let all = registry(&all);
    let budget = &mut Budget::default();
    o.ask_with(&all, "clear", "", budget).unwrap();
    assert!((o.data.len(), o.omap.len(), o.header.len()) == (1, 0, 0));
    o.ask_with(&all, "remove", "", budget).unwrap();
    assert!(!o.is_there);
    assert_eq!(o.ask_with(&all, "remove", "", budget).unwrap().value, Errno::NOENT.0);
}

/// A method is held to what it declared, as those built in.
#[test]
fn flags_are_kept() {
    let code = wat(
        "read (param i64 i32 i32) (result i32)
         write_full (param i32 i32) (result i32)",
        &format!(
            "(func (export \"{ABI}:w:reads\") (result i32)
                (call $read (i64.const 0) (i32.const 0) (i32.const 1)))
             (func (export \"{ABI}:r:writes\") (result i32)
                (call $write_full (i32.const 0) (i32.const 1)))"
        ),
    );
    let all = registry(&code);
    let mut o = Mem::created();
    for method in ["reads", "writes"] {
        let result = o.ask_with(&all, method, "", &mut Budget::default()).unwrap();
        assert_eq!(result.value, Errno::IO.0, "{method}");
    }
    assert!(o.data.is_empty());
    let flags: Vec<_> = all.modules().flat_map(Module::methods).collect();
    assert_eq!(flags, [("reads", WRITES), ("writes", READS)]);
}

/// Nothing is kept from call to call but the object.
#[test]
fn each_call_begins_anew() {
    let code = wat(
        "",
        &format!(
            "(global $n (mut i32) (i32.const 0)) {}",
            method(
                "-",
                "(global.set $n (i32.add (global.get $n) (i32.const 1)))
                 (i32.store (i32.const 8) (i32.add (i32.load (i32.const 8)) (i32.const 10)))
                 (i32.add (global.get $n) (i32.load (i32.const 8)))"
            )
        ),
    );
    let all = registry(&code);
    for _ in 0..3 {
        let reply = Mem::new().ask_with(&all, "run", "", &mut Budget::default()).unwrap();
        assert_eq!(reply.value, 11);
    }
}

/// An endless loop ends, and its vector has nothing left for another call.
#[test]
fn fuel_runs_out() {
    let code = wat("", &method("-", "(loop $l (br $l)) (i32.const 0)"));
    let all = registry(&code);
    let mut budget = Budget::default();
    let mut o = Mem::new();
    assert_eq!(o.ask_with(&all, "run", "", &mut budget), Err(TIMED_OUT));
    assert!(budget.fuel < 1_000, "{}", budget.fuel);
    assert_eq!(o.ask_with(&all, "run", "", &mut budget), Err(TIMED_OUT));
}

/// Calls to the host are paid for: their count is bounded, and so are the bytes they move.
#[test]
fn calls_to_the_host_are_paid_for() {
    let imports = "read (param i64 i32 i32) (result i32)
        now (result i64)
        random (param i32 i32) (result i32)
        log (param i32 i32 i32) (result i32)
        omap_list (param i32 i32 i32 i32 i32 i32 i32) (result i32)";
    for call in [
        "(call $read (i64.const 0) (i32.const 0) (i32.const 65536))",
        "(i32.wrap_i64 (call $now))",
        "(call $random (i32.const 0) (i32.const 65536))",
        "(call $log (i32.const 9) (i32.const 0) (i32.const 65536))",
        "(call $omap_list (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
            (i32.const -1) (i32.const 0) (i32.const 65536))",
    ] {
        let body = method("r", &format!("(loop $l (drop {call}) (br $l)) (i32.const 0)"));
        let mut o = Mem::created();
        o.data.resize(1 << 16, 7);
        assert_eq!(o.ask_mine(&wat(imports, &body), ""), Err(TIMED_OUT), "{call}");
    }
}

/// Memory beyond the bound is refused: the module's own, its stacks, its tables, and what it
/// has the host keep.
#[test]
fn memory_is_bounded() {
    let grow = "(loop $l (drop (memory.grow (i32.const 16))) (br $l)) (i32.const 0)";
    let recurse = "(call $deeper)";
    let table = "(drop (table.grow $t (ref.null func) (i32.const 1000000))) (i32.const 0)";
    for code in [grow, recurse, table] {
        let body = format!(
            "(table $t 0 funcref) (func $deeper (result i32) (call $deeper)) {}",
            method("-", code)
        );
        assert_eq!(Mem::new().ask_mine(&wat("", &body), ""), Err(NO_MEMORY), "{code}");
    }
    // Frames that are large one by one.
    let locals = "(local i64) ".repeat(20_000);
    let deep = format!(
        "(func $deeper (result i32) {locals} (call $deeper)) {}",
        method("-", "(call $deeper)")
    );
    assert_eq!(Mem::new().ask_mine(&wat("", &deep), ""), Err(NO_MEMORY));
    let imports = "append (param i32 i32) (result i32)
        omap_set (param i32 i32 i32 i32) (result i32)
        output (param i32 i32) (result i32)";
    for call in [
        "(call $append (i32.const 0) (i32.const 65536))",
        "(call $append (i32.const 0) (i32.const 0))",
        "(call $omap_set (i32.const 0) (i32.const 9) (i32.const 0) (i32.const 65536))",
        "(call $output (i32.const 0) (i32.const 65536))",
    ] {
        let body = method("w", &format!("(loop $l (drop {call}) (br $l)) (i32.const 0)"));
        let mut budget = Budget { fuel: u64::MAX, ..Budget::default() };
        let mut o = Mem::new();
        let all = registry(&wat(imports, &body));
        assert_eq!(o.ask_with(&all, "run", "", &mut budget), Err(NO_MEMORY), "{call}");
        assert!(budget.bytes < 70_000 && !o.is_there, "{call}");
    }
}

/// Pointers and lengths that lead outside of the module's memory end the call, whatever
/// function got them.
#[test]
fn bad_pointers_end_the_call() {
    let imports = "input (param i32 i32 i32) (result i32)
        output (param i32 i32) (result i32)
        log (param i32 i32 i32) (result i32)
        random (param i32 i32) (result i32)
        caller (param i32 i32) (result i32)
        object (param i32 i32) (result i32)
        stat (param i32) (result i32)
        read (param i64 i32 i32) (result i32)
        write (param i64 i32 i32) (result i32)
        getxattr (param i32 i32 i32 i32) (result i32)
        setxattr (param i32 i32 i32 i32) (result i32)
        omap_list (param i32 i32 i32 i32 i32 i32 i32) (result i32)";
    let bad = [(65_535u32, 2u32), (0, 65_537), (u32::MAX, 1), (u32::MAX, u32::MAX), (70_000, 0)];
    for (at, len) in bad {
        let (at, len) = (at as i32, len as i32);
        let p = format!("(i32.const {at}) (i32.const {len})");
        for call in [
            format!("(call $input (i32.const 0) {p})"),
            format!("(call $output {p})"),
            format!("(call $log (i32.const 0) {p})"),
            format!("(call $random {p})"),
            format!("(call $caller {p})"),
            format!("(call $object {p})"),
            format!("(call $read (i64.const 0) {p})"),
            format!("(call $write (i64.const 0) {p})"),
            format!("(call $getxattr {p} (i32.const 0) (i32.const 0))"),
            format!("(call $getxattr (i32.const 0) (i32.const 1) {p})"),
            format!("(call $setxattr (i32.const 0) (i32.const 1) {p})"),
            format!(
                "(call $omap_list {p} (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 0))"
            ),
            format!(
                "(call $omap_list (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1) {p})"
            ),
        ] {
            let mut o = Mem::created();
            o.attrs.insert(Bytes::from_static(b"\0"), bytes("value"));
            let result = o.ask_mine(&wat(imports, &method("rw", &call)), "input");
            assert_eq!(result, Err(CRASHED), "{call}");
        }
    }
    let stat = method("r", "(call $stat (i32.const 65521))");
    assert_eq!(Mem::created().ask_mine(&wat(imports, &stat), ""), Err(CRASHED));
}

/// Traps end the call; so does a result that no client could tell.
#[test]
fn traps_end_the_call() {
    for code in [
        "unreachable",
        "(i32.div_u (i32.const 1) (i32.const 0))",
        "(i32.load (i32.const 65534))",
        "(call_indirect (result i32) (i32.const 7))",
        "(i32.trunc_f32_s (f32.const nan))",
        "(i32.const -4096)",
    ] {
        let body = format!("(table 1 funcref) {}", method("-", code));
        assert_eq!(Mem::new().ask_mine(&wat("", &body), ""), Err(CRASHED), "{code}");
    }
    let error = wat("", &method("-", "(i32.const -4095)"));
    assert_eq!(Mem::new().ask_mine(&error, "").unwrap().value, -4095);
}

/// What is refused says why.
#[test]
fn bad_modules_are_refused() {
    let refused = |name: &str, code: &[u8], why: &str| {
        let text = Module::new(name, code).unwrap_err().to_string();
        assert!(text.contains(why), "{text:?} does not say {why:?}");
    };
    let good = wat("", &method("r", "(i32.const 0)"));
    assert!(Module::new("mine", &good).is_ok());
    refused("lock", &good, "built-in");
    refused("rbd", &good, "built-in");
    refused("", &good, "no name for a class");
    refused("a b", &good, "no name for a class");
    refused(&"x".repeat(65), &good, "no name for a class");
    refused("mine", b"#!/bin/sh", "not a WebAssembly module");
    refused("mine", b"", "not a WebAssembly module");
    refused("mine", &good[..good.len() - 3], "not a valid module");
    refused("mine", &vec![0; crate::wasm::MODULE_BYTES_MAX + 1], "at most");
    let text = |text: &str| wat::parse_str(text).unwrap();
    refused("mine", &text("(module (memory (export \"memory\") 1))"), "exports no method");
    let run = method("r", "(i32.const 0)");
    refused("mine", &text(&format!("(module {run})")), "no memory is exported");
    refused(
        "mine",
        &text(&format!(
            "(module (import \"env\" \"abort\" (func)) (memory (export \"memory\") 1) {run})"
        )),
        "imports 'abort' of 'env'",
    );
    refused("mine", &wat("fork (result i32)", &run), "imports 'fork'");
    refused("mine", &wat("input_len (result i64)", &run), "it is () -> i32");
    for (export, why) in [
        ("r:run\") (param i32) (result i32) (i32.const 0", "no function without parameters"),
        ("r:run\") (result i64) (i64.const 0", "no function without parameters"),
        ("x:run\") (result i32) (i32.const 0", "flags of 'run'"),
        ("run\") (result i32) (i32.const 0", "is not argonaut_cls_v1:FLAGS:METHOD"),
        ("r:a b\") (result i32) (i32.const 0", "no name for a method"),
    ] {
        refused("mine", &wat("", &format!("(func (export \"{ABI}:{export}))")), why);
    }
    let newer = "(func (export \"argonaut_cls_v2:r:run\") (result i32) (i32.const 0))";
    refused("mine", &wat("", newer), "another interface");
    let twice = format!("{run} {}", run.replace(":r:", ":w:"));
    refused("mine", &wat("", &twice), "there twice");
    refused("mine", &wat("", &format!("(func $s) (start $s) {run}")), "not a valid module");
    let large = format!("(module (memory (export \"memory\") 1000) {run})");
    refused("mine", &text(&large), "no instance");
    let outside = format!("(data (i32.const 65530) \"0123456789\") {run}");
    refused("mine", &wat("", &outside), "no instance");
}

/// A module that was replaced or removed is gone; the snapshot of before still has it.
#[test]
fn a_registry_is_a_snapshot() {
    let one = registry(&wat("", &method("r", "(i32.const 1)")));
    let mut two = one.clone();
    two.put("mine", &wat("", &method("rw", "(i32.const 2)"))).unwrap();
    let ask = |all: &Registry| {
        Mem::created().ask_with(all, "run", "", &mut Budget::default()).map(|r| r.value)
    };
    assert_eq!((ask(&one), ask(&two)), (Ok(1), Ok(2)));
    assert!(two.has_module(b"mine") && !two.has_module(b"lock"));
    assert!(matches!(two.find(b"lock", b"lock"), Ok(Callable::BuiltIn(_))));
    assert!(two.put("mine", b"junk").is_err());
    assert_eq!((ask(&one), ask(&two)), (Ok(1), Err(Errno::OPNOTSUPP)));
    let mut none = one.clone();
    none.retain(|name| name != "mine");
    assert_eq!((ask(&one), ask(&none)), (Ok(1), Err(Errno::OPNOTSUPP)));
}

/// The example in Rust, built as its users build it.
fn example() -> Vec<u8> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let done = std::process::Command::new(cargo)
        .args(["build", "--quiet", "--release", "--target", "wasm32-unknown-unknown"])
        .args(["--manifest-path", &format!("{root}/examples/cls/Cargo.toml")])
        .args(["--target-dir", &format!("{root}/target/examples")])
        .status()
        .expect("cargo runs");
    assert!(done.success(), "the example does not build: rustup target add wasm32-unknown-unknown");
    std::fs::read(format!("{root}/target/examples/wasm32-unknown-unknown/release/tally.wasm"))
        .expect("the module is there")
}

/// The example does what it says, also with more data than fits its first buffers.
#[test]
fn the_example_tallies() {
    if std::env::var_os("ARGONAUT_WITHOUT_WASM").is_some() {
        return; // rustc for it cannot be had; the test command says so
    }
    let all = registry(&example());
    let mut o = Mem::new();
    let mut ask = |method: &str, input: &str| {
        let reply = o.ask_with(&all, method, input, &mut Budget::default())?;
        match reply.value {
            0 => Ok(String::from_utf8_lossy(&reply.data).into_owned()),
            value => Err(Errno(value)),
        }
    };
    assert_eq!(ask("grep", "x"), Err(Errno::NOENT));
    ask("add", "red one\nblue one\nred two\n").unwrap();
    ask("add", "green\n").unwrap();
    assert_eq!(ask("count", "").unwrap(), "4");
    assert_eq!(ask("top", "").unwrap(), "blue 1\ngreen 1\nred 2\n");
    assert_eq!(ask("grep", "one").unwrap(), "red one\nblue one\n");
    assert_eq!(ask("add", "no end"), Err(Errno::INVAL));
    let many: String = (0..500).map(|i| format!("word{i:04} {}\n", "x".repeat(40))).collect();
    ask("add", &many).unwrap();
    assert_eq!(ask("count", "").unwrap(), "504");
    assert_eq!(ask("top", "").unwrap().lines().count(), 503);
    assert_eq!(ask("grep", "xxx").unwrap(), many);
    assert_eq!(ask("spin", ""), Err(TIMED_OUT));
    assert_eq!(ask("hoard", ""), Err(NO_MEMORY));
}
