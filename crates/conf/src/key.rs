//! Keys of options: `key::OSD_JOURNAL_SIZE` knows its option's name, type and default, so that
//! [`crate::Config::get`] gives a value of that type and a misspelled name does not compile.
//!
//! There is a constant for every row of the table in `options.rs`, made by the table itself.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use crate::kinds::{self, OptionKind};

pub use crate::options::keys::*;

/// The option `name` and the type of its values, `K::Value`.
pub struct Key<K> {
    name: &'static str,
    default: &'static str,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Key<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Key<K> {}

impl<K> fmt::Debug for Key<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl<K> Key<K> {
    pub(crate) const fn new(name: &'static str, default: &'static str) -> Self {
        Self { name, default, kind: PhantomData }
    }

    /// The option's name, as operators and the wire have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }
}

impl<K: Kind> Key<K> {
    /// The value of a text, or `None` where it is none of this option's type.
    #[must_use]
    pub fn parse(self, text: &str) -> Option<K::Value> {
        K::parse(text)
    }

    /// The value when nobody sets the option. What it says of other options is not filled in.
    ///
    /// # Panics
    /// Never: the table's test reads every default.
    #[must_use]
    pub fn default(self) -> K::Value {
        K::parse(self.default).expect("the table's defaults fit their types")
    }
}

/// How the values of an option are read: one type for each [`OptionKind`].
pub trait Kind {
    /// What a program gets.
    type Value;
    /// The same as a value.
    const KIND: OptionKind;
    /// Reads a text; space around a number does not count.
    fn parse(text: &str) -> Option<Self::Value>;
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident -> $value:ty, $parse:expr;)*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub enum $name {}

        impl Kind for $name {
            type Value = $value;
            const KIND: OptionKind = OptionKind::$name;
            fn parse(text: &str) -> Option<$value> {
                $parse(text)
            }
        })*
    };
}

kinds! {
    /// Any text. Names of other options in it (`$cluster`) are filled in by [`crate::Config::get`].
    Str -> String, |text: &str| Some(text.to_owned());
    /// A switch: `true`, `1`, `yes`, `on` and their contraries.
    Bool -> bool, |text: &str| kinds::parse_bool(text.trim());
    /// A whole number with sign.
    Int -> i64, |text: &str| text.trim().parse().ok();
    /// A whole number from 0.
    Uint -> u64, |text: &str| text.trim().parse().ok();
    /// Bytes: `64K`, `4GiB`.
    Size -> u64, kinds::parse_size;
    /// A finite number.
    Float -> f64, |text: &str| text.trim().parse().ok().filter(|n: &f64| n.is_finite());
    /// Seconds; a part of one counts, too.
    Secs -> Duration, |text: &str| Duration::try_from_secs_f64(text.trim().parse().ok()?).ok();
}

/// The option's name from its constant's, in lower case.
pub(crate) const fn lower<const N: usize>(name: &str) -> [u8; N] {
    let name = name.as_bytes();
    let mut bytes = [0; N];
    let mut at = 0;
    while at < N {
        bytes[at] = name[at].to_ascii_lowercase();
        at += 1;
    }
    bytes
}

/// A name made by [`lower`].
pub(crate) const fn text(bytes: &'static [u8]) -> &'static str {
    match std::str::from_utf8(bytes) {
        Ok(name) => name,
        Err(_) => panic!("names of options are ASCII"),
    }
}
