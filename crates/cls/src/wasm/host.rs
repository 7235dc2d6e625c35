//! What a module may call: the interface `argonaut_cls_v1`, function by function.
//!
//! Lengths and pointers are the module's own and not to be trusted: each is checked against
//! its memory as it is now, and one that leads outside ends the call. Errors of the object are
//! results (negative), for the module to judge.

use bytes::{Bytes, BytesMut};
use types::{EntityInst, Errno, OpResult};
use wasmi::{Caller, Error, Func, FuncType, Memory, Store, StoreLimits, TrapCode, Val, ValType};

use super::{Budget, CRASHED, NO_MEMORY};
use crate::Object;

/// Steps that one call to the object costs, on top of its bytes.
const ACCESS_FUEL: u64 = 2_000;
/// Steps that any other call to the host costs.
const CALL_FUEL: u64 = 50;
/// Steps for each pair or attribute that is listed.
const ENTRY_FUEL: u64 = 100;
/// Bytes that are moved for one step.
const BYTES_PER_FUEL: u64 = 8;
/// What the host keeps of a change beside its bytes.
const CHANGE_BYTES: u64 = 64;
/// Lines that one call may log, and bytes of a line.
const LOG_LINES_MAX: u32 = 16;
const LOG_BYTES_MAX: u32 = 1_024;

/// Why the host ended a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("a pointer leads outside of the module's memory: {len} bytes at {at}")]
    Pointer { at: u64, len: u64 },
    #[error("its changes and output are larger than they may be")]
    Bytes,
}

impl wasmi::errors::HostError for Fault {}

impl Fault {
    pub(super) fn errno(self) -> Errno {
        match self {
            Self::Pointer { .. } => CRASHED,
            Self::Bytes => NO_MEMORY,
        }
    }
}

/// What a call works on.
pub(super) struct Host<'o> {
    class: &'o str,
    object: &'o mut dyn Object,
    input: Bytes,
    pub output: BytesMut,
    pub bytes_left: u64,
    pub memory: Option<Memory>,
    pub limits: StoreLimits,
    log_lines: u32,
}

impl<'o> Host<'o> {
    pub fn new(class: &'o str, object: &'o mut dyn Object, input: Bytes, budget: Budget) -> Self {
        Self {
            class,
            object,
            input,
            output: BytesMut::new(),
            bytes_left: budget.bytes,
            memory: None,
            limits: super::limits(budget.memory),
            log_lines: 0,
        }
    }
}

/// What a function gives the module, or why it ends the call.
type Done = Result<OpResult<i64>, Error>;
type Run = for<'c, 'a, 'o> fn(&mut Call<'c, 'a, 'o>) -> Done;

/// A function that modules may import.
pub(super) struct Import {
    pub name: &'static str,
    /// Its parameters: `i` is an i32, `l` an i64.
    params: &'static str,
    result: ValType,
    run: Run,
}

const fn f(name: &'static str, params: &'static str, run: Run) -> Import {
    Import { name, params, result: ValType::I32, run }
}

const fn long(name: &'static str, run: Run) -> Import {
    Import { name, params: "", result: ValType::I64, run }
}

/// All of the interface. `docs/protocols/classes-wasm.md` is its page: change both.
pub(super) static IMPORTS: &[Import] = &[
    f("input_len", "", |c| Ok(Ok(c.host().input.len() as i64))),
    f("input", "iii", input),
    f("output", "ii", output),
    f("log", "iii", log),
    long("now", |c| Ok(Ok(c.host().object.now().nanos() as i64))),
    f("random", "ii", random),
    f("caller", "ii", caller),
    f("object", "ii", object),
    long("version", |c| Ok(Ok(c.host().object.version() as i64))),
    f("stat", "i", stat),
    f("read", "lii", read),
    f("write", "lii", write),
    f("append", "ii", append),
    f("write_full", "ii", write_full),
    f("zero", "ll", zero),
    f("truncate", "l", truncate),
    f("create", "i", create),
    f("remove", "", |c| c.change(0)?.object(|o| o.remove())),
    f("getxattr", "iiii", getxattr),
    f("setxattr", "iiii", setxattr),
    f("rmxattr", "ii", rmxattr),
    f("listxattr", "ii", listxattr),
    f("omap_get_header", "ii", omap_get_header),
    f("omap_set_header", "ii", omap_set_header),
    f("omap_get", "iiii", omap_get),
    f("omap_set", "iiii", omap_set),
    f("omap_rm", "ii", omap_rm),
    f("omap_rm_range", "iiii", omap_rm_range),
    f("omap_clear", "", |c| c.change(0)?.object(|o| o.omap_clear())),
    f("omap_list", "iiiiiii", omap_list),
];

