//! The seam between the monitor and its commands.

use std::collections::BTreeMap;

use bytes::Bytes;
use env::{Now, Random};
use messages::Envelope;
use types::{Epoch, OsdId};

use crate::{ClusterState, Mutation, SessionInfo, Volatile};

/// What a command sees. Nothing in it can be changed; changes are asked for by the
/// [`Outcome`].
pub struct CommandCtx<'a> {
    /// When the command is handled.
    pub now: Now,
    /// The newest state, with every change accepted so far (see the crate's invariants).
    pub state: &'a ClusterState,
    /// What the leader knows and may lose.
    pub volatile: &'a Volatile,
    /// Who asks.
    pub session: &'a SessionInfo,
    /// The command's words, parsed: prefix and arguments.
    pub cmd: &'a cli::Args,
    /// What came along (`-i FILE`).
    pub inbuf: &'a Bytes,
    /// Chance, for keys and ids.
    pub rng: &'a mut dyn Random,
    /// This monitor's own options; the central settings come on top of them.
    pub options: &'a BTreeMap<String, String>,
}

impl CommandCtx<'_> {
    /// An empty OSD map change on top of what this command sees. Its epoch is the one the
    /// change will have: use it where an epoch is stored in the map (`last_change` of a
    /// pool, `snap_epoch`, ...).
    #[must_use]
    pub fn osd_change(&self) -> maps::Incremental {
        self.state.osd_change()
    }
}

/// What the asker is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// 0 or above for success, a negated errno otherwise.
    pub r: i32,
    /// One line for the user, on stderr.
    pub rs: String,
    /// The output, on stdout.
    pub out: Bytes,
}

impl Reply {
    /// Success with a line and no output.
    #[must_use]
    pub fn ok(rs: impl Into<String>) -> Self {
        Self { rs: rs.into(), ..Self::default() }
    }

    /// Success with output.
    #[must_use]
    pub fn out(out: impl Into<Bytes>) -> Self {
        Self { out: out.into(), ..Self::default() }
    }

    /// Failure; `errno` is positive.
    #[must_use]
    pub fn err(errno: i32, rs: impl Into<String>) -> Self {
        Self { r: -errno.abs(), rs: rs.into(), out: Bytes::new() }
    }
}

/// What a command decides.
#[derive(Debug)]
pub enum Outcome {
    /// An answer and nothing else.
    Reply(Reply),
    /// A change; the answer goes out once it is committed.
    Propose {
        /// The change.
        mutation: Mutation,
        /// The answer.
        then: Reply,
    },
    /// A change of the file systems, with what it does to the OSD map; the answer goes out once it is
    /// committed.
    FileSystems {
        /// The change.
        edit: Box<crate::fs::Edit>,
        /// The answer.
        then: Reply,
    },
    /// An answer that has to wait for something; the command is not run again.
    WaitFor {
        /// What for.
        wait: Wait,
        /// The answer.
        then: Reply,
    },
    /// What is known of recovery's progress is forgotten, and an answer at once.
    ClearProgress(Reply),
    /// A module of the manager has it.
    Module,
    /// A manager loses its role or place, and an answer.
    FailManager {
        /// By name or session; empty: the active one.
        who: String,
    },
    /// The balancer notes something, and then comes what else there is.
    Balancer {
        /// What.
        step: Box<BalancerStep>,
        /// An answer, or a change.
        then: Box<Outcome>,
    },
    /// Messages to OSDs (scrub, repair, ...), and an answer at once.
    Send {
        /// Where to; OSDs without a session are skipped.
        to: Vec<(OsdId, Envelope)>,
        /// The answer.
        then: Reply,
    },
}

/// What the balancer notes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BalancerStep {
    /// It tried to make a plan.
    Keep {
        /// The plan.
        plan: Option<crate::balancer::Plan>,
        /// One sentence.
        result: String,
        /// Nothing was left to do.
        even: bool,
    },
    /// A plan is not needed any more; none: all of them.
    Forget(Option<String>),
}

/// What an answer may wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// An OSD map of at least this epoch.
    OsdMap(Epoch),
    /// Whatever is being committed.
    Commit,
}

impl Outcome {
    /// Success with a line.
    #[must_use]
    pub fn ok(rs: impl Into<String>) -> Self {
        Self::Reply(Reply::ok(rs))
    }

    /// Success with output.
    #[must_use]
    pub fn out(out: impl Into<Bytes>) -> Self {
        Self::Reply(Reply::out(out))
    }

    /// Failure; `errno` is positive.
    #[must_use]
    pub fn err(errno: i32, rs: impl Into<String>) -> Self {
        Self::Reply(Reply::err(errno, rs))
    }

    /// A change and a line for when it is committed.
    #[must_use]
    pub fn propose(mutation: Mutation, rs: impl Into<String>) -> Self {
        Self::Propose { mutation, then: Reply::ok(rs) }
    }
}
