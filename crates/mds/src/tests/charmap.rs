//! Directories whose names are compared in another way than byte by byte: clients fold names, the
//! server keeps how.

use maps::FeatureBits;

use super::*;

impl World {
    fn set(&mut self, path: &str, name: &str, value: &'static str) -> i32 {
        let mut m =
            request(mds_op::SETXATTR, 1, path, &Args::Setxattr { flags: 0, osdmap_epoch: 0 });
        m.path2.path = Bytes::copy_from_slice(name.as_bytes());
        m.data = Bytes::from_static(value.as_bytes());
        self.ask(&m).expect("an answer").result
    }

    fn unset(&mut self, path: &str, name: &str) -> i32 {
        let mut m = request(mds_op::RMXATTR, 1, path, &Args::None);
        m.path2.path = Bytes::copy_from_slice(name.as_bytes());
        self.ask(&m).expect("an answer").result
    }

    /// The value of a virtual attribute; the errno otherwise.
    fn get(&mut self, path: &str, name: &str) -> Result<String, i32> {
        let mut m = request(mds_op::GETVXATTR, 1, path, &Args::Mask(0));
        m.path2.path = Bytes::copy_from_slice(name.as_bytes());
        let reply = self.ask(&m).expect("an answer");
        if reply.result != 0 {
            return Err(reply.result);
        }
        // 1/1 { string }
        Ok(String::from_utf8_lossy(&reply.extra[10..]).into_owned())
    }
}

#[test]
fn names_may_be_folded() {
    let mut w = World::new();
    w.open_with(CLIENT, FeatureBits::from_word(1 << 22));
    w.mkdir("d");
    let all = "ceph.dir.charmap";
    assert_eq!(w.get("d", all), Err(Errno::NODATA.0));
    assert_eq!(w.set("", "ceph.dir.casesensitive", "0"), Errno::INVAL.0, "not the root");
    assert_eq!(w.set("d", "ceph.dir.casesensitive", "maybe"), Errno::INVAL.0);
    assert_eq!(w.set("d", all, "0"), Errno::INVAL.0);
    assert_eq!(w.set("d", "ceph.dir.casesensitive", "0"), 0);
    let whole = r#"{"casesensitive":false,"normalization":"nfd","encoding":"utf8"}"#;
    assert_eq!(w.get("d", all).as_deref(), Ok(whole));
    assert_eq!(w.set("d", "ceph.dir.normalization", "nfkc"), 0);
    assert_eq!(w.get("d", "ceph.dir.normalization").as_deref(), Ok("nfkc"));
    w.mkdir("d/sub");
    assert_eq!(w.set("d", "ceph.dir.casesensitive", "1"), crate::errno::NOTEMPTY.0, "it has names");
    w.restart();
    assert_eq!(
        w.get("d/sub", "ceph.dir.normalization").as_deref(),
        Ok("nfkc"),
        "inherited, and kept"
    );
    assert_eq!(
        (w.unset("d/sub", all), w.unset("d/sub", all)),
        (0, 0),
        "none is as good as removed"
    );
    assert_eq!(w.get("d/sub", all), Err(Errno::NODATA.0));
}

/// A client that does not know how to compare names must not give any there.
#[test]
fn clients_that_cannot_fold_give_no_names() {
    let mut w = World::new();
    w.open_with(CLIENT, FeatureBits::from_word(1 << 22));
    w.mkdir("d");
    w.mkdir("e");
    assert_eq!(w.set("d", "ceph.dir.casesensitive", "0"), 0);
    w.create("d/a");
    w.done(mds_op::MKSNAP, 1, "e//s", &Args::Mode(0o755));
    assert_eq!(w.set("e", "ceph.dir.casesensitive", "0"), crate::errno::NOTEMPTY.0, "a snapshot");
    w.open_with(CLIENT + 1, FeatureBits::default());
    let other = |w: &mut World, m: ClientRequest| {
        w.tid += 1;
        let (tid, stamp) = (w.tid, UTime::from_nanos(w.now().wall_ns));
        w.heard.clear();
        w.message(CLIENT + 1, &ClientRequest { stamp, ..m }, tid);
        w.ticks(4);
        let is_it = |(_, e): &&(ConnId, Envelope)| e.kind == ClientReply::KIND && e.tid == tid;
        let (_, e) = w.heard.iter().find(is_it).expect("an answer");
        ClientReply::decode(e).expect("an answer").result
    };
    let mkdir = request(mds_op::MKDIR, 1, "d/b", &Args::Mode(0o755));
    assert_eq!(other(&mut w, mkdir), Errno::PERM.0);
    let mut rename = request(mds_op::RENAME, 1, "d/f", &Args::None);
    rename.path2 = FilePath { ino: Ino(1), path: Bytes::from_static(b"e") };
    assert_eq!(other(&mut w, rename), Errno::PERM.0);
    let look = request(mds_op::GETATTR, 1, "d/a", &Args::Mask(0));
    assert_eq!(other(&mut w, look), 0);
}
