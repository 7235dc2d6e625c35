//! Bugs planted on purpose, to see that the checkers find them. Each is a wrapper around
//! a cluster that works; the roles know nothing of them.

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// Disks say that everything is durable at once; a crash shows that it was not.
    LyingDisks,
    /// Now and then a replica is sent a write without its changes.
    EmptyWrites,
    /// OSDs do not recognise a request that is sent again.
    ForgottenRequests,
    /// Pings of OSDs are answered by the network on behalf of whom they do not reach, so a
    /// primary that is cut off believes that it still leads.
    FalsePings,
    /// A log that is sent for peering ends one write early.
    ShortLogs,
    /// Monitors do not know after a crash whom they voted for.
    ForgottenVotes,
    /// A monitor that leads believes that the others follow it, whatever they do.
    UnleasedReads,
    /// Now and then a write is executed as if its client knew of no snapshot.
    ForgottenSnaps,
    /// What is copied from another OSD comes without its attributes.
    HalfCopies,
    /// Now and then the end of a notification leaves out a watcher.
    ForgottenWatchers,
    /// OSDs say that they could do what they had no room for.
    DeafToRoom,
    /// Now and then an object that a cache flushes does not come to the base, which says yes.
    EmptyFlushes,
    /// Now and then a class is called with another parameter.
    WrongCalls,
    /// Disks under the real store do not flush what a checkpoint writes before its superblock.
    LooseCheckpoints,
    /// Monitors forget maps that tell who served PGs that were not clean since.
    ForgottenMaps,
}

impl Plant {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::LyingDisks,
        Self::EmptyWrites,
        Self::ForgottenRequests,
        Self::FalsePings,
        Self::ShortLogs,
        Self::ForgottenVotes,
        Self::UnleasedReads,
        Self::ForgottenSnaps,
        Self::HalfCopies,
        Self::ForgottenWatchers,
        Self::DeafToRoom,
        Self::EmptyFlushes,
        Self::WrongCalls,
        Self::LooseCheckpoints,
        Self::ForgottenMaps,
    ];

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LyingDisks => "lying-disks",
            Self::EmptyWrites => "empty-writes",
            Self::ForgottenRequests => "forgotten-requests",
            Self::FalsePings => "false-pings",
            Self::ShortLogs => "short-logs",
            Self::ForgottenVotes => "forgotten-votes",
            Self::UnleasedReads => "unleased-reads",
            Self::ForgottenSnaps => "forgotten-snaps",
            Self::HalfCopies => "half-copies",
            Self::ForgottenWatchers => "forgotten-watchers",
            Self::DeafToRoom => "deaf-to-room",
            Self::EmptyFlushes => "empty-flushes",
            Self::WrongCalls => "wrong-calls",
            Self::LooseCheckpoints => "loose-checkpoints",
            Self::ForgottenMaps => "forgotten-maps",
        }
    }
}