impl Import {
    fn param_types(&self) -> impl ExactSizeIterator<Item = ValType> {
        self.params.bytes().map(|c| if c == b'l' { ValType::I64 } else { ValType::I32 })
    }

    /// Its type.
    pub fn ty(&self) -> FuncType {
        FuncType::new(self.param_types(), [self.result])
    }

    /// Its type for people.
    pub fn text(&self) -> String {
        let name = |ty| if ty == ValType::I64 { "i64" } else { "i32" };
        let params: Vec<&str> = self.param_types().map(name).collect();
        format!("it is ({}) -> {}", params.join(", "), name(self.result))
    }

    /// The function in one instance's store.
    pub fn func(&'static self, store: &mut Store<Host<'_>>) -> Func {
        let (run, is_long) = (self.run, self.result == ValType::I64);
        Func::new(store, self.ty(), move |caller, params, results| {
            let mut call = Call { caller, params };
            call.charge(CALL_FUEL)?;
            let value = match run(&mut call)? {
                Ok(value) => value,
                Err(e) => i64::from(e.0),
            };
            results[0] = if is_long { Val::I64(value) } else { Val::I32(value as i32) };
            Ok(())
        })
    }
}

/// A call of one of the functions.
struct Call<'c, 'a, 'o> {
    caller: Caller<'a, Host<'o>>,
    params: &'c [Val],
}

impl<'o> Call<'_, '_, 'o> {
    fn host(&mut self) -> &mut Host<'o> {
        self.caller.data_mut()
    }

    /// A parameter; all are unsigned.
    fn arg(&self, i: usize) -> u64 {
        match self.params[i] {
            Val::I32(v) => u64::from(v as u32),
            Val::I64(v) => v as u64,
            _ => unreachable!("the type was checked"),
        }
    }

    fn charge(&mut self, fuel: u64) -> Result<(), Error> {
        let have = self.caller.get_fuel()?;
        self.caller.set_fuel(have.saturating_sub(fuel))?;
        if fuel > have { Err(TrapCode::OutOfFuel.into()) } else { Ok(()) }
    }

    fn charge_bytes(&mut self, n: u64) -> Result<(), Error> {
        self.charge(n / BYTES_PER_FUEL)
    }

    /// The object is about to be asked for something.
    fn access(&mut self) -> Result<&mut Self, Error> {
        self.charge(ACCESS_FUEL)?;
        Ok(self)
    }

    /// A change of so many bytes is about to be kept.
    fn change(&mut self, n: u64) -> Result<&mut Self, Error> {
        self.keep(n.saturating_add(CHANGE_BYTES))?;
        self.access()
    }

    fn keep(&mut self, n: u64) -> Result<(), Error> {
        self.charge_bytes(n)?;
        let host = self.host();
        if n > host.bytes_left {
            return Err(Error::host(Fault::Bytes));
        }
        host.bytes_left -= n;
        Ok(())
    }

    fn object(&mut self, f: impl FnOnce(&mut dyn Object) -> OpResult<()>) -> Done {
        Ok(f(self.host().object).map(|()| 0))
    }

    /// So many bytes of the module's memory.
    fn slice(&mut self, at: u64, len: u64) -> Result<(&mut [u8], &mut Host<'o>), Error> {
        let fault = || Error::host(Fault::Pointer { at, len });
        let memory = self.host().memory.ok_or_else(fault)?;
        let (all, host) = memory.data_and_store_mut(&mut self.caller);
        let range = at as usize..(at as usize).checked_add(len as usize).ok_or_else(fault)?;
        Ok((all.get_mut(range).ok_or_else(fault)?, host))
    }

    /// What the module points at by parameters `i` and `i + 1`.
    fn bytes(&mut self, i: usize) -> Result<Bytes, Error> {
        let (at, len) = (self.arg(i), self.arg(i + 1));
        self.slice(at, len)?;
        self.charge_bytes(len)?;
        Ok(Bytes::copy_from_slice(self.slice(at, len)?.0))
    }

    /// Puts what fits of `data` where parameters `i` and `i + 1` say. The result is its whole
    /// length.
    fn give(&mut self, i: usize, data: &[u8]) -> Done {
        let (at, room) = (self.arg(i), self.arg(i + 1));
        let n = data.len().min(room as usize);
        // The room must be there, also where it is not needed.
        self.slice(at, room)?.0[..n].copy_from_slice(&data[..n]);
        self.charge_bytes(n as u64)?;
        Ok(i32::try_from(data.len()).map(i64::from).map_err(|_| Errno::OVERFLOW))
    }

    /// As [`Call::give`], of something that the object may not have.
    fn give_found(&mut self, i: usize, found: OpResult<Bytes>) -> Done {
        match found {
            Ok(data) => self.give(i, &data),
            Err(e) => Ok(Err(e)),
        }
    }

    /// The room that parameters `i` and `i + 1` name is there.
    fn has_room(&mut self, i: usize) -> Result<(), Error> {
        let (at, room) = (self.arg(i), self.arg(i + 1));
        self.slice(at, room).map(drop)
    }
}

