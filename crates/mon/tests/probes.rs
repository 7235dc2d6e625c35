//! OSDs that leave without a word of anybody.

mod alone;

use alone::{Alone, addr};
use types::{AddrVec, OsdId};

impl Alone {
    fn dialled(&mut self) -> Vec<(OsdId, AddrVec)> {
        self.poll();
        std::mem::take(&mut self.probed)
    }
}

/// All OSDs die at once: nobody is left to report them. Each whose connection ended is dialled, and
/// marked down where nobody listens any more, down to the last.
#[test]
fn dead_osds_are_found_without_reporters() {
    let (mut a, conns) = Alone::with_osds();
    assert_eq!(a.map().osd_counts().1, 3);
    for conn in &conns {
        a.mon.on_closed(a.now, *conn);
    }
    a.tick(200);
    assert!(a.dialled().is_empty(), "each has a moment to come back");
    a.tick(300);
    let dialled = a.dialled();
    assert_eq!(dialled.iter().map(|(osd, _)| osd.0).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(a.map().osd_counts().1, 3, "a closed connection alone is no death");
    for (osd, addrs) in dialled {
        a.mon.on_refused(a.now, osd, &addrs);
        a.settle();
    }
    assert_eq!(a.map().osd_counts().1, 0);
    a.tick(2_000);
    assert!(a.dialled().is_empty(), "once is enough");
}

/// One that comes back by another connection, or was started anew meanwhile, is left alone.
#[test]
fn who_is_back_is_left_alone() {
    let (mut a, conns) = Alone::with_osds();
    let old = a.map().osd_addrs(OsdId(0)).unwrap().clone();
    a.mon.on_closed(a.now, conns[0]);
    a.boot(0, 6);
    a.settle();
    a.tick(1_000);
    assert!(a.dialled().is_empty());
    a.mon.on_refused(a.now, OsdId(0), &old);
    a.settle();
    assert_eq!(a.map().osd_counts().1, 3);
    // Whoever asked for it not to be marked down is obeyed.
    a.mon.on_closed(a.now, conns[1]);
    let admin = a.admin();
    assert_eq!(a.run(admin, r#"{"prefix":"osd set","key":"nodown"}"#).0, 0);
    a.tick(1_000);
    let dialled = a.dialled();
    assert_eq!(dialled, [(OsdId(1), addr(6804, 5))]);
    a.mon.on_refused(a.now, OsdId(1), &dialled[0].1);
    a.settle();
    assert_eq!(a.map().osd_counts().1, 3);
}
