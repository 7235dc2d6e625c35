//! The connections that an OSD makes to others: to which address each goes, and which addresses
//! are left alone for a while.

use std::collections::HashMap;

use env::ConnId;
use types::{AddrVec, OsdId};

/// How long an address that did not take a connection is left alone.
const PAUSE_MS: u64 = 200;

/// A heartbeat line is dialled again unasked only so often.
const LOOK_MS: u64 = 1_000;

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Line {
    /// Replication and peering.
    Peer(OsdId),
    /// Heartbeats: front or back.
    Beat(OsdId, bool),
}

impl Line {
    /// The OSD at its other end.
    pub fn osd(self) -> OsdId {
        let (Self::Peer(osd) | Self::Beat(osd, _)) = self;
        osd
    }
}

/// How a message gets to where a line goes.
#[derive(PartialEq, Eq, Debug)]
pub enum Way {
    /// Over this connection.
    Over(ConnId),
    /// Over a new one; the one to a former address is closed.
    Dial { close: Option<ConnId> },
    /// Not now: the address took no connection a moment ago. Peers hear of it by [`Lines::due`].
    Paused,
}

struct Dialled {
    conn: ConnId,
    to: AddrVec,
    opened: bool,
}

/// A line over which messages were lost, of which the role has not heard yet.
struct Pause {
    to: AddrVec,
    until_ms: u64,
}

/// How a connection ended.
#[derive(PartialEq, Eq, Debug)]
pub struct Ended {
    pub line: Line,
    /// It had been open: the role hears of the loss at once.
    pub opened: bool,
}

/// All lines of an OSD.
#[derive(Default)]
pub struct Lines {
    by_line: HashMap<Line, Dialled>,
    by_conn: HashMap<ConnId, Line>,
    pauses: HashMap<Line, Pause>,
    /// When a heartbeat line that broke was last dialled again unasked.
    looked_ms: HashMap<Line, u64>,
}

impl Lines {
    /// The way to `to`, which is the line's address in the newest map.
    pub fn way(&mut self, line: Line, to: &AddrVec, now_ms: u64) -> Way {
        let mut close = None;
        if let Some(dialled) = self.by_line.get(&line) {
            if dialled.to == *to {
                return Way::Over(dialled.conn);
            }
            close = Some(dialled.conn);
            self.by_conn.remove(&dialled.conn);
            self.by_line.remove(&line);
            self.pauses.insert(line, Pause { to: to.clone(), until_ms: 0 });
        }
        match self.pauses.get_mut(&line) {
            Some(pause) if pause.to == *to && now_ms < pause.until_ms => return Way::Paused,
            // What waits there was sent to the address before.
            Some(pause) => pause.until_ms = 0,
            None => {}
        }
        Way::Dial { close }
    }

    /// The line has a connection now, which is not open yet.
    pub fn dialled(&mut self, line: Line, conn: ConnId, to: AddrVec) {
        self.by_line.insert(line, Dialled { conn, to, opened: false });
        self.by_conn.insert(conn, line);
    }

    /// The line that a connection belongs to, if it was made here.
    pub fn of(&self, conn: ConnId) -> Option<Line> {
        self.by_conn.get(&conn).copied()
    }

    /// A connection is open: its OSD lives, and none of its addresses is left alone any longer.
    pub fn opened(&mut self, conn: ConnId) {
        let Some(line) = self.of(conn) else { return };
        if let Some(dialled) = self.by_line.get_mut(&line) {
            dialled.opened = true;
        }
        for (paused, pause) in &mut self.pauses {
            if paused.osd() == line.osd() {
                pause.until_ms = 0;
            }
        }
    }

    /// A connection is over. One that never opened leaves its address alone for a while.
    pub fn closed(&mut self, conn: ConnId, now_ms: u64) -> Option<Ended> {
        let line = self.by_conn.remove(&conn)?;
        let dialled = self.by_line.remove(&line)?;
        if !dialled.opened {
            let pause = Pause { to: dialled.to, until_ms: now_ms + PAUSE_MS };
            self.pauses.insert(line, pause);
        }
        Some(Ended { line, opened: dialled.opened })
    }

    /// Whether a heartbeat line that broke is dialled again at once, without waiting for the next
    /// heartbeat: an OSD that was killed refuses, and peers hear of it so.
    pub fn looks_again(&mut self, ended: &Ended, now_ms: u64) -> bool {
        if !ended.opened || matches!(ended.line, Line::Peer(_)) {
            return false;
        }
        let last = self.looked_ms.insert(ended.line, now_ms);
        last.is_none_or(|last| now_ms >= last + LOOK_MS)
    }

    /// Forgets the connections to where the newest map has nobody: they are to be closed, and what
    /// was sent over lines to peers is lost. After a cut they would wait for what TCP sends again
    /// ever more seldom, and hold up what is sent once the OSD is up again.
    pub fn leave(&mut self, is_current: impl Fn(Line, &AddrVec) -> bool) -> Vec<(Line, ConnId)> {
        let gone = self.by_line.extract_if(|line, dialled| !is_current(*line, &dialled.to));
        let gone: Vec<_> = gone.map(|(line, dialled)| (line, dialled.conn)).collect();
        for (_, conn) in &gone {
            self.by_conn.remove(conn);
        }
        gone
    }

    /// OSDs that may be sent again what was lost on the way to them, each told once.
    pub fn due(&mut self, now_ms: u64) -> Vec<OsdId> {
        let over = self.pauses.extract_if(|_, pause| pause.until_ms <= now_ms);
        let peers = over.filter_map(|(line, _)| match line {
            Line::Peer(osd) => Some(osd),
            Line::Beat(..) => None, // the next heartbeat is sent soon
        });
        peers.collect()
    }
}

