//! Object classes that operators uploaded, as the monitors tell of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use cls::Registry;
use messages::{ClassModules, Envelope, Message};
use serde_json::{Map, Value, json};

use crate::core::Osd;

/// The classes that requests are executed with. A request keeps those of when it came, so
/// that it is the same method which was judged, admitted and executed.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    /// What is known of the monitors' changes.
    version: u64,
    /// All that can be called.
    pub all: Arc<Registry>,
    /// Modules that came and cannot be used here, with the reason.
    refused: Vec<(String, String)>,
}

impl Classes {
    fn take(&mut self, news: &ClassModules) {
        let mut all = (*self.all).clone();
        let present: BTreeSet<&str> = news.present.iter().map(String::as_str).collect();
        all.retain(|name| present.contains(name));
        self.refused.retain(|(name, _)| {
            present.contains(name.as_str()) && !news.changed.contains_key(name)
        });
        for (name, code) in &news.changed {
            match all.put(name, code) {
                Ok(()) => tracing::info!(class = name, bytes = code.len(), "a class came"),
                Err(why) => {
                    tracing::error!(class = name, "a class that cannot be used came: {why}");
                    self.refused.push((name.clone(), why.to_string()));
                }
            }
        }
        self.version = news.version;
        self.all = Arc::new(all);
    }

    /// `tell osd.N cls ls`.
    pub fn json(&self) -> Value {
        let methods = |m: &cls::wasm::Module| -> Value {
            m.methods().map(|(name, f)| (name.to_owned(), json!(cls::flags_text(f)))).collect()
        };
        let modules: Map<String, Value> =
            self.all.modules().map(|m| (m.name().to_owned(), methods(m))).collect();
        let refused: Map<String, Value> =
            self.refused.iter().map(|(name, why)| (name.clone(), json!(why))).collect();
        json!({ "version": self.version, "modules": modules, "refused": refused })
    }
}

impl Osd {
    /// The monitors told of modules.
    pub(crate) fn on_class_modules(&mut self, e: &Envelope) {
        match ClassModules::decode(e) {
            // Another monitor may be behind the one before.
            Ok(news) if news.version < self.c.classes.version => {}
            Ok(news) => self.c.classes.take(&news),
            Err(x) => tracing::error!("a monitor's classes: {x}"),
        }
    }

    /// Up to which change of the monitors the uploaded classes are known.
    #[must_use]
    pub fn classes_version(&self) -> u64 {
        self.c.classes.version
    }
}
