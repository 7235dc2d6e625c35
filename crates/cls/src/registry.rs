//! All classes that can be called: the built-in ones and those that operators uploaded.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use types::{Errno, OpResult};

use crate::wasm::{self, Budget, Module, ModuleError};
use crate::{Method, Object, Reply};

/// What can be called, as of one moment. It never changes: a change makes another one, and
/// what began with this one ends with it.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    modules: BTreeMap<Bytes, Arc<Module>>,
}

/// A method that was found.
#[derive(Clone, Copy)]
pub enum Callable<'r> {
    /// Of a built-in class.
    BuiltIn(&'static Method),
    /// Of a module.
    Module(wasm::Callable<'r>),
}

impl Registry {
    /// A method of a class. Modules are looked at only where there is no built-in one.
    ///
    /// # Errors
    /// As [`crate::find`].
    pub fn find(&self, class: &[u8], method: &[u8]) -> OpResult<Callable<'_>> {
        if let Ok(method) = crate::find(class, method) {
            return Ok(Callable::BuiltIn(method));
        }
        let module = self.modules.get(class).and_then(|m| m.find(method));
        module.map(Callable::Module).ok_or(Errno::OPNOTSUPP)
    }

    /// Whether a module of this name is here.
    #[must_use]
    pub fn has_module(&self, class: &[u8]) -> bool {
        self.modules.contains_key(class)
    }

    /// The modules, by name.
    pub fn modules(&self) -> impl Iterator<Item = &Module> {
        self.modules.values().map(|m| &**m)
    }

    /// Takes a module, in place of one of the same name. Without one that can be used, the
    /// old one is gone all the same.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn put(&mut self, name: &str, code: &[u8]) -> Result<(), ModuleError> {
        self.modules.remove(name.as_bytes());
        let module = Module::new(name, code)?;
        self.modules.insert(Bytes::copy_from_slice(name.as_bytes()), Arc::new(module));
        Ok(())
    }

    /// Lets go all modules but those that `keep` says.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.modules.retain(|_, module| keep(module.name()));
    }
}

impl Callable<'_> {
    /// [`crate::READS`], [`crate::WRITES`], both or none.
    #[must_use]
    pub fn flags(&self) -> u8 {
        match self {
            Self::BuiltIn(method) => method.flags,
            Self::Module(method) => method.flags(),
        }
    }

    /// Calls it. What a module uses up is taken off `budget`; built-in methods cost nothing.
    ///
    /// # Errors
    /// The method's; of a module that was ended: [`wasm::TIMED_OUT`], [`wasm::NO_MEMORY`],
    /// [`wasm::CRASHED`].
    pub fn call(
        &self,
        object: &mut dyn Object,
        input: &Bytes,
        budget: &mut Budget,
    ) -> OpResult<Reply> {
        match self {
            Self::BuiltIn(method) => (method.run)(object, input),
            Self::Module(method) => method.call(object, input, budget),
        }
    }
}
