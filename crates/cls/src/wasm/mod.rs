//! Classes that operators upload: WebAssembly modules, interpreted.
//!
//! A module declares its methods by what it exports and sees its object through what it
//! imports (`docs/protocols/classes-wasm.md`). Each call has an instance of its own, so nothing
//! is kept between calls but what is in the object.
//!
//! Invariants:
//! - a call ends: it pays for each instruction and for each byte that it asks the host to move
//!   ([`Budget::fuel`]);
//! - it takes no more memory than it may: its own, its stacks, and what it has the host keep
//!   for it (changes and output, [`Budget::bytes`]);
//! - whatever the module does, the outcome is a result or an error of this operation.
//!
//! Why an interpreter, and this one: `docs/adr/0016-classes-as-wasm.md`.

mod host;

use std::collections::BTreeMap;

use bytes::Bytes;
use types::{Errno, OpResult};
use wasmi::errors::ErrorKind;
use wasmi::{
    CompilationMode, Config, EnforcedLimits, Engine, Extern, ExternType, Instance, Store,
    StoreLimitsBuilder, TrapCode,
};

use crate::{Object, READS, Reply, WRITES};
use host::{Fault, Host, IMPORTS};

/// The interface, by its version: the name of the module that is imported from, and what the
/// names of exported methods begin with.
pub const ABI: &str = "argonaut_cls_v1";
/// The largest module, bytes.
pub const MODULE_BYTES_MAX: usize = 4 << 20;
/// Values and calls that a method's own stacks hold.
const STACK_BYTES_MAX: usize = 1 << 20;
const RECURSION_MAX: usize = 1_000;
/// Elements of a module's tables.
const TABLE_ELEMENTS_MAX: usize = 100_000;
/// What a module gets for the try at `put`.
const TRIAL_FUEL: u64 = 10_000_000;
/// A class's or a method's name.
const NAME_BYTES_MAX: usize = 64;

/// The method took longer than it may.
pub const TIMED_OUT: Errno = Errno::TIMEDOUT;
/// The method took more memory than it may.
pub const NO_MEMORY: Errno = Errno(-12);
/// The method did what no method may: it trapped, or gave the host a bad pointer.
pub const CRASHED: Errno = Errno(-14);

/// What the calls of one vector may use up together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Steps: about one for an instruction.
    pub fuel: u64,
    /// Bytes of changes and output that the host keeps.
    pub bytes: u64,
    /// Bytes of a call's own linear memory.
    pub memory: u64,
}

impl Default for Budget {
    /// The defaults of `osd_class_fuel_max` and `osd_class_memory_max`.
    fn default() -> Self {
        Self { fuel: 20_000_000, bytes: 16 << 20, memory: 16 << 20 }
    }
}

/// Why a module is refused: a sentence for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ModuleError(String);

fn refuse<T>(why: impl Into<String>) -> Result<T, ModuleError> {
    Err(ModuleError(why.into()))
}

/// A method of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Method {
    flags: u8,
    /// The exported function.
    export: String,
}

/// A class that an operator uploaded.
#[derive(Clone, Debug)]
pub struct Module {
    name: String,
    module: wasmi::Module,
    methods: BTreeMap<Bytes, Method>,
}

impl Module {
    /// Reads a module and checks that it is a class.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(name: &str, code: &[u8]) -> Result<Self, ModuleError> {
        check_name("class", name)?;
        if crate::CLASSES.iter().any(|c| c.name == name) {
            return refuse(format!("'{name}' is a built-in class"));
        }
        if code.len() > MODULE_BYTES_MAX {
            return refuse(format!(
                "the module has {} bytes; at most {MODULE_BYTES_MAX} are taken",
                code.len()
            ));
        }
        if !code.starts_with(b"\0asm") {
            return refuse("not a WebAssembly module: it does not begin with '\\0asm'");
        }
        let module = wasmi::Module::new(&engine(), code)
            .map_err(|e| ModuleError(format!("not a valid module: {e}")))?;
        check_imports(&module)?;
        let methods = methods(&module)?;
        match module.get_export("memory") {
            Some(ExternType::Memory(_)) => {}
            _ => return refuse("no memory is exported under the name 'memory'"),
        }
        let this = Self { name: name.to_owned(), module, methods };
        this.try_out()?;
        Ok(this)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its methods and their flags, by name.
    pub fn methods(&self) -> impl Iterator<Item = (&str, u8)> {
        self.methods.iter().map(|(name, m)| (std::str::from_utf8(name).unwrap_or(""), m.flags))
    }