fn input(c: &mut Call<'_, '_, '_>) -> Done {
    let (from, at, len) = (c.arg(0), c.arg(1), c.arg(2));
    let (to, host) = c.slice(at, len)?;
    let left = host.input.get(from as usize..).unwrap_or_default();
    let n = left.len().min(to.len());
    to[..n].copy_from_slice(&left[..n]);
    c.charge_bytes(n as u64)?;
    Ok(Ok(n as i64))
}

fn output(c: &mut Call<'_, '_, '_>) -> Done {
    let (at, len) = (c.arg(0), c.arg(1));
    c.slice(at, len)?;
    c.keep(len)?;
    let (from, host) = c.slice(at, len)?;
    host.output.extend_from_slice(from);
    Ok(Ok(0))
}

fn log(c: &mut Call<'_, '_, '_>) -> Done {
    let (level, at, len) = (c.arg(0), c.arg(1), c.arg(2));
    c.access()?;
    let (text, host) = c.slice(at, len)?;
    let text = &text[..text.len().min(LOG_BYTES_MAX as usize)];
    if host.log_lines < LOG_LINES_MAX {
        host.log_lines += 1;
        let (class, text) = (host.class, String::from_utf8_lossy(text));
        let text = text.escape_debug();
        match level {
            0 => tracing::error!(class, "{text}"),
            1 => tracing::warn!(class, "{text}"),
            2 => tracing::info!(class, "{text}"),
            _ => tracing::debug!(class, "{text}"),
        }
    }
    Ok(Ok(0))
}

fn random(c: &mut Call<'_, '_, '_>) -> Done {
    let (at, len) = (c.arg(0), c.arg(1));
    let (to, host) = c.slice(at, len)?;
    host.object.random(to);
    c.charge(len)?;
    Ok(Ok(0))
}

fn caller(c: &mut Call<'_, '_, '_>) -> Done {
    let (name, addr) = c.host().object.caller();
    c.give(0, EntityInst { name, addr }.to_string().as_bytes())
}

fn object(c: &mut Call<'_, '_, '_>) -> Done {
    let name = c.host().object.id().name.clone();
    c.give(0, &name)
}

fn stat(c: &mut Call<'_, '_, '_>) -> Done {
    let at = c.arg(0);
    let found = c.access()?.host().object.stat();
    let to = c.slice(at, 16)?.0;
    Ok(found.map(|(size, mtime)| {
        to[..8].copy_from_slice(&size.to_le_bytes());
        to[8..12].copy_from_slice(&mtime.sec.to_le_bytes());
        to[12..].copy_from_slice(&mtime.nsec.to_le_bytes());
        0
    }))
}

fn read(c: &mut Call<'_, '_, '_>) -> Done {
    let (off, len) = (c.arg(0), c.arg(2));
    // Before the object is asked: no one reads more than its memory holds.
    c.has_room(1)?;
    let found = c.access()?.host().object.read(off, len);
    c.give_found(1, found)
}

fn write(c: &mut Call<'_, '_, '_>) -> Done {
    let (off, data) = (c.arg(0), c.bytes(1)?);
    c.change(data.len() as u64)?.object(|o| o.write(off, data))
}

fn append(c: &mut Call<'_, '_, '_>) -> Done {
    let data = c.bytes(0)?;
    c.change(data.len() as u64)?.object(|o| {
        let end = match o.stat() {
            Ok((size, _)) => size,
            Err(Errno::NOENT) => 0,
            Err(e) => return Err(e),
        };
        o.write(end, data)
    })
}

fn write_full(c: &mut Call<'_, '_, '_>) -> Done {
    let data = c.bytes(0)?;
    c.change(data.len() as u64)?.object(|o| o.write_full(data))
}

fn zero(c: &mut Call<'_, '_, '_>) -> Done {
    let (off, len) = (c.arg(0), c.arg(1));
    c.change(0)?.object(|o| o.zero(off, len))
}

fn truncate(c: &mut Call<'_, '_, '_>) -> Done {
    let size = c.arg(0);
    c.change(0)?.object(|o| o.truncate(size))
}

fn create(c: &mut Call<'_, '_, '_>) -> Done {
    let exclusive = c.arg(0) != 0;
    c.change(0)?.object(|o| o.create(exclusive))
}