#[cfg(test)]
mod tests {
    use types::EntityAddr;

    use super::*;

    const PEER: Line = Line::Peer(OsdId(3));
    const BEAT: Line = Line::Beat(OsdId(3), true);

    fn at(port: u16) -> AddrVec {
        let addr: EntityAddr = format!("v2:127.0.0.1:{port}/7").parse().expect("an address");
        AddrVec(vec![addr])
    }

    /// A connection that nobody takes.
    fn refused(lines: &mut Lines, line: Line, conn: u64, to: &AddrVec, now_ms: u64) {
        assert_eq!(lines.way(line, to, now_ms), Way::Dial { close: None });
        lines.dialled(line, ConnId(conn), to.clone());
        let ended = lines.closed(ConnId(conn), now_ms);
        assert_eq!(ended, Some(Ended { line, opened: false }));
    }

    #[test]
    fn an_address_that_refuses_is_left_alone() {
        let mut lines = Lines::default();
        refused(&mut lines, PEER, 1, &at(6800), 1_000);
        assert_eq!(lines.way(PEER, &at(6800), 1_199), Way::Paused);
        assert_eq!(lines.due(1_199), []);
        assert_eq!(lines.due(1_200), [OsdId(3)]);
        assert_eq!(lines.due(1_200), []);
        assert_eq!(lines.way(PEER, &at(6800), 1_200), Way::Dial { close: None });
    }

    #[test]
    fn a_new_address_is_dialled_at_once() {
        let mut lines = Lines::default();
        refused(&mut lines, PEER, 1, &at(6800), 1_000);
        assert_eq!(lines.way(PEER, &at(6801), 1_001), Way::Dial { close: None });
        lines.dialled(PEER, ConnId(2), at(6801));
        assert_eq!(lines.way(PEER, &at(6801), 1_002), Way::Over(ConnId(2)));
        assert_eq!(lines.due(1_003), [OsdId(3)], "what was lost is sent again all the same");
    }

    #[test]
    fn what_was_lost_is_told_after_a_heartbeat_got_through() {
        let mut lines = Lines::default();
        refused(&mut lines, PEER, 1, &at(6800), 1_000);
        assert_eq!(lines.way(BEAT, &at(6802), 1_010), Way::Dial { close: None });
        lines.dialled(BEAT, ConnId(2), at(6802));
        assert_eq!(lines.way(PEER, &at(6800), 1_020), Way::Paused);
        lines.opened(ConnId(2));
        assert_eq!(lines.way(PEER, &at(6800), 1_030), Way::Dial { close: None });
        assert_eq!(lines.due(1_030), [OsdId(3)]);
    }

    #[test]
    fn a_changed_address_closes_the_connection_and_is_told() {
        let mut lines = Lines::default();
        lines.way(PEER, &at(6800), 0);
        lines.dialled(PEER, ConnId(1), at(6800));
        lines.opened(ConnId(1));
        let way = lines.way(PEER, &at(6801), 1);
        assert_eq!(way, Way::Dial { close: Some(ConnId(1)) });
        lines.dialled(PEER, ConnId(2), at(6801));
        assert_eq!(lines.closed(ConnId(1), 2), None);
        assert_eq!(lines.due(2), [OsdId(3)]);
        lines.opened(ConnId(2));
        assert_eq!(lines.closed(ConnId(2), 3), Some(Ended { line: PEER, opened: true }));
        assert_eq!(lines.due(u64::MAX), [], "the loss of an open connection is told at once");
    }

    #[test]
    fn a_broken_heartbeat_is_looked_after_once_a_second() {
        let mut lines = Lines::default();
        let beat = Ended { line: BEAT, opened: true };
        assert!(lines.looks_again(&beat, 1_000));
        assert!(!lines.looks_again(&beat, 1_999), "it opens and closes");
        assert!(lines.looks_again(&beat, 2_999));
        assert!(!lines.looks_again(&Ended { line: BEAT, opened: false }, 9_000));
        assert!(!lines.looks_again(&Ended { line: PEER, opened: true }, 9_000));
    }

    #[test]
    fn lines_to_who_is_down_are_left() {
        let mut lines = Lines::default();
        for (line, conn) in [(PEER, 1), (BEAT, 2)] {
            lines.way(line, &at(6800), 0);
            lines.dialled(line, ConnId(conn), at(6800));
            lines.opened(ConnId(conn));
        }
        refused(&mut lines, Line::Peer(OsdId(4)), 3, &at(6900), 100);
        assert_eq!(lines.leave(|line, to| line != PEER && *to == at(6800)), [(PEER, ConnId(1))]);
        assert_eq!(lines.way(PEER, &at(6800), 1), Way::Dial { close: None }, "up again");
        assert_eq!(lines.way(BEAT, &at(6800), 1), Way::Over(ConnId(2)));
        assert_eq!(lines.closed(ConnId(1), 2), None);
    }

    #[test]
    fn heartbeats_are_not_sent_again() {
        let mut lines = Lines::default();
        refused(&mut lines, BEAT, 1, &at(6802), 1_000);
        assert_eq!(lines.way(BEAT, &at(6802), 1_100), Way::Paused);
        assert_eq!(lines.due(2_000), []);
        assert_eq!(lines.way(BEAT, &at(6802), 2_000), Way::Dial { close: None });
    }
}