    pub(crate) fn find(&self, method: &[u8]) -> Option<Callable<'_>> {
        let method = self.methods.get(method)?;
        Some(Callable { module: self, method })
    }

    /// Makes an instance of it, to be thrown away: its memory fits, its data lie inside.
    fn try_out(&self) -> Result<(), ModuleError> {
        let limits = limits(Budget::default().memory);
        let mut store = Store::new(self.module.engine(), limits);
        store.limiter(|limits| limits);
        store.set_fuel(TRIAL_FUEL).expect("fuel is on");
        let imports: Vec<Extern> = self
            .module
            .imports()
            .filter_map(|import| match import.ty() {
                ExternType::Func(ty) => {
                    Some(wasmi::Func::new(&mut store, ty.clone(), |_, _, _| Ok(())).into())
                }
                _ => None,
            })
            .collect();
        Instance::new(&mut store, &self.module, &imports)
            .map(drop)
            .map_err(|e| ModuleError(format!("no instance of it can be made: {e}")))
    }
}

fn check_name(what: &str, name: &str) -> Result<(), ModuleError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(fits) {
        return refuse(format!(
            "'{name}' is no name for a {what}: 1 to {NAME_BYTES_MAX} letters, digits, '_', '-', '.'"
        ));
    }
    Ok(())
}

fn check_imports(module: &wasmi::Module) -> Result<(), ModuleError> {
    for import in module.imports() {
        let (from, name) = (import.module(), import.name());
        if from != ABI {
            return refuse(format!("it imports '{name}' of '{from}'; only '{ABI}' is known"));
        }
        let Some(known) = IMPORTS.iter().find(|i| i.name == name) else {
            return refuse(format!("it imports '{name}', which '{ABI}' does not have"));
        };
        match import.ty() {
            ExternType::Func(ty) if *ty == known.ty() => {}
            _ => return refuse(format!("it imports '{name}' as something else: {}", known.text())),
        }
    }
    Ok(())
}

/// Methods are exported as `argonaut_cls_v1:FLAGS:NAME`.
fn methods(module: &wasmi::Module) -> Result<BTreeMap<Bytes, Method>, ModuleError> {
    let mut methods = BTreeMap::new();
    for export in module.exports() {
        let Some((abi, rest)) = export.name().split_once(':') else { continue };
        if abi != ABI {
            if abi.starts_with("argonaut_cls_") {
                return refuse(format!("'{}' is of another interface than {ABI}", export.name()));
            }
            continue;
        }
        let Some((flags, name)) = rest.split_once(':') else {
            return refuse(format!("'{}' is not {ABI}:FLAGS:METHOD", export.name()));
        };
        let flags = match flags {
            "r" => READS,
            "w" => WRITES,
            "rw" => READS | WRITES,
            "-" => 0,
            other => return refuse(format!("flags of '{name}' are r, w, rw or -, not '{other}'")),
        };
        check_name("method", name)?;
        match export.ty() {
            ExternType::Func(ty)
                if ty.params().is_empty() && ty.results() == [wasmi::ValType::I32] => {}
            _ => {
                return refuse(format!("method '{name}' is no function without parameters to i32"));
            }
        }
        let method = Method { flags, export: export.name().to_owned() };
        if methods.insert(Bytes::copy_from_slice(name.as_bytes()), method).is_some() {
            return refuse(format!("method '{name}' is there twice"));
        }
    }
    if methods.is_empty() {
        return refuse(format!("it exports no method: a function '{ABI}:FLAGS:METHOD'"));
    }
    Ok(methods)
}

