//! The peer's tool `crushtool` as a function: builds, edits, shows and tests maps.
//!
//! Lines on standard output are the peer's, so that scripts can read them. Not here, and
//! refused: `--simulate` and the down ratios (they draw from the C library's random
//! numbers), `--output-csv`, `--reclassify`, and other formats than JSON for `--dump`.
//!
//! Source: the peer's `tools/crushtool.cc` and `crush/CrushTester.cc`.

mod args;
mod build;
mod dump;
mod format;
mod tester;
mod tree;

use std::io::{self, Write};

use denc::Denc;

use crate::error::{CrushError, ErrorKind};
use crate::{CrushMap, text};
use args::Options;

/// The files that the tool is told about.
pub trait Files {
    /// The whole of a file; "-" is standard input.
    ///
    /// # Errors
    /// The system's.
    fn read(&mut self, path: &str) -> io::Result<Vec<u8>>;

    /// Puts `data` in place of what the file held.
    ///
    /// # Errors
    /// The system's.
    fn write(&mut self, path: &str, data: &[u8]) -> io::Result<()>;
}

/// What the tool talks to.
pub struct Io<'a> {
    /// Standard output.
    pub out: &'a mut dyn Write,
    /// Standard error.
    pub err: &'a mut dyn Write,
    /// The files named in its arguments.
    pub files: &'a mut dyn Files,
}

const ME: &str = "crushtool";

/// Why the tool stops: its exit code, after it said why.
struct Exit(i32);

/// Nobody listens any more: there is no use in going on.
impl From<io::Error> for Exit {
    fn from(_: io::Error) -> Self {
        Self(1)
    }
}

/// Runs the tool with the arguments behind its name, and gives its exit code.
pub fn main(args: &[String], io: &mut Io<'_>) -> i32 {
    match run(args, io) {
        Ok(()) => 0,
        Err(Exit(code)) => code,
    }
}

fn run(args: &[String], io: &mut Io<'_>) -> Result<(), Exit> {
    if args.is_empty() {
        writeln!(io.err, "{ME}: -h or --help for usage")?;
        return Err(Exit(1));
    }
    if args.iter().any(|arg| arg == "-h" || arg == "--help") {
        io.out.write_all(args::USAGE.as_bytes())?;
        return Ok(());
    }
    let opts = match Options::parse(args) {
        Ok(opts) => opts,
        Err(message) => return fail(io, &message),
    };
    if opts.test && !opts.check && !opts.shows() && opts.compare.is_none() {
        writeln!(io.err, "WARNING: no output selected; use --output-csv or --show-X")?;
    }
    let (mut map, mut modified) = input(&opts, io)?;
    modified |= tunables(&opts, &mut map);
    modified |= mutate(&opts, &mut map, io)?;
    display(&opts, &map, io)?;
    if modified {
        map.finalize();
        let Some(path) = &opts.outfn else {
            writeln!(
                io.out,
                "{ME} successfully built or modified map.  Use '-o <file>' to write it out."
            )?;
            return Ok(());
        };
        if let Err(e) = io.files.write(path, &map.to_bytes()) {
            return fail(io, &format!("{ME}: error writing '{path}': {}", strerror(&e)));
        }
        if opts.verbose {
            writeln!(io.out, "wrote crush map to {path}")?;
        }
    }
    Ok(())
}

fn fail<T>(io: &mut Io<'_>, message: &str) -> Result<T, Exit> {
    if !message.is_empty() {
        writeln!(io.err, "{message}")?;
    }
    Err(Exit(1))
}

/// The system's error as the peer prints it.
fn strerror(e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(code) => {
            let text = e.to_string();
            let text = text.split(" (os error").next().unwrap_or("").to_owned();
            format!("({code}) {text}")
        }
        None => e.to_string(),
    }
}

/// An errno and its name as the peer prints them.
fn errno_text(kind: ErrorKind) -> String {
    let text = match kind {
        ErrorKind::NotFound => "No such file or directory",
        ErrorKind::Exists => "File exists",
        ErrorKind::Invalid => "Invalid argument",
        ErrorKind::NotEmpty => "Directory not empty",
        ErrorKind::Busy => "Device or resource busy",
        ErrorKind::Loop => "Too many levels of symbolic links",
        ErrorKind::NotABucket => "Not a directory",
        ErrorKind::Already => "Operation already in progress",
        ErrorKind::Range => "Numerical result out of range",
        ErrorKind::Overflow => "Value too large for defined data type",
    };
    format!("({}) {text}", kind.errno())
}

/// An edit failed: the peer exits with the negative errno, of which a byte is left.
fn edit_failed<T>(io: &mut Io<'_>, e: &CrushError) -> Result<T, Exit> {
    writeln!(io.err, "{ME} {}", errno_text(e.kind))?;
    Err(Exit(256 - e.errno()))
}

