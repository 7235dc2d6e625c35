//! Caps on one inode: who holds what, and what each may hold.
//!
//! Four groups of caps are decided one by one. `A`, `L` and `X` are shared by all, and a single
//! holder of a file may have `A` and `X` to itself. `F` of a file is in one of three modes:
//!
//! | mode | when | caps |
//! |---|---|---|
//! | loner | one client wants file caps, and it writes | `s x c r w b` to it, none to others |
//! | mixed | several want them, one of them to write | `r w l` to all |
//! | shared | nobody writes | `s c r l` to all |
//!
//! `l` goes to those alone who ask for it: they keep what they have while others write.
//!
//! A request that needs more withholds caps until it is done ([`Hold`]).

use std::collections::BTreeMap;

/// Bits. The peer's `CEPH_CAP_*`.
pub(crate) mod bits {
    pub const PIN: u32 = 1;
    pub const AS: u32 = 4;
    pub const AX: u32 = 8;
    pub const LS: u32 = 0x10;
    pub const LX: u32 = 0x20;
    pub const XS: u32 = 0x40;
    pub const XX: u32 = 0x80;
    pub const FS: u32 = 0x100;
    pub const FX: u32 = 0x200;
    pub const FC: u32 = 0x400;
    pub const FR: u32 = 0x800;
    pub const FW: u32 = 0x1000;
    pub const FB: u32 = 0x2000;
    pub const FA: u32 = 0x4000;
    pub const FL: u32 = 0x8000;
    /// All of the group `F`.
    pub const F: u32 = 0xff00;
    /// With these a client changes sizes and times on its own.
    pub const WRITES: u32 = FX | FW | FA;
    /// With these it changes anything on its own.
    pub const EXCLUSIVE: u32 = AX | LX | XX | WRITES | FB;
    /// A client that wants these is one that writes.
    pub const WANTS_WRITE: u32 = FX | FW | FB | FA;
    pub const WANTS_FILE: u32 = WANTS_WRITE | FR;
}
use bits::*;

/// `pAsLsXsFscr`; `-` for none. The peer's `ccap_string`.
pub(crate) fn caps_text(caps: u32) -> String {
    const GROUPS: [(char, u32, u32); 4] = [('A', 2, 3), ('L', 4, 3), ('X', 6, 3), ('F', 8, 0xff)];
    let mut text = String::new();
    if caps & PIN != 0 {
        text.push('p');
    }
    for (group, shift, mask) in GROUPS {
        let own = caps >> shift & mask;
        if own != 0 {
            text.push(group);
            let letters = "sxcrwbal".chars().enumerate();
            text.extend(letters.filter(|(n, _)| own >> n & 1 != 0).map(|(_, letter)| letter));
        }
    }
    if text.is_empty() { "-".to_owned() } else { text }
}

/// What one client held before, at so many times: more are one.
const HISTORY_MAX: usize = 64;

/// What one client holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cap {
    pub id: u64,
    /// Of the last message about it.
    pub seq: u32,
    /// Of the last message that gave it anew.
    pub issue_seq: u32,
    pub mseq: u32,
    /// What it was told to hold.
    pub pending: u32,
    /// What it may still hold.
    pub issued: u32,
    pub wanted: u32,
    /// Before which seq it held what.
    pub history: Vec<(u32, u32)>,
    /// Since when it is asked to give back something; 0 for not.
    pub revoking_ms: u64,
}

impl Cap {
    /// What it is told next; counts.
    pub fn tell(&mut self, caps: u32, now_ms: u64) -> u32 {
        if self.pending & !caps != 0 {
            // Of a client that confirms nothing, the two oldest become one that holds for both.
            if self.history.len() >= HISTORY_MAX {
                let (_, oldest) = self.history.remove(0);
                self.history[0].1 |= oldest;
            }
            self.history.push((self.seq + 1, self.pending));
            if self.revoking_ms == 0 {
                self.revoking_ms = now_ms.max(1);
            }
        }
        self.pending = caps;
        self.issued |= caps;
        self.seq += 1;
        self.seq
    }

