//! The real world behind the seams: the kernel's sockets, clocks and randomness for roles
//! that have none of their own.
//!
//! One process runs one thread of asynchronous work ([`run_local`]); everything here lives
//! on it and needs no lock. [`Messenger`] drives `msgr` connections on tokio and gives a
//! role [`NetEvent`]s.
//!
//! Invariants: this is the only crate below the binary that reads a clock or opens a
//! socket; a role's handler is never called from inside one of its own calls.

mod clock;
mod conn;
mod crowd;
mod messenger;
mod process;
mod stream;

pub use clock::{OsRandom, now};
pub use messenger::{CloseWhy, Config, Gate, Hold, Limits, Messenger, NetEvent, Redial};
pub use msgr::{ConMode, Fault, Local, Peer, Policy, v1};
pub use process::{
    Stop, before_sleep, raise_open_files, run_local, stop_signal, told_to_stop, when_hung_up,
};
