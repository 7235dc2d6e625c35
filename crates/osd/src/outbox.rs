//! What a role wants done: the only way out of it.

use env::ConnId;
use messages::{Envelope, Message};
use types::{Epoch, Features, OsdId};

/// Messages of fewer bytes never travel in parts.
const LARGE: usize = 8 << 20;

/// One wish.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send over this connection; dropped when it is gone.
    Conn(ConnId, Envelope),
    /// Send to an OSD's cluster address of the newest map, over one connection for all, in
    /// order. When that connection is lost tell the role ([`crate::Osd::on_osd_reset`]): it
    /// sends again what counts.
    Osd(OsdId, Envelope),
    /// Send to an OSD's heartbeat address.
    Heartbeat {
        /// To whom.
        osd: OsdId,
        /// The cluster side's address; else the public side's.
        back: bool,
        /// What.
        envelope: Envelope,
    },
    /// Send to the monitors.
    Mon(Envelope),
    /// Subscribe to OSD maps from this epoch on.
    SubscribeMaps(Epoch),
    /// Close this connection.
    Close(ConnId),
    /// The answer to [`crate::Osd::on_admin`].
    Admin {
        /// The command's.
        id: u64,
        /// 0 or -errno.
        r: i32,
        /// For stderr.
        rs: String,
        /// For stdout.
        output: bytes::Bytes,
    },
    /// A line for the cluster log.
    ClusterLog {
        /// Whether it is an error; else a warning.
        error: bool,
        /// What.
        text: String,
    },
}

/// Wishes in the order in which they came up. The driver empties it after every event.
#[derive(Debug, Default)]
pub struct Outbox {
    effects: Vec<Effect>,
    closed: bool,
}

impl Outbox {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// All of them, oldest first; none are left.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Effect> {
        self.closed = false;
        self.effects.drain(..)
    }

    /// Takes the first one from `from` on that is wanted, and says where it was.
    pub(crate) fn take(
        &mut self,
        from: usize,
        wanted: impl FnMut(&Effect) -> bool,
    ) -> Option<(usize, Effect)> {
        let at = from + self.effects[from..].iter().position(wanted)?;
        Some((at, self.effects.remove(at)))
    }

    /// The store has stopped: what is thought from here on, until the event ends, is about objects
    /// that are not as they seem. Nobody hears of it.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    pub(crate) fn push(&mut self, effect: Effect) {
        match effect {
            _ if self.closed => {}
            Effect::Osd(to, e) if e.front.len() + e.data.len() >= LARGE => {
                let (kind, bytes) = (e.kind, e.size());
                let parts = messages::in_parts(e);
                if parts.is_empty() {
                    tracing::error!(%to, kind, bytes, "a message is too large to be sent");
                }
                self.effects.extend(parts.into_iter().map(|e| Effect::Osd(to, e)));
            }
            effect => self.effects.push(effect),
        }
    }

    pub(crate) fn osd<M: Message>(&mut self, osd: OsdId, m: &M) {
        self.push(Effect::Osd(osd, m.envelope(Features::ALL)));
    }

    pub(crate) fn conn(&mut self, conn: ConnId, e: Envelope) {
        self.push(Effect::Conn(conn, e));
    }

    pub(crate) fn mon<M: Message>(&mut self, m: &M) {
        self.push(Effect::Mon(m.envelope(Features::ALL)));
    }
}