    /// The client says that it holds `caps` after hearing `seq`. One that gave something back before
    /// it heard that this is wanted says nothing when it hears so: of what it held before the next
    /// message, `caps` are left. The peer's `Capability::confirm_receipt`.
    pub fn confirm(&mut self, seq: u32, caps: u32) {
        if seq == self.seq {
            self.history.clear();
            self.issued = caps & (self.issued | self.pending);
            self.pending &= caps;
        } else {
            self.history.retain(|(s, _)| *s > seq);
            if let Some((s, held)) = self.history.first_mut()
                && *s == seq.wrapping_add(1)
            {
                *held &= caps;
            }
            let held = self.history.iter().fold(self.pending, |all, (_, c)| all | c);
            self.issued &= held | caps;
        }
        if !self.is_revoking() {
            self.revoking_ms = 0;
        }
    }

    /// All that it may hold now, or may come to hold by what it was told.
    pub const fn held(&self) -> u32 {
        self.issued | self.pending
    }

    pub const fn is_revoking(&self) -> bool {
        self.issued & !self.pending != 0
    }
}

/// A request needs these caps back until it is done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hold {
    /// The client that asks.
    pub client: i64,
    /// Withheld from it.
    pub own: u32,
    /// Withheld from all others.
    pub others: u32,
}

impl Hold {
    /// What is withheld from a client.
    const fn from(&self, client: i64) -> u32 {
        if self.client == client { self.own } else { self.others }
    }
}

/// All caps on an inode.
#[derive(Debug, Default)]
pub(crate) struct CapSet {
    /// Boxed: mostly there is one, and a map has room for eleven.
    pub by_client: BTreeMap<i64, Box<Cap>>,
    /// By request.
    pub holds: BTreeMap<u64, Hold>,
}

/// What all clients of one inode hold and want together, so that each of them is judged without a
/// look at all others.
#[derive(Debug, Default)]
pub(crate) struct Together {
    clients: usize,
    /// How many hold each cap, by its bit.
    held: [u32; 16],
    /// The first client that wants to write.
    writer: Option<i64>,
    /// How many want something of the file, to write included.
    users: usize,
}

impl Together {
    fn count(&mut self, held: u32, up: bool) {
        let mut bits = held & 0xffff;
        while bits != 0 {
            let held = &mut self.held[bits.trailing_zeros() as usize];
            *held = if up { *held + 1 } else { *held - 1 };
            bits &= bits - 1;
        }
    }

    /// A client holds something else than before.
    pub fn changed(&mut self, before: u32, after: u32) {
        self.count(before, false);
        self.count(after, true);
    }

    /// What others than this one hold.
    fn held_by_others(&self, own: Option<&Cap>) -> u32 {
        let own = own.map_or(0, Cap::held);
        let is_held = |bit: &u32| self.held[*bit as usize] > (own >> bit & 1);
        (0..16).filter(is_held).fold(0, |all, bit| all | 1 << bit)
    }
}

impl CapSet {
    /// Costs a look at each client.
    pub fn together(&self) -> Together {
        let mut all = Together { clients: self.by_client.len(), ..Together::default() };
        for (client, cap) in &self.by_client {
            all.count(cap.held(), true);
            all.users += usize::from(cap.wanted & WANTS_FILE != 0);
            if all.writer.is_none() && cap.wanted & WANTS_WRITE != 0 {
                all.writer = Some(*client);
            }
        }
        all
    }

    /// What `client` may hold. Costs a look at each hold.
    pub fn allowed(&self, all: &Together, client: i64, is_dir: bool) -> u32 {
        let own = self.by_client.get(&client).map(AsRef::as_ref);
        let alone = all.clients == usize::from(own.is_some());
        let mut caps = PIN | AS | LS | XS;
        if is_dir {
            caps |= if alone { FS | FX } else { FS };
        } else {
            caps |= match all.writer {
                None => FS | FC | FR | FL,
                Some(w) if all.users == 1 => {
                    if w == client {
                        FS | FX | FC | FR | FW | FB
                    } else {
                        0
                    }
                }
                Some(_) => FR | FW | FL,
            };
            if alone && all.writer == Some(client) {
                caps |= AX | XX;
            }
        }
        for hold in self.holds.values() {
            caps &= !hold.from(client);
        }
        caps & !blocked(all.held_by_others(own))
    }

    /// Whether a request withholds some of `caps` from a client.
    pub fn withheld(&self, client: i64, caps: u32) -> bool {
        self.holds.values().any(|hold| hold.from(client) & caps != 0)
    }

