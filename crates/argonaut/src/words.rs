//! From the words of a command line to a monitor command, by the monitors' descriptions.
//!
//! Source: the rules of the peer's `pybind/ceph_argparse.py`: literal words first, then
//! arguments in order, optional ones left out where the word does not fit them.

use serde_json::{Map, Value};

/// What a command line means.
pub struct Matched {
    /// The command.
    pub command: Map<String, Value>,
    /// The `flags` of its description.
    pub flags: u64,
}

/// Finds the description that takes all `words` and gives the command's JSON object: the
/// one with the most literal words, where several do.
///
/// # Errors
/// A sentence for the user: no command begins so, or which argument does not fit.
pub fn match_words(descriptions: &[u8], words: &[String]) -> Result<Matched, String> {
    let all: Map<String, Value> = serde_json::from_slice(descriptions)
        .map_err(|err| format!("the descriptions cannot be read: {err}"))?;
    let mut best: Option<(usize, Matched)> = None;
    let mut complaint: Option<(usize, String)> = None;
    for description in all.values() {
        let Some(sig) = description["sig"].as_array() else { continue };
        let literals: Vec<&str> = sig.iter().map_while(Value::as_str).collect();
        let begins =
            literals.len() <= words.len() && literals.iter().zip(words).all(|(l, w)| l == w);
        if !begins || literals.is_empty() {
            continue;
        }
        let n = literals.len();
        match bind(&sig[n..], &words[n..]) {
            Ok(mut command) if best.as_ref().is_none_or(|(b, _)| n > *b) => {
                command.insert("prefix".into(), literals.join(" ").into());
                let flags = description["flags"].as_u64().unwrap_or(0);
                best = Some((n, Matched { command, flags }));
            }
            Ok(_) => {}
            Err(why) if complaint.as_ref().is_none_or(|(c, _)| n > *c) => {
                complaint = Some((n, format!("{}: {why}", literals.join(" "))));
            }
            Err(_) => {}
        }
    }
    match (best, complaint) {
        (Some((_, matched)), _) => Ok(matched),
        (None, Some((_, why))) => Err(why),
        (None, None) => Err(format!("no command begins with '{}'", words.join(" "))),
    }
}

fn is_true(value: &Value) -> bool {
    value.as_bool() == Some(true) || value.as_str().is_some_and(|s| s.eq_ignore_ascii_case("true"))
}

fn bind(sig: &[Value], words: &[String]) -> Result<Map<String, Value>, String> {
    let mut command = Map::new();
    let mut rest: Vec<&str> = Vec::new();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix("--") else {
            rest.push(word);
            continue;
        };
        let (name, given) = flag.split_once('=').map_or((flag, None), |(n, v)| (n, Some(v)));
        let name = name.replace('-', "_");
        let arg = sig.iter().find(|a| a["name"] == *name).ok_or(format!("there is no --{flag}"))?;
        if arg["type"] == "CephBool" {
            command.insert(name, Value::Bool(given.is_none_or(|v| v != "false")));
            continue;
        }
        let text = given.or_else(|| words.next()).ok_or(format!("--{flag} wants a value"))?;
        command.insert(name, value(arg, text)?);
    }
    let mut rest = rest.into_iter().peekable();
    for arg in sig {
        let name = arg["name"].as_str().unwrap_or_default();
        if command.contains_key(name) {
            continue;
        }
        let required = arg.get("req").is_none_or(is_true);
        if arg.get("n").is_some_and(|n| n == "N") {
            let all: Vec<Value> = rest.by_ref().map(|w| value(arg, w)).collect::<Result<_, _>>()?;
            if all.is_empty() && required {
                return Err(format!("{name} is missing"));
            }
            if !all.is_empty() {
                command.insert(name.into(), Value::Array(all));
            }
            continue;
        }
        match rest.peek().map(|w| value(arg, w)) {
            Some(Ok(fits)) => {
                rest.next();
                command.insert(name.into(), fits);
            }
            Some(Err(why)) if required => return Err(why),
            None if required => return Err(format!("{name} is missing")),
            _ => {}
        }
    }
    match rest.next() {
        Some(word) => Err(format!("'{word}' is one word too many")),
        None => Ok(command),
    }
}

/// The word as its argument's type has it.
fn value(arg: &Value, word: &str) -> Result<Value, String> {
    let name = arg["name"].as_str().unwrap_or_default();
    let wrong = |wanted: &str| format!("{name}: '{word}' is not {wanted}");
    match arg["type"].as_str().unwrap_or_default() {
        "CephInt" => word.parse::<i64>().map(Value::from).map_err(|_| wrong("a whole number")),
        "CephFloat" => word.parse::<f64>().map(Value::from).map_err(|_| wrong("a number")),
        "CephBool" => match word {
            "true" | "false" => Ok(Value::Bool(word == "true")),
            _ if word == format!("--{}", name.replace('_', "-")) => Ok(Value::Bool(true)),
            _ => Err(wrong("true or false")),
        },
        "CephChoices" => {
            let choices = arg["strings"].as_str().unwrap_or_default();
            if choices.split('|').any(|c| c == word) {
                Ok(word.into())
            } else {
                Err(wrong(&format!("one of {choices}")))
            }
        }
        _ => Ok(word.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESCRIPTIONS: &str = r#"{
        "cmd000": {"sig": ["osd", "pool", "create", {"name": "pool", "type": "CephPoolname"},
            {"name": "pg_num", "type": "CephInt", "req": "false"},
            {"name": "pool_type", "type": "CephChoices", "strings": "replicated|erasure", "req": false},
            {"name": "size", "type": "CephInt", "req": "false"}]},
        "cmd001": {"sig": ["osd", {"name": "what", "type": "CephString"}]},
        "cmd002": {"sig": ["osd", "out", {"name": "ids", "type": "CephString", "n": "N"}]}}"#;

    fn json(line: &str) -> Result<String, String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        match_words(DESCRIPTIONS.as_bytes(), &words).map(|m| Value::Object(m.command).to_string())
    }

    #[test]
    fn binds_words() {
        let same = |line: &str, want: &str| {
            let (got, want): (Value, Value) = (
                serde_json::from_str(&json(line).unwrap()).unwrap(),
                serde_json::from_str(want).unwrap(),
            );
            assert_eq!(got, want);
        };
        same("osd pool create x 8", r#"{"prefix":"osd pool create","pool":"x","pg_num":8}"#);
        same(
            "osd pool create x erasure",
            r#"{"prefix":"osd pool create","pool":"x","pool_type":"erasure"}"#,
        );
        same("osd pool create x --size=3", r#"{"prefix":"osd pool create","pool":"x","size":3}"#);
        same("osd out 1 2", r#"{"prefix":"osd out","ids":["1","2"]}"#);
        assert!(json("osd pool create").unwrap_err().contains("pool is missing"));
        assert!(json("osd pool create x 8 erasure 3 4").unwrap_err().contains("too many"));
        assert!(json("nonsense").unwrap_err().contains("no command begins"));
    }
}
