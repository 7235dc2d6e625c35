//! Accepted connections whose peers have not proved who they are: how many there may be.
//!
//! Strangers take the places of strangers only. When there are too many of one address, or of
//! all, that one goes which is least far in its handshake, and of these the oldest: who goes on
//! talking comes through even while a flood of silent ones lasts. Its socket is closed at once
//! and not when its task gets a turn, so that the bound holds within a burst.

use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use crate::conn::Conn;

/// See above.
#[derive(Default)]
pub(crate) struct Crowd {
    by_ip: HashMap<IpAddr, Vec<Rc<Conn>>>,
}

impl Crowd {
    /// Forgets those that have proved themselves or are over.
    pub fn settle(&mut self) {
        self.by_ip.retain(|_, conns| {
            conns.retain(|conn| conn.is_unproved());
            !conns.is_empty()
        });
    }

    /// Takes another one in, after it made room; `per_ip` and `all` count it too. Returns how many
    /// were closed for it.
    pub fn admit(&mut self, ip: IpAddr, conn: Rc<Conn>, per_ip: usize, all: usize) -> usize {
        let mut shed = 0;
        if self.by_ip.get(&ip).is_some_and(|conns| conns.len() >= per_ip.max(1)) {
            let conns = self.by_ip.get_mut(&ip).expect("just seen");
            conns.retain(|conn| conn.is_unproved());
            while conns.len() >= per_ip.max(1) {
                Self::shed(conns);
                shed += 1;
            }
        }
        if self.len() >= all.max(1) {
            self.settle();
            while self.len() >= all.max(1) && self.shed_one() {
                shed += 1;
            }
        }
        self.by_ip.entry(ip).or_default().push(conn);
        shed
    }

    /// Closes one to make room; false when there is none.
    pub fn shed_one(&mut self) -> bool {
        self.settle();
        // Of the address that has most.
        let Some(conns) = self.by_ip.values_mut().max_by_key(|conns| conns.len()) else {
            return false;
        };
        Self::shed(conns);
        true
    }

    fn len(&self) -> usize {
        self.by_ip.values().map(Vec::len).sum()
    }

    fn shed(conns: &mut Vec<Rc<Conn>>) {
        let least = conns.iter().enumerate().min_by_key(|(_, conn)| (conn.progress(), conn.id));
        if let Some(at) = least.map(|(at, _)| at) {
            conns.remove(at).shed();
        }
    }
}