    /// Whether somebody holds what `hold` needs back.
    pub fn blocks(&self, hold: &Hold) -> bool {
        self.by_client.iter().any(|(client, cap)| cap.issued & hold.from(*client) != 0)
    }

    /// What a client gets beside what it wants. The peer's `get_caps_liked`.
    pub const fn liked(is_dir: bool) -> u32 {
        if is_dir {
            PIN | AS | AX | LS | LX | XS | XX | FS | FX
        } else {
            PIN | AS | AX | LS | LX | XS | XX | F & !FL
        }
    }
}

/// What a client may not have while others hold these.
const fn blocked(held: u32) -> u32 {
    let mut blocked = 0;
    let mut group = 0;
    while group < 3 {
        let (shared, exclusive) = [(AS, AX), (LS, LX), (XS, XX)][group];
        if held & exclusive != 0 {
            blocked |= shared | exclusive;
        } else if held & shared != 0 {
            blocked |= exclusive;
        }
        group += 1;
    }
    if held & FX != 0 {
        blocked |= F;
    }
    if held & (FW | FB) != 0 {
        blocked |= FS | FX | FC | FB;
    }
    if held & FB != 0 {
        blocked |= FR | FW;
    }
    if held & (FS | FC) != 0 {
        blocked |= FX | FW | FB;
    }
    if held & FR != 0 {
        blocked |= FX | FB;
    }
    blocked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(wants: &[(i64, u32)]) -> CapSet {
        let mut s = CapSet::default();
        for (client, wanted) in wants {
            s.by_client.insert(*client, Box::new(Cap { wanted: *wanted, ..Cap::default() }));
        }
        s
    }

    /// Whatever clients want, no two of them may hold what only one can use.
    #[test]
    fn exclusive_caps_have_one_holder() {
        let wants = [0, FR, FR | FC, FW, FW | FB | FX, FR | FW];
        for a in wants {
            for b in wants {
                for c in wants {
                    let s = set(&[(1, a), (2, b), (3, c)]);
                    let may = [1, 2, 3].map(|c| s.allowed(&s.together(), c, false));
                    for x in [AX, XX, FX, FB] {
                        assert!(may.iter().filter(|m| **m & x != 0).count() <= 1, "{may:x?}");
                    }
                    if may.iter().any(|m| m & FW != 0)
                        && may.iter().filter(|m| **m & FR != 0).count() > 1
                    {
                        assert!(may.iter().all(|m| m & (FC | FB) == 0), "{may:x?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_revoke_ends_with_its_seq() {
        let mut cap = Cap::default();
        cap.tell(PIN | FR | FW | FB, 1);
        cap.confirm(1, PIN | FR | FW | FB);
        cap.tell(PIN | FR, 2);
        assert!(cap.is_revoking());
        cap.confirm(1, PIN | FR | FW | FB);
        assert!(cap.is_revoking(), "it had not heard of it");
        cap.confirm(2, PIN | FR | FB);
        assert_eq!((cap.is_revoking(), cap.issued), (true, PIN | FR | FB), "a part of it");
        cap.confirm(2, PIN | FR);
        assert_eq!((cap.is_revoking(), cap.issued, cap.revoking_ms), (false, PIN | FR, 0));
        cap.confirm(2, PIN | FR | FW);
        assert_eq!(cap.issued, PIN | FR, "nobody gives caps to himself");
        // It gives back on its own, before it hears that it is to.
        let mut early = Cap::default();
        early.tell(PIN | FS | AS, 1);
        early.tell(PIN | AS, 2);
        early.confirm(1, PIN | AS);
        assert_eq!((early.is_revoking(), early.issued, early.pending), (false, PIN | AS, PIN | AS));
        // What was given in between it may have again.
        let mut again = Cap::default();
        again.tell(PIN | FS, 1);
        again.tell(PIN | FS | AS, 2);
        again.tell(PIN | AS, 3);
        again.confirm(1, PIN);
        assert!(again.is_revoking());
        again.confirm(3, PIN | AS);
        assert!(!again.is_revoking());
        let may = |s: &CapSet, client| s.allowed(&s.together(), client, true);
        let mut s = set(&[(1, 0), (2, 0)]);
        s.holds.insert(9, Hold { client: 1, own: 0, others: FS });
        assert_eq!((may(&s, 1) & FS, may(&s, 2) & FS), (FS, 0));
    }
}
