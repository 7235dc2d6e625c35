//! How the clients of a wired cluster take an OSD's backoffs.

use denc::Features;
use messages::{Backoff, Message};

use super::cluster::Cluster;

impl Cluster {
    /// The client holds back what an OSD does not want now, or sends it after all.
    pub fn client_backs_off(&mut self, i: usize, m: Backoff) {
        let key = (i, m.pg.pg, m.id);
        if m.op == 1 {
            self.backoffs.insert(key);
            let ack = Backoff { op: 2, ..m.clone() };
            self.from_client[i].push_back(ack.envelope(Features::TENTACLE_WORD));
        } else {
            assert_eq!(m.op, 3, "block or go on");
            assert!(self.backoffs.remove(&key), "it was asked before");
        }
        for a in &mut self.asked {
            let here = a.sent.is_some_and(|(osd, _, pg, _)| (osd.0 as usize, pg) == (i, m.pg.pg));
            let oid = crate::session::object_of(&a.msg);
            let within = m.begin <= oid && oid < m.end;
            assert!(!here || a.msg.oid.is_empty() || within, "{:?} is of {:?}", a.msg.oid, m.pg);
            if here {
                a.sent = None;
            }
        }
        self.client_step();
    }
}
