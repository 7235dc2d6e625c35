//! How far long work is, on standard error.

use std::io::IsTerminal;

/// One line that grows: `Exporting image: 42% complete...`; without a terminal only its end.
pub struct Progress {
    what: String,
    shown: Option<u64>,
    quiet: bool,
    live: bool,
}

impl Progress {
    pub fn new(what: &str, quiet: bool) -> Self {
        let live = std::io::stderr().is_terminal();
        Self { what: what.to_owned(), shown: None, quiet, live }
    }

    /// So much of so much is done.
    pub fn at(&mut self, done: u64, all: u64) {
        let percent =
            if all == 0 { 100 } else { (done.min(all) as u128 * 100 / all as u128) as u64 };
        if self.quiet || self.shown == Some(percent) {
            return;
        }
        self.shown = Some(percent);
        if self.live || percent == 100 {
            let (start, end) = if self.live { ("\r", "") } else { ("", "\n") };
            let done = if percent == 100 { "done." } else { "" };
            crate::say::hint(format_args!(
                "{start}{}: {percent}% complete...{done}{end}",
                self.what
            ));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.live && self.shown.is_some() {
            tell!("");
        }
    }
}
