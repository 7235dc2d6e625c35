//! What pages can change: each action is one command of the monitors, sent as the account's own entity.

use serde_json::{Value, json};

use crate::form::Form;

/// A command, what asks about it before it is done, and the page to go back to.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// The command.
    pub command: Value,
    /// A command that says whether it is safe.
    pub asks: Option<Value>,
    /// What it is, in words.
    pub what: String,
    /// The page.
    pub back: &'static str,
}

/// Names of all actions.
pub const NAMES: [&str; 13] = [
    "osd-out",
    "osd-in",
    "flag-set",
    "flag-unset",
    "health-mute",
    "health-unmute",
    "pg-scrub",
    "pg-deep-scrub",
    "pg-repair",
    "pool-quota",
    "crash-archive-all",
    "balancer-on",
    "balancer-off",
];

fn number(form: &Form, name: &str) -> Result<u32, String> {
    let text = form.get(name);
    text.parse().map_err(|_| format!("'{text}' is no number"))
}

fn word<'a>(form: &'a Form, name: &str) -> Result<&'a str, String> {
    let text = form.get(name).trim();
    if text.is_empty() { Err(format!("{name} is missing")) } else { Ok(text) }
}

/// The action with this name and these fields.
///
/// # Errors
/// A sentence, when there is no such action, or a field is missing or is not what it should be.
pub fn action(name: &str, form: &Form) -> Result<Action, String> {
    let act = |command: Value, what: String, back: &'static str| {
        Ok(Action { command, asks: None, what, back })
    };
    match name {
        "osd-out" => {
            let id = number(form, "id")?.to_string();
            Ok(Action {
                command: json!({"prefix": "osd out", "ids": [id]}),
                asks: Some(json!({"prefix": "osd ok-to-stop", "ids": [id]})),
                what: format!("Take osd.{id} out"),
                back: "/osds",
            })
        }
        "osd-in" => {
            let id = number(form, "id")?.to_string();
            let command = json!({"prefix": "osd in", "ids": [id]});
            act(command, format!("Take osd.{id} in"), "/osds")
        }
        "flag-set" | "flag-unset" => {
            let key = word(form, "key")?;
            let verb = if name == "flag-set" { "set" } else { "unset" };
            let command = json!({"prefix": format!("osd {verb}"), "key": key});
            act(command, format!("{verb} {key}"), "/osds")
        }
        "health-mute" => {
            let (code, ttl) = (word(form, "code")?, word(form, "ttl")?);
            let command = json!({"prefix": "health mute", "code": code, "ttl": ttl});
            act(command, format!("Mute {code} for {ttl}"), "/why")
        }
        "health-unmute" => {
            let code = word(form, "code")?;
            let command = json!({"prefix": "health unmute", "code": code});
            act(command, format!("Count {code} again"), "/why")
        }
        "pg-scrub" | "pg-deep-scrub" | "pg-repair" => {
            let (pgid, verb) = (word(form, "pgid")?, &name["pg-".len()..]);
            let command = json!({"prefix": format!("pg {verb}"), "pgid": pgid});
            act(command, format!("{verb} of PG {pgid}"), "/placement")
        }
        "pool-quota" => {
            let (pool, val) = (word(form, "pool")?, word(form, "val")?);
            let command = json!({
                "prefix": "osd pool set-quota", "pool": pool, "field": "max_bytes", "val": val,
            });
            act(command, format!("Most bytes of pool {pool}: {val}"), "/pools")
        }
        "crash-archive-all" => act(
            json!({"prefix": "crash archive-all"}),
            "Archive all crash reports".to_owned(),
            "/why",
        ),
        "balancer-on" | "balancer-off" => {
            let command = json!({"prefix": name.replace('-', " ")});
            act(command, name.replace('-', " "), "/placement")
        }
        _ => Err(format!("there is no action '{name}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each action is a command that is known, with arguments that it has.
    #[test]
    fn actions_are_commands() {
        let fields = "id=3&key=noout&code=OSD_DOWN&ttl=1h&pgid=1.0&pool=<p>&val=0";
        let form = Form::parse(fields).unwrap();
        for name in NAMES {
            let action = action(name, &form).unwrap();
            for command in [Some(&action.command), action.asks.as_ref()].into_iter().flatten() {
                let args = cli::Args::parse(&[command.to_string()]).unwrap();
                let known = cli::find(&args).unwrap_or_else(|| panic!("no command {command}"));
                let mut kept = args.clone();
                kept.keep_known(&known.sig);
                assert_eq!(kept.to_json(), args.to_json(), "an argument is not known");
            }
            let empty = super::action(name, &Form::default());
            let has_fields = action.command.as_object().unwrap().len() > 1;
            assert_eq!(empty.is_err(), has_fields, "{name} wants its fields");
        }
        assert!(action("osd-purge", &form).is_err());
        let evil = Form::parse("id=3\",\"x\":\"").unwrap();
        assert!(action("osd-out", &evil).is_err());
    }
}
