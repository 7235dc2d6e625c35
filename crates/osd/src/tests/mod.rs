//! Several OSDs wired in memory.