fn getxattr(c: &mut Call<'_, '_, '_>) -> Done {
    let name = c.bytes(0)?;
    let found = c.access()?.host().object.attr(&name);
    c.give_found(2, found)
}

fn setxattr(c: &mut Call<'_, '_, '_>) -> Done {
    let (name, value) = (c.bytes(0)?, c.bytes(2)?);
    c.change((name.len() + value.len()) as u64)?.object(|o| o.set_attr(&name, value))
}

fn rmxattr(c: &mut Call<'_, '_, '_>) -> Done {
    let name = c.bytes(0)?;
    c.change(name.len() as u64)?.object(|o| o.rm_attr(&name))
}

/// `u32` how many, then each as `u32` length and bytes of the name, the same of the value.
fn pairs(pairs: &[(Bytes, Bytes)], out: &mut Vec<u8>) {
    out.extend((pairs.len() as u32).to_le_bytes());
    for part in pairs.iter().flat_map(|(k, v)| [k, v]) {
        out.extend((part.len() as u32).to_le_bytes());
        out.extend_from_slice(part);
    }
}

fn listxattr(c: &mut Call<'_, '_, '_>) -> Done {
    match c.access()?.host().object.attrs() {
        Ok(all) => {
            c.charge(all.len() as u64 * ENTRY_FUEL)?;
            let mut out = Vec::new();
            pairs(&all, &mut out);
            c.give(0, &out)
        }
        Err(e) => Ok(Err(e)),
    }
}

fn omap_get_header(c: &mut Call<'_, '_, '_>) -> Done {
    let found = c.access()?.host().object.omap_header();
    c.give_found(0, found)
}

fn omap_set_header(c: &mut Call<'_, '_, '_>) -> Done {
    let header = c.bytes(0)?;
    c.change(header.len() as u64)?.object(|o| o.omap_set_header(header))
}

fn omap_get(c: &mut Call<'_, '_, '_>) -> Done {
    let key = c.bytes(0)?;
    let found = c.access()?.host().object.omap_get(&key);
    c.give_found(2, found)
}

fn omap_set(c: &mut Call<'_, '_, '_>) -> Done {
    let pair = (c.bytes(0)?, c.bytes(2)?);
    c.change((pair.0.len() + pair.1.len()) as u64)?.object(|o| o.omap_set(vec![pair]))
}

fn omap_rm(c: &mut Call<'_, '_, '_>) -> Done {
    let key = c.bytes(0)?;
    c.change(key.len() as u64)?.object(|o| o.omap_rm(vec![key]))
}

fn omap_rm_range(c: &mut Call<'_, '_, '_>) -> Done {
    let (from, to) = (c.bytes(0)?, c.bytes(2)?);
    c.change((from.len() + to.len()) as u64)?.object(|o| o.omap_rm_range(from, to))
}

/// Pairs behind a key, with a prefix: `u32` whether there are more, then as [`pairs`]. As many
/// as the room takes, and at most so many; ERANGE where not even one fits.
fn omap_list(c: &mut Call<'_, '_, '_>) -> Done {
    let (after, prefix, max, room) = (c.bytes(0)?, c.bytes(2)?, c.arg(4), c.arg(6));
    c.has_room(5)?;
    // An entry has eight bytes of lengths at least, and each is paid for.
    let affordable = c.access()?.caller.get_fuel()? / ENTRY_FUEL;
    let max = max.min(room / 8).min(affordable);
    let (mut found, mut more) = match c.host().object.omap_page(&after, &prefix, max) {
        Ok(page) => page,
        Err(e) => return Ok(Err(e)),
    };
    c.charge(found.len() as u64 * ENTRY_FUEL)?;
    let mut size = 8;
    let size_with = |(k, v): &(Bytes, Bytes)| {
        size += 8 + k.len() as u64 + v.len() as u64;
        size <= room
    };
    let fits = found.iter().map(size_with).take_while(|fits| *fits).count();
    if fits == 0 && (room < 8 || !found.is_empty()) {
        return Ok(Err(Errno::RANGE));
    }
    more |= fits < found.len();
    found.truncate(fits);
    let mut out = u32::from(more).to_le_bytes().to_vec();
    pairs(&found, &mut out);
    c.give(5, &out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page of the interface names each function with its type.
    #[test]
    fn the_page_has_every_function() {
        let page = include_str!("../../../../docs/protocols/classes-wasm.md");
        for import in IMPORTS {
            let ty = import.text().replace("it is ", "");
            let row = format!("| `{}` | `{ty}` |", import.name);
            assert!(page.contains(&row), "no row {row:?} on the page");
        }
        let rows = page.lines().filter(|l| l.contains("` | `(")).count();
        assert_eq!(rows, IMPORTS.len());
    }
}