fn read_map(path: &str, io: &mut Io<'_>) -> Result<CrushMap, Exit> {
    let bytes = match io.files.read(path) {
        Ok(bytes) => bytes,
        Err(_) if path == "-" => return fail(io, "error reading data from STDIN"),
        Err(e) => {
            let why = strerror(&e);
            let message = format!("{ME}: error reading '{path}': can't open {path}: {why}");
            return fail(io, &message);
        }
    };
    // What is behind the map is not looked at.
    match CrushMap::decode(&mut denc::Reader::new(&bytes)) {
        Ok(map) => Ok(map),
        Err(_) => fail(io, &format!("{ME}: unable to decode {path}")),
    }
}

/// The map that the arguments name, and whether it is new.
fn input(opts: &Options, io: &mut Io<'_>) -> Result<(CrushMap, bool), Exit> {
    let mut map = match &opts.infn {
        Some(path) => read_map(path, io)?,
        None => CrushMap::default(),
    };
    let mut modified = false;
    if let Some(path) = &opts.compile {
        let Ok(source) = io.files.read(path) else {
            writeln!(io.err, "input file {path} not found")?;
            return Err(Exit(256 - 2));
        };
        let compiled = text::compile(path, &String::from_utf8_lossy(&source));
        let (warnings, result) = match compiled {
            Ok(compiled) => (compiled.warnings, Ok(compiled.map)),
            Err(e) => (e.warnings, Err(e.message)),
        };
        for warning in warnings {
            writeln!(io.err, "{warning}")?;
        }
        match result {
            Ok(compiled) => map = compiled,
            Err(message) => return fail(io, &message),
        }
        modified = true;
    }
    if opts.build {
        map = match build::build(opts, io)? {
            Ok(map) => map,
            Err(message) => return fail(io, &message),
        };
        modified = true;
    }
    Ok((map, modified))
}

fn tunables(opts: &Options, map: &mut CrushMap) -> bool {
    let t = map.tunables_mut();
    for (name, value) in &opts.tunables {
        let value = *value as u32;
        match *name {
            "choose_local_tries" => t.choose_local_tries = value,
            "choose_local_fallback_tries" => t.choose_local_fallback_tries = value,
            "choose_total_tries" => t.choose_total_tries = value,
            "chooseleaf_descend_once" => t.chooseleaf_descend_once = u32::from(value != 0),
            "chooseleaf_vary_r" => t.chooseleaf_vary_r = value as u8,
            "chooseleaf_stable" => t.chooseleaf_stable = value as u8,
            "straw_calc_version" => t.straw_calc_version = value as u8,
            "msr_descents" => t.msr_descents = value,
            "msr_collision_tries" => t.msr_collision_tries = value,
            _ => t.allowed_bucket_algs = value,
        }
    }
    !opts.tunables.is_empty()
}

fn mutate(opts: &Options, map: &mut CrushMap, io: &mut Io<'_>) -> Result<bool, Exit> {
    let mut modified = false;
    if let Some((name, weight)) = &opts.reweight_item {
        writeln!(io.out, "{ME} reweighting item {name} to {}", format::General(*weight))?;
        let result = match named(map, name, io)? {
            Ok(item) => crate::fixed_weight((*weight).into())
                .and_then(|weight| map.adjust_item_weight(item, weight, true).map(drop)),
            Err(e) => Err(e),
        };
        result.or_else(|e| edit_failed(io, &e))?;
        modified = true;
    }
    if let Some(name) = &opts.remove_item {
        writeln!(io.out, "{ME} removing item {name}")?;
        let result = match named(map, name, io)? {
            Ok(item) => map.remove_item(item, false),
            Err(e) => Err(e),
        };
        result.or_else(|e| edit_failed(io, &e))?;
        modified = true;
    }
    if let Some(add) = &opts.add_item {
        let result = crate::fixed_weight(add.weight.into()).and_then(|weight| {
            if add.update {
                map.update_item(add.id, weight, &add.name, &opts.location).map(drop)
            } else {
                map.insert_item(add.id, weight, &add.name, &opts.location, true)
            }
        });
        result.or_else(|e| edit_failed(io, &e))?;
        modified = true;
    }
    if let Some((name, kind)) = &opts.add_bucket {
        add_bucket(map, name, kind, &opts.location, io)?;
        modified = true;
    }
    if let Some(name) = &opts.move_item {
        move_item(map, name, &opts.location, io)?;
        modified = true;
    }
    modified |= rules(opts, map, io)?;
    if opts.reweight {
        map.reweight().or_else(|e| edit_failed(io, &e))?;
        modified = true;
    }
    if opts.rebuild_class_roots {
        if map.rebuild_roots_with_classes().is_err() {
            return fail(io, "failed to rebuild roots with classes");
        }
        modified = true;
    }
    for (name, class) in &opts.subtree_classes {
        let _ = map.set_subtree_class(name, class);
        modified = true;
    }
    Ok(modified)
}

fn named(map: &CrushMap, name: &str, io: &mut Io<'_>) -> Result<Result<i32, CrushError>, Exit> {
    if let Some(id) = map.names.id(name) {
        return Ok(Ok(id));
    }
    writeln!(io.err, " name {name} dne")?;
    Ok(Err(CrushError::new(ErrorKind::NotFound, "")))
}

