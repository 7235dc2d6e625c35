//! What a daemon writes to its log: one line for each event, whatever texts of peers it holds, cut
//! where it is long, and no more of them in a second than a disk and a reader bear.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard};

use stdx::SayBudget;
use tracing_subscriber::fmt::MakeWriter;

/// Bytes of one event.
const LINE_MAX: usize = 4096;
/// Events in a second, at levels that are meant for operators.
pub const LINES_PER_SECOND: u32 = 500;

/// Writes events to `out`.
pub struct LogLines<W> {
    inner: Mutex<Inner<W>>,
    /// `u32::MAX` for no bound.
    per_second: u32,
}

struct Inner<W> {
    out: W,
    budget: SayBudget,
}

impl<W> LogLines<W> {
    pub fn new(out: W, per_second: u32) -> Self {
        let inner = Inner { out, budget: SayBudget::default() };
        Self { inner: Mutex::new(inner), per_second }
    }
}

impl<'a, W: Write + 'a> MakeWriter<'a> for LogLines<W> {
    type Writer = Event<'a, W>;

    fn make_writer(&'a self) -> Event<'a, W> {
        // A thread that panics as it writes has written what it could.
        let inner = self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Event { inner, per_second: self.per_second }
    }
}

/// Takes one event, as it is formatted, with the line's end.
pub struct Event<'a, W> {
    inner: MutexGuard<'a, Inner<W>>,
    per_second: u32,
}

impl<W: Write> Write for Event<'_, W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let Inner { out, budget } = &mut *self.inner;
        if let Some(left_out) = budget.take(rt::now().mono_ns, self.per_second) {
            let mut line = Vec::with_capacity(event.len() + 64);
            if left_out > 0 {
                line.extend(format!("({left_out} lines of the log were left out)\n").bytes());
            }
            put_line(event, &mut line);
            out.write_all(&line)?;
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.out.flush()
    }
}

/// Puts an event on one line.
fn put_line(event: &[u8], line: &mut Vec<u8>) {
    let event = event.strip_suffix(b"\n").unwrap_or(event);
    let text = String::from_utf8_lossy(&event[..event.len().min(LINE_MAX)]);
    for c in text.chars() {
        if c.is_control() {
            line.extend(c.escape_default().map(|c| c as u8));
        } else {
            line.extend(c.encode_utf8(&mut [0; 4]).bytes());
        }
    }
    if event.len() > LINE_MAX {
        line.extend(format!("... ({} bytes)", event.len()).bytes());
    }
    line.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(events: &[&str], per_second: u32) -> Vec<String> {
        let log = LogLines::new(Vec::new(), per_second);
        for event in events {
            log.make_writer().write_all(event.as_bytes()).expect("memory takes it");
        }
        let out = log.inner.into_inner().expect("nobody panicked").out;
        String::from_utf8(out).expect("it is text").lines().map(str::to_owned).collect()
    }

    /// A peer's text forges no line and moves no cursor.
    #[test]
    fn an_event_is_one_line() {
        let lines = lines_of(&["who=a\n2026 ERROR forged\r\u{1b}[2J\u{9b}\n", "next ü\n"], 9);
        assert_eq!(lines, ["who=a\\n2026 ERROR forged\\r\\u{1b}[2J\\u{9b}", "next ü"]);
    }

    #[test]
    fn a_long_event_is_cut() {
        let lines = lines_of(&[&format!("{}\n", "x".repeat(1 << 20))], 9);
        assert!(lines.len() == 1 && lines[0].len() < LINE_MAX + 40, "{}", lines[0].len());
        assert!(lines[0].ends_with("... (1048576 bytes)"), "{}", &lines[0][LINE_MAX..]);
    }

    /// A flood is cut off; what was left out is told.
    #[test]
    fn a_flood_is_bounded() {
        let events = vec!["event\n"; 10_000];
        let lines = lines_of(&events, 100);
        assert!((100..=300).contains(&lines.len()), "{}", lines.len());
        assert_eq!(lines_of(&events, u32::MAX).len(), 10_000);
    }
}