/// One for each module: what is left of a module goes with it.
fn engine() -> Engine {
    let mut config = Config::default();
    config
        .consume_fuel(true)
        .allow_start_fn(false)
        .wasm_multi_memory(false)
        .ignore_custom_sections(true)
        .enforced_limits(EnforcedLimits::strict())
        // Functions are checked at once, and translated when they are first called.
        .compilation_mode(CompilationMode::LazyTranslation)
        .set_max_recursion_depth(RECURSION_MAX)
        .set_max_stack_height(STACK_BYTES_MAX)
        .set_max_cached_stacks(1);
    Engine::new(&config)
}

fn limits(memory: u64) -> wasmi::StoreLimits {
    StoreLimitsBuilder::new()
        .memory_size(usize::try_from(memory).unwrap_or(usize::MAX))
        .table_elements(TABLE_ELEMENTS_MAX)
        .instances(1)
        .memories(1)
        .tables(10)
        .trap_on_grow_failure(true)
        .build()
}

/// A method of a module, ready to be called.
#[derive(Clone, Copy, Debug)]
pub struct Callable<'m> {
    module: &'m Module,
    method: &'m Method,
}

impl Callable<'_> {
    pub(crate) fn flags(&self) -> u8 {
        self.method.flags
    }

    pub(crate) fn call(
        &self,
        object: &mut dyn Object,
        input: &Bytes,
        budget: &mut Budget,
    ) -> OpResult<Reply> {
        let module = &self.module.module;
        let host = Host::new(&self.module.name, object, input.clone(), *budget);
        let mut store = Store::new(module.engine(), host);
        store.limiter(|host| &mut host.limits);
        store.set_fuel(budget.fuel).expect("fuel is on");
        let result = self.run(&mut store);
        budget.fuel = store.get_fuel().expect("fuel is on");
        let host = store.into_data();
        budget.bytes = host.bytes_left;
        match result {
            // An error number, or a result that clients may take for one.
            Ok(value @ -4095..) => Ok(Reply { value, data: host.output.into() }),
            Ok(value) => {
                tracing::warn!(class = self.module.name, "a method's result is {value}");
                Err(CRASHED)
            }
            Err(e) => {
                let errno = errno_of(&e);
                let (class, method) = (&self.module.name, &self.method.export);
                tracing::warn!(class, method, errno = errno.0, "the method was ended: {e}");
                Err(errno)
            }
        }
    }

    fn run(&self, store: &mut Store<Host<'_>>) -> Result<i32, wasmi::Error> {
        let module = &self.module.module;
        let known = |name: &str| IMPORTS.iter().find(|i| i.name == name).expect("was checked");
        let imports: Vec<Extern> =
            module.imports().map(|i| known(i.name()).func(&mut *store).into()).collect();
        let instance = Instance::new(&mut *store, module, &imports)?;
        store.data_mut().memory = instance.get_memory(&*store, "memory");
        instance.get_typed_func::<(), i32>(&*store, &self.method.export)?.call(&mut *store, ())
    }
}

fn errno_of(e: &wasmi::Error) -> Errno {
    if let Some(fault) = e.downcast_ref::<Fault>() {
        return fault.errno();
    }
    match e.as_trap_code() {
        Some(TrapCode::OutOfFuel) => return TIMED_OUT,
        Some(
            TrapCode::StackOverflow
            | TrapCode::GrowthOperationLimited
            | TrapCode::OutOfSystemMemory,
        ) => return NO_MEMORY,
        _ => {}
    }
    match e.kind() {
        ErrorKind::Memory(wasmi::errors::MemoryError::ResourceLimiterDeniedAllocation)
        | ErrorKind::Table(wasmi::errors::TableError::ResourceLimiterDeniedAllocation) => NO_MEMORY,
        _ => CRASHED,
    }
}