fn add_bucket(
    map: &mut CrushMap,
    name: &str,
    kind: &str,
    location: &crate::Location,
    io: &mut Io<'_>,
) -> Result<(), Exit> {
    let code = |e: &CrushError| Exit(256 - e.errno());
    if map.names.id(name).is_some() {
        writeln!(io.err, "{ME} bucket '{name}' already exists")?;
        return Err(Exit(256 - ErrorKind::Exists.errno()));
    }
    if map.types.id(kind).is_none_or(|kind| kind <= 0) {
        writeln!(io.err, "{ME} bad bucket type: {kind}")?;
        return Err(Exit(256 - ErrorKind::Invalid.errno()));
    }
    let id = match map.add_named_bucket(name, kind) {
        Ok(id) => id,
        Err(e) => {
            writeln!(io.err, "{ME} bad bucket name: {name}")?;
            return Err(code(&e));
        }
    };
    if !location.is_empty()
        && map.check_item_loc(id, location).is_none()
        && let Err(e) = map.move_bucket(id, location)
    {
        writeln!(io.err, "{ME} error moving bucket '{name}' to {}", format::Location(location))?;
        return Err(code(&e));
    }
    Ok(())
}

fn move_item(
    map: &mut CrushMap,
    name: &str,
    location: &crate::Location,
    io: &mut Io<'_>,
) -> Result<(), Exit> {
    let Some(id) = map.names.id(name) else {
        writeln!(io.err, "{ME} item '{name}' does not exist")?;
        return Err(Exit(256 - ErrorKind::NotFound.errno()));
    };
    if location.is_empty() {
        writeln!(io.err, "{ME} expecting additional --loc argument to --move")?;
        return Err(Exit(256 - ErrorKind::Invalid.errno()));
    }
    if map.check_item_loc(id, location).is_some() {
        writeln!(io.err, "{ME} item '{name}' already at {}", format::Location(location))?;
        return Err(Exit(1));
    }
    let result = if id >= 0 {
        map.create_or_move_item(id, 0, name, location, true).map(drop)
    } else {
        map.move_bucket(id, location)
    };
    result.map_err(|e| Exit(256 - e.errno()))
}

fn rules(opts: &Options, map: &mut CrushMap, io: &mut Io<'_>) -> Result<bool, Exit> {
    let mut modified = false;
    if let Some(rule) = &opts.create_rule {
        let shown = rule.mode.as_ref().map_or(String::new(), |mode| format!(" mode={mode}"));
        let option = if rule.mode.is_some() { "simple" } else { "replicated" };
        writeln!(
            io.out,
            "--create-{option}-rule: name={} root={} type={}{shown}",
            rule.name, rule.root, rule.kind
        )?;
        if map.rule_names.id(&rule.name).is_some() {
            return fail(io, &format!("rule {} already exists", rule.name));
        }
        let positional = match rule.mode.as_deref() {
            None | Some("firstn") => false,
            Some("indep") => true,
            Some(mode) => return fail(io, &format!("unknown mode {mode}")),
        };
        let spread = crate::Spread {
            root: &rule.root,
            failure_domain: &rule.kind,
            failure_domains: 0,
            class: opts.device_class.as_deref().unwrap_or(""),
        };
        let kind = crate::RULE_TYPE_REPLICATED;
        if let Err(e) = map.add_simple_rule(&rule.name, spread, positional, kind) {
            return fail(io, &e.message);
        }
        modified = true;
    }
    if let Some(name) = &opts.remove_rule {
        let Some(id) = map.rule_names.id(name) else {
            writeln!(io.err, "rule {name} does not exist")?;
            return Err(Exit(0));
        };
        if map.remove_rule(id as u32).is_err() {
            return fail(io, &format!("fail to remove rule {name}"));
        }
        modified = true;
    }
    Ok(modified)
}

fn display(opts: &Options, map: &CrushMap, io: &mut Io<'_>) -> Result<(), Exit> {
    if let Some(id) = opts.show_location {
        for (kind, name) in map.full_location(id) {
            writeln!(io.out, "{kind}\t{name}")?;
        }
    }
    if opts.tree {
        tree::print(map, io.out)?;
    }
    if opts.bucket_tree {
        for item in opts.bucket_name.iter().filter_map(|name| map.names.id(name)) {
            for leaf in map.leaves(item) {
                writeln!(io.out, "osd.{leaf}")?;
            }
        }
    }
    if opts.dump {
        io.out.write_all(dump::json(map).as_bytes())?;
    }
    if opts.decompile {
        let text = text::decompile(map);
        match &opts.outfn {
            None => io.out.write_all(text.as_bytes())?,
            Some(path) => {
                if io.files.write(path, text.as_bytes()).is_err() {
                    return fail(io, &format!("{ME}: error writing '{path}'"));
                }
            }
        }
    }
    if opts.check
        && opts.max_id >= 0
        && let Err(message) = tester::check_names(map, opts.max_id)
    {
        writeln!(io.out, "{message}")?;
        return Err(Exit(1));
    }
    if opts.test {
        tester::test(map, opts, io)?;
    }
    if let Some(path) = &opts.compare {
        let other = read_map(path, io)?;
        tester::compare(map, &other, opts, io)?;
    }
    Ok(())
}
