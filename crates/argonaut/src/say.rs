//! What a verb prints.

use std::fmt::Arguments;
use std::io::Write;

/// As `println!`, for readers that may go away in the middle, as `head` does: there is nothing
/// to be said to them any more, and nothing went wrong.
macro_rules! say {
    ($($words:tt)*) => { $crate::say::line(format_args!($($words)*)) };
}

/// A shell's status of a program that SIGPIPE ended.
const BROKEN_PIPE: i32 = 128 + 13;

/// Prints a line; ends the process where that cannot be done.
pub fn line(words: Arguments<'_>) {
    if let Err(err) = writeln!(std::io::stdout(), "{words}") {
        if err.kind() == std::io::ErrorKind::BrokenPipe {
            std::process::exit(BROKEN_PIPE);
        }
        eprintln!("argonaut: writing to standard output: {err}");
        std::process::exit(1);
    }
}
