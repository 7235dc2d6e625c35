//! The language signatures are written in, and the json clients read them as.
//!
//! ```text
//! osd pool create pool:Poolname [pg_num:Int(0)] [pool_type:{replicated|erasure}] [--bulk:Bool]
//! ```
//!
//! - a bare word is part of the command;
//! - `name:Kind` is an argument; in brackets it may be left out; with `...` it may repeat;
//!   with `--` it can only be given by name;
//! - `Kind(a|b)` bounds a number, `Kind<chars>` the characters of a text, `{a|b}` lists the
//!   values.

use serde_json::{Map, Value, json};

/// What an argument is: the peer's `Ceph...` types.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgKind {
    /// Text, perhaps of certain characters only.
    String,
    /// One of these.
    Choices(Vec<&'static str>),
    /// A whole number.
    Int,
    /// A number.
    Float,
    /// A switch.
    Bool,
    /// Any other type of the peer's, as text: `Poolname`, `OsdName`, `Pgid`, ...
    Named(&'static str),
}

/// One argument.
#[derive(Clone, Debug, PartialEq)]
pub struct Arg {
    /// Its key in the json command.
    pub name: &'static str,
    /// What it is.
    pub kind: ArgKind,
    /// Must be given.
    pub required: bool,
    /// May repeat; a json list.
    pub repeats: bool,
    /// May stand without its name.
    pub positional: bool,
    /// Bounds, as the peer writes them: `0`, `0|20`.
    pub range: Option<&'static str>,
    /// Characters allowed, as the peer writes them: `[A-Za-z0-9-_.]`.
    pub chars: Option<&'static str>,
}

/// Part of a signature.
#[derive(Clone, Debug, PartialEq)]
pub enum Word {
    /// A word of the command.
    Literal(&'static str),
    /// An argument.
    Arg(Arg),
}

/// A signature.
#[derive(Clone, Debug, PartialEq)]
pub struct Sig {
    /// Its parts in order.
    pub words: Vec<Word>,
}

impl Sig {
    /// Reads a signature of a table. `None` when it is not well formed: the tests read all.
    #[must_use]
    pub fn parse(text: &'static str) -> Option<Self> {
        let words = text.split(' ').filter(|w| !w.is_empty());
        let words: Option<Vec<Word>> = words.map(parse_word).collect();
        words.map(|words| Self { words })
    }

    /// The words before the first argument and between arguments: what clients send as
    /// `prefix`.
    #[must_use]
    pub fn prefix(&self) -> String {
        let words = self.words.iter().filter_map(|w| match w {
            Word::Literal(word) => Some(*word),
            Word::Arg(_) => None,
        });
        words.collect::<Vec<_>>().join(" ")
    }

    /// The arguments.
    pub fn args(&self) -> impl Iterator<Item = &Arg> {
        self.words.iter().filter_map(|w| match w {
            Word::Arg(arg) => Some(arg),
            Word::Literal(_) => None,
        })
    }

    /// The `sig` list of a description. Truth values are texts, which the clients of all
    /// releases read alike. Clients before 17.2 do not know `positional` and refuse
    /// everything when they see it: for them it is left out.
    #[must_use]
    pub fn to_json(&self, knows_positional: bool) -> Value {
        self.words.iter().map(|word| word_json(word, knows_positional)).collect()
    }
}

fn word_json(word: &Word, knows_positional: bool) -> Value {
    let arg = match word {
        Word::Literal(word) => return json!(word),
        Word::Arg(arg) => arg,
    };
    let mut out = Map::new();
    out.insert("name".into(), json!(arg.name));
    let kind = match &arg.kind {
        ArgKind::String => "CephString".to_owned(),
        ArgKind::Choices(_) => "CephChoices".to_owned(),
        ArgKind::Int => "CephInt".to_owned(),
        ArgKind::Float => "CephFloat".to_owned(),
        ArgKind::Bool => "CephBool".to_owned(),
        ArgKind::Named(name) => format!("Ceph{name}"),
    };
    out.insert("type".into(), json!(kind));
    if let ArgKind::Choices(values) = &arg.kind {
        out.insert("strings".into(), json!(values.join("|")));
    }
    if let Some(range) = arg.range {
        out.insert("range".into(), json!(range));
    }
    if let Some(chars) = arg.chars {
        out.insert("goodchars".into(), json!(chars));
    }
    if arg.repeats {
        out.insert("n".into(), json!("N"));
    }
    if !arg.required {
        out.insert("req".into(), json!("false"));
    }
    if !arg.positional && knows_positional {
        out.insert("positional".into(), json!("false"));
    }
    Value::Object(out)
}

fn parse_word(word: &'static str) -> Option<Word> {
    let (word, required) = match word.strip_prefix('[') {
        Some(inner) => (inner.strip_suffix(']')?, false),
        None => (word, true),
    };
    let (word, positional) = match word.strip_prefix("--") {
        Some(inner) => (inner, false),
        None => (word, true),
    };
    let Some((name, kind)) = word.split_once(':') else {
        return (required && positional).then_some(Word::Literal(word));
    };
    let (kind, repeats) = match kind.strip_suffix("...") {
        Some(inner) => (inner, true),
        None => (kind, false),
    };
    let (kind, chars) = match kind.find('<') {
        Some(at) => (&kind[..at], Some(kind[at + 1..].strip_suffix('>')?)),
        None => (kind, None),
    };
    let (kind, range) = match kind.find('(') {
        Some(at) => (&kind[..at], Some(kind[at + 1..].strip_suffix(')')?)),
        None => (kind, None),
    };
    let kind = match kind {
        "String" => ArgKind::String,
        "Int" => ArgKind::Int,
        "Float" => ArgKind::Float,
        "Bool" => ArgKind::Bool,
        _ if kind.starts_with('{') => {
            let inner = kind.strip_prefix('{')?.strip_suffix('}')?;
            ArgKind::Choices(inner.split('|').collect())
        }
        "Poolname" | "OsdName" | "Pgid" | "IPAddr" | "EntityAddr" | "UUID" | "Name"
        | "Objectname" => ArgKind::Named(kind),
        _ => return None,
    };
    Some(Word::Arg(Arg { name, kind, required, repeats, positional, range, chars }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes() {
        let sig = Sig::parse(
            "osd x pool:Poolname [n:Int(0|20)] [what:{a|b}] ids:String<[A-Z]>... [--yes:Bool]",
        )
        .unwrap();
        assert_eq!(sig.prefix(), "osd x");
        assert_eq!(
            sig.to_json(true).to_string(),
            r#"["osd","x",{"name":"pool","type":"CephPoolname"},{"name":"n","type":"CephInt","range":"0|20","req":"false"},{"name":"what","type":"CephChoices","strings":"a|b","req":"false"},{"name":"ids","type":"CephString","goodchars":"[A-Z]","n":"N"},{"name":"yes","type":"CephBool","req":"false","positional":"false"}]"#
        );
        assert!(!sig.to_json(false).to_string().contains("positional"));
        assert!(Sig::parse("osd n:Wrong").is_none());
        assert!(Sig::parse("osd [n:Int").is_none());
    }
}
