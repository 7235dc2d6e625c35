//! The command line surface as data and text: which commands exist and what they take,
//! what a client sent, and the forms in which answers are written. No I/O.
//!
//! # Parts
//! - [`Command`], [`find`], [`descriptions`]: the table behind `get_command_descriptions`,
//!   and the small language its signatures are written in ([`Sig`]).
//! - [`Args`]: one command as a client sent it, with typed access.
//! - [`Formatter`]: json, json-pretty, xml, xml-pretty, html and table output.
//! - [`TextTable`], [`bytes_u`], [`si_u`], [`age`]: plain output.
//!
//! # Invariants
//! - A signature, its name and its flags are the peer's, so that unmodified clients of
//!   releases 16.2, 18.2 and 20.2 parse them; help texts are our own.
//! - Nothing here panics on a client's bytes.
//!
//! Source: the peer's `mon/MonCommands.h`, `mgr/MgrCommands.h`, `common/{cmdparse,Formatter,
//! TextTable}.cc`, `pybind/ceph_argparse.py`; captures in `vectors/commands/`.

mod args;
mod formatter;
mod sig;
mod table;
mod tell;
mod text_table;
mod units;

pub use args::{ArgError, Args, caps_pairs};
pub use formatter::{Formatter, float_text};
pub use sig::{Arg, ArgKind, Sig, Word};
pub use table::{
    Command, Flags, commands, descriptions, find, find_prefix, is_of_volumes, runs_in_module,
};
pub use tell::{MON_TELL, OSD_TELL, TellCommand, mon_tell_descriptions, osd_tell_descriptions};
pub use text_table::{Align, TextTable};
pub use units::{age, bytes_u, parse_iec, parse_si, si_u, timespan};
