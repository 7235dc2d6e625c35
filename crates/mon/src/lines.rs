//! Lines of the cluster's logs, as they enter: what others said, cut and escaped, without
//! secrets.

use std::fmt::Write;

use messages::LogEntry;

/// Bytes of a line; the rest is cut.
pub(crate) const LINE_BYTES_MAX: usize = 4096;
/// Bytes of a channel's name.
const CHANNEL_BYTES_MAX: usize = 64;

/// Text without control characters, cut at `max` bytes. Borrows what is well as it is.
fn tidied(text: &str, max: usize) -> Option<String> {
    if text.len() <= max && !text.contains(char::is_control) {
        return None;
    }
    let mut out = String::with_capacity(text.len().min(max) + 16);
    for c in text.chars() {
        if c.is_control() {
            let _ = write!(out, "{}", c.escape_default());
        } else {
            out.push(c);
        }
        if out.len() > max {
            out.truncate(out.floor_char_boundary(max - 3));
            out.push_str("...");
            break;
        }
    }
    Some(out)
}

/// What an audit line of an earlier release shows of a command with secrets, taken out of it.
fn without_secrets(text: &str) -> Option<String> {
    let at = text.find("cmd=")?;
    let (head, cmd) = text.split_at(at);
    let mut secret = cli::commands().iter().filter(|c| c.flags.has(cli::Flags::SECRET));
    if !cmd.contains("\"prefix\"") || !secret.any(|c| cmd.contains(&c.prefix)) {
        return None;
    }
    let json = cmd.find('{').map_or("", |at| &cmd[at..]);
    let shown = match cli::Args::parse(&[json]) {
        // It is a cut line, or one in pieces: nothing of it can be trusted.
        Err(_) => String::from("{...}"),
        Ok(args) => cli::find(&args)?.shown(&args)?,
    };
    let ends = [": dispatch", "': finished", ":  access denied"];
    let end = ends.iter().find(|end| cmd.ends_with(**end)).copied().unwrap_or_default();
    let quote = if cmd.starts_with("cmd='") { "'" } else { "" };
    Some(format!("{head}cmd={quote}[{shown}]{end}"))
}

/// Makes a line fit to be kept and shown.
pub(crate) fn tidy(entry: &mut LogEntry) {
    if entry.channel == "audit"
        && let Some(text) = without_secrets(&entry.msg)
    {
        entry.msg = text;
    }
    if let Some(text) = tidied(&entry.msg, LINE_BYTES_MAX) {
        entry.msg = text;
    }
    if let Some(text) = tidied(&entry.channel, CHANNEL_BYTES_MAX) {
        entry.channel = text;
    }
}

/// What a line takes in memory, about.
pub(crate) fn bytes(entry: &LogEntry) -> usize {
    size_of::<LogEntry>() + entry.msg.len() + entry.channel.len() + entry.name.id.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(channel: &str, msg: &str) -> String {
        let mut entry =
            LogEntry { channel: channel.into(), msg: msg.into(), ..LogEntry::default() };
        tidy(&mut entry);
        assert!(entry.msg.len() <= LINE_BYTES_MAX && entry.channel.len() <= CHANNEL_BYTES_MAX);
        let again = entry.clone();
        tidy(&mut entry);
        assert_eq!(entry, again, "once is enough");
        entry.msg
    }

    #[test]
    fn cut_and_escaped() {
        assert_eq!(line("cluster", "plain \u{e4}"), "plain \u{e4}");
        assert_eq!(line("cluster", "two\nlines\u{1b}[0m"), "two\\nlines\\u{1b}[0m");
        assert_eq!(line(&"c".repeat(500), "x"), "x");
        for text in
            ["x".repeat(5000), "\u{e4}".repeat(3000), "\n".repeat(4000), "\n".repeat(900_000)]
        {
            let cut = line("cluster", &text);
            assert!(cut.ends_with("...") && cut.len() > LINE_BYTES_MAX - 16, "{}", cut.len());
        }
        assert_eq!(line("cluster", &"x".repeat(4096)).len(), 4096);
    }

    /// Lines that an earlier release wrote lose their secrets; others stay.
    #[test]
    fn earlier_lines_lose_secrets() {
        let from = "from='client.? 1.2.3.4:0/5' entity='client.admin' ";
        for (cmd, shown) in [
            (
                r#"cmd=[{"prefix": "config-key set", "key": "a", "val": "S3"}]: dispatch"#,
                "cmd=[{prefix=config-key set, key=a}]: dispatch",
            ),
            (
                r#"cmd='[{"prefix": "config set", "who": "mgr", "name": "p", "value": "S3"}]': finished"#,
                "cmd='[{prefix=config set, name=p, who=mgr}]': finished",
            ),
            (r#"cmd=[{"prefix": "config-key put", "key": "a", "val": "S3..."#, "cmd=[{...}]"),
            (r#"cmd=[{"prefix":"auth ls"}]: dispatch"#, r#"cmd=[{"prefix":"auth ls"}]: dispatch"#),
        ] {
            assert_eq!(line("audit", &format!("{from}{cmd}")), format!("{from}{shown}"));
        }
    }
}
