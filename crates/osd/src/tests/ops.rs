//! The op table through a whole cluster, beyond what was recorded.

use bytes::Bytes;
use denc::{Denc, Reader, Writer};
use messages::{MOsdOpReply, OsdOp, op, op_flag, req_flag};
use types::{EVersion, Errno, Features, HObject, PoolId};

use super::cluster::Cluster;

const POOL: PoolId = PoolId(1);

fn one() -> Cluster {
    Cluster::ready(1, 1, 4, 1)
}

fn plain(code: u16) -> OsdOp {
    OsdOp::new(code, Bytes::new())
}

fn write(off: u64, data: &'static [u8]) -> OsdOp {
    OsdOp::extent(op::WRITE, off, data.len() as u64, Bytes::from_static(data))
}

fn full(data: &'static [u8]) -> OsdOp {
    OsdOp::extent(op::WRITEFULL, 0, data.len() as u64, Bytes::from_static(data))
}

fn read(off: u64, len: u64) -> OsdOp {
    OsdOp::extent(op::READ, off, len, Bytes::new())
}

pub fn xattr(code: u16, name: &str, value: &str) -> OsdOp {
    let mut o = OsdOp::new(code, Bytes::from([name, value].concat()));
    o.put_u32(0, name.len() as u32);
    o.put_u32(4, value.len() as u32);
    o
}

fn encoded(code: u16, f: impl FnOnce(&mut Writer)) -> OsdOp {
    let mut w = Writer::new(Features::ALL);
    f(&mut w);
    OsdOp::new(code, w.finish())
}

fn ok(reply: &MOsdOpReply) -> &Bytes {
    assert_eq!(reply.result, 0);
    &reply.ops[0].data
}

/// Reads end at the object's end; nothing and beyond-the-end read as nothing.
#[test]
fn reads_are_cut_at_the_end() {
    let mut c = one();
    c.run(POOL, "o", vec![full(b"0123456789")]);
    for (off, len, want) in
        [(0, 0, &b"0123456789"[..]), (3, 4, b"3456"), (8, 10, b"89"), (10, 5, b""), (99, 0, b"")]
    {
        let r = c.run(POOL, "o", vec![read(off, len)]);
        assert_eq!(ok(&r), want, "{off}~{len}");
        assert_eq!(r.ops[0].len(), want.len() as u64);
        assert_eq!(r.user_version, 1);
        assert_eq!(r.replay_version, EVersion::ZERO, "reads have no version of their own");
    }
    assert_eq!(c.run(POOL, "none", vec![read(0, 0)]).result, -2);
    let r = c.run(POOL, "o", vec![plain(op::STAT)]);
    let mut r = Reader::new(ok(&r));
    assert_eq!((r.u64(), r.u32()), (Ok(10), Ok(1_700_000_000)));
}

/// A vector reads bytes that it has written, but attributes and omap as they were before, as
/// the peer does; and it leaves nothing when it fails.
#[test]
fn vectors_are_atomic_and_read_keys_of_before() {
    let mut c = one();
    c.run(POOL, "o", vec![full(b"before")]);
    let vector = vec![
        write(2, b"XX"),
        xattr(op::SETXATTR, "a", "1"),
        encoded(op::OMAPSETVALS, |w| {
            vec![(Bytes::from_static(b"k"), Bytes::from_static(b"v"))].encode(w);
        }),
        read(0, 0),
        xattr(op::GETXATTR, "a", ""),
        encoded(op::OMAPGETVALSBYKEYS, |w| vec![Bytes::from_static(b"k")].encode(w)),
    ];
    let r = c.run_with(POOL, "o", vector.clone(), req_flag::RETURNVEC);
    assert_eq!(r.result, Errno::NODATA.0, "no such attribute before");
    let seed = vector[1..3].to_vec();
    assert_eq!(c.run(POOL, "o", seed).result, 0);
    let mut vector = vector;
    vector[1] = xattr(op::SETXATTR, "a", "3");
    vector[2] = plain(op::OMAPCLEAR);
    let r = c.run_with(POOL, "o", vector.clone(), req_flag::RETURNVEC);
    assert_eq!(r.result, 0);
    assert_eq!(r.ops[3].data.as_ref(), b"beXXre");
    assert_eq!(r.ops[4].data.as_ref(), b"1");
    assert_eq!(r.ops[5].data.len(), 4 + 4 + 1 + 4 + 1);
    let r = c.run(POOL, "o", vector);
    assert!(r.ops.iter().all(|o| o.data.is_empty()), "writes bring nothing back unasked");

    let failing = vec![full(b"gone"), plain(op::DELETE), plain(op::STAT)];
    let r = c.run(POOL, "o", failing);
    assert_eq!((r.result, r.rvals), (-2, vec![0, 0, -2]));
    assert_eq!(ok(&c.run(POOL, "o", vec![read(0, 0)])), &b"beXXre"[..]);

    // A failure that is allowed does not stop the vector.
    let mut may_fail = xattr(op::CMPXATTR, "a", "2");
    (may_fail.raw[8], may_fail.raw[9]) = (1, 1);
    may_fail.flags = op_flag::FAILOK;
    let r = c.run(POOL, "o", vec![may_fail.clone(), full(b"after")]);
    assert_eq!((r.result, r.rvals), (0, vec![-125, 0]));
    may_fail.flags = 0;
    assert_eq!(c.run(POOL, "o", vec![may_fail, full(b"never")]).result, -125);
    assert_eq!(ok(&c.run(POOL, "o", vec![read(0, 0)])), &b"after"[..]);
}

/// The gateway overwrites its records by \[delete, create, check of the old version, the new
/// one\], and ends an upload by \[removal, check\]: the checks see what was there before.
/// Results as stock 20.2.4 gives them.
#[test]
fn methods_read_what_was_before_the_vector() {
    fn call(class: &str, method: &str, input: impl FnOnce(&mut Writer)) -> OsdOp {
        let mut w = Writer::new(Features::ALL);
        w.raw(class.as_bytes());
        w.raw(method.as_bytes());
        let names = w.len();
        input(&mut w);
        let mut call = plain(op::CALL);
        (call.raw[0], call.raw[1]) = (class.len() as u8, method.len() as u8);
        call.data = w.finish();
        call.put_u32(3, (call.data.len() - names) as u32);
        call
    }
    let version = |w: &mut Writer, ver: u64, tag: &str| {
        w.framed(1, 1, |w| {
            w.u64(ver);
            w.str(tag);
        });
    };
    let set = |ver, tag: &'static str| {
        call("version", "set", |w| w.framed(1, 1, |w| version(w, ver, tag)))
    };
    // Equal to this one.
    let check = |ver, tag: &'static str| {
        call("version", "check_conds", |w| {
            w.framed(1, 1, |w| {
                version(w, 0, "");
                w.u32(1);
                w.framed(1, 1, |w| {
                    version(w, ver, tag);
                    w.u32(1);
                });
            });
        })
    };
    let (delete, create) = (|| plain(op::DELETE), || plain(op::CREATE));
    let mut c = one();
    assert_eq!(c.run(POOL, "v", vec![create(), set(5, "A")]).result, 0);
    let vector = vec![delete(), create(), check(5, "A"), set(6, "A")];
    assert_eq!(c.run(POOL, "v", vector).result, 0);
    assert_eq!(c.run(POOL, "v", vec![set(9, "B"), check(9, "B")]).result, -125);
    assert_eq!(c.run(POOL, "v", vec![check(6, "A")]).result, 0);
    let add = || {
        call("numops", "add", |w| {
            w.str("k");
            w.str("1");
        })
    };
    assert_eq!(c.run(POOL, "n", vec![add()]).result, 0);
    let value = |c: &mut Cluster| {
        let get = encoded(op::OMAPGETVALSBYKEYS, |w| vec![Bytes::from_static(b"k")].encode(w));
        let r = c.run(POOL, "n", vec![get]);
        r.ops[0].data[13..].to_vec()
    };
    assert_eq!(c.run(POOL, "n", vec![add(), add()]).result, 0);
    assert_eq!(value(&mut c), b"2", "both add to what was there");
    assert_eq!(c.run(POOL, "n", vec![delete(), create(), add()]).result, 0);
    assert_eq!(value(&mut c), b"3");
    // Removed in the same vector: attributes are still seen.
    let remove = || call("rgw", "obj_remove", |w| w.framed(1, 1, |w| w.u32(0)));
    assert_eq!(c.run(POOL, "v", vec![remove(), check(5, "A")]).result, -125);
    assert_eq!(c.run(POOL, "v", vec![remove(), check(6, "A")]).result, 0);
    assert_eq!(c.run(POOL, "v", vec![plain(op::STAT)]).result, -2);
}

/// Only ops that create do so.
#[test]
fn what_creates_and_what_does_not() {
    let mut c = one();
    let mut excl = plain(op::CREATE);
    excl.flags = op_flag::EXCL;
    let set = encoded(op::OMAPSETVALS, |w| w.u32(0));
    for (i, (o, result, exists)) in [
        (write(0, b"x"), 0, true),
        (OsdOp::extent(op::APPEND, 0, 1, Bytes::from_static(b"x")), 0, true),
        (excl.clone(), 0, true),
        (xattr(op::SETXATTR, "a", "b"), 0, true),
        (set, 0, true),
        (plain(op::SETALLOCHINT), 0, true),
        (OsdOp::extent(op::TRUNCATE, 5, 0, Bytes::new()), 0, false),
        (OsdOp::extent(op::ZERO, 0, 5, Bytes::new()), 0, false),
        (plain(op::DELETE), -2, false),
        (xattr(op::RMXATTR, "a", ""), -2, false),
        (plain(op::OMAPCLEAR), -2, false),
        (encoded(op::OMAPRMKEYS, |w| w.u32(0)), -2, false),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("n{i}");
        let what = o.code;
        assert_eq!(c.run(POOL, &name, vec![o]).result, result, "{what:#x}");
        let stat = c.run(POOL, &name, vec![plain(op::STAT)]).result;
        assert_eq!(stat == 0, exists, "{what:#x}");
    }
    assert_eq!(c.run(POOL, "n0", vec![excl]).result, -17);
    assert_eq!(c.run(POOL, "n0", vec![plain(op::DELETE)]).result, 0);
    assert_eq!(c.run(POOL, "n0", vec![plain(op::STAT)]).result, -2);
}

/// Sizes and names have limits, and extents must be as long as their data.
#[test]
fn limits() {
    let mut c = one();
    assert_eq!(c.run(POOL, "o", vec![write(128 << 20, b"x")]).result, -27);
    assert_eq!(c.run(POOL, "o", vec![write((128 << 20) - 1, b"x")]).result, 0);
    let short = OsdOp::extent(op::WRITE, 0, 5, Bytes::from_static(b"x"));
    assert_eq!(c.run(POOL, "o", vec![short]).result, -22);
    let long = "n".repeat(2049);
    assert_eq!(c.run(POOL, &long, vec![write(0, b"x")]).result, -36);
    assert_eq!(c.run(POOL, &long[..2048], vec![write(0, b"x")]).result, 0);
    let name = "a".repeat(101);
    assert_eq!(c.run(POOL, "o", vec![xattr(op::SETXATTR, &name, "v")]).result, -36);
    let huge = OsdOp::extent(op::TRUNCATE, 1 << 40, 0, Bytes::new());
    assert_eq!(c.run(POOL, "o", vec![huge]).result, -27);
    let same = |len: u64, n: u64| {
        let mut o = OsdOp::new(op::WRITESAME, Bytes::from_static(b"ab"));
        o.put_u64(8, len);
        o.put_u64(16, n);
        o
    };
    assert_eq!(c.run(POOL, "w", vec![same(7, 2)]).result, -22);
    assert_eq!(c.run(POOL, "w", vec![same(6, 2)]).result, 0);
    assert_eq!(ok(&c.run(POOL, "w", vec![read(0, 0)])), &b"ababab"[..]);
}

/// Writes and truncations of a file, told in any order, end the same.
#[test]
fn truncations_order_writes() {
    let mut c = one();
    let at = |mut o: OsdOp, seq: u32, size: u64| {
        o.put_u64(16, size);
        o.put_u32(24, seq);
        o
    };
    c.run(POOL, "f", vec![at(write(0, b"0123456789"), 2, 100)]);
    // A write from after a truncation to 4 arrives before the truncation.
    c.run(POOL, "f", vec![at(write(6, b"new"), 3, 4)]);
    assert_eq!(ok(&c.run(POOL, "f", vec![read(0, 0)])), &b"0123\0\0new"[..]);
    // The truncation itself comes late, and one write from before it still later.
    c.run(POOL, "f", vec![at(OsdOp::extent(op::TRUNCATE, 4, 0, Bytes::new()), 3, 4)]);
    c.run(POOL, "f", vec![at(write(7, b"old!"), 2, 100)]);
    assert_eq!(ok(&c.run(POOL, "f", vec![read(0, 0)])), &b"0123\0\0nol"[..]);
    // A reader who knows of a newer truncation sees no more than it left.
    let r = c.run(POOL, "f", vec![at(read(0, 0), 9, 2)]);
    assert_eq!(ok(&r), &b"01"[..]);
}

/// Omap pages end where asked and say whether there is more.
#[test]
fn omap_pages() {
    let mut c = one();
    let pairs: Vec<(Bytes, Bytes)> =
        (0..30).map(|i| (format!("k{i:02}").into(), format!("{i}").into())).collect();
    c.run(POOL, "o", vec![encoded(op::OMAPSETVALS, |w| pairs.encode(w))]);
    let page = |after: &'static str, max: u64, prefix: &'static str| {
        encoded(op::OMAPGETVALS, |w| {
            w.str(after);
            w.u64(max);
            w.str(prefix);
        })
    };
    let mut check = |o: OsdOp, want: std::ops::Range<usize>, more: bool| {
        let r = c.run(POOL, "o", vec![o]);
        let mut out = Reader::shared(ok(&r));
        let got: Vec<(Bytes, Bytes)> = Denc::decode(&mut out).unwrap();
        assert_eq!(got, pairs[want]);
        assert_eq!(out.bool(), Ok(more));
    };
    check(page("", 10, ""), 0..10, true);
    check(page("k09", 10, ""), 10..20, true);
    check(page("k19", 100, ""), 20..30, false);
    check(page("", 100, "k1"), 10..20, false);
    check(page("k14", 100, "k1"), 15..20, false);
    check(page("", 30, ""), 0..30, false);
    c.run(POOL, "o", vec![encoded(op::OMAPSETHEADER, |w| w.raw(b"head"))]);
    assert_eq!(ok(&c.run(POOL, "o", vec![plain(op::OMAPGETHEADER)])), &b"head"[..]);
    c.run(POOL, "o", vec![plain(op::OMAPCLEAR)]);
    assert_eq!(ok(&c.run(POOL, "o", vec![plain(op::OMAPGETHEADER)])), &b""[..]);
}

/// Comparisons of attributes: texts by bytes, numbers by value, the operand first.
#[test]
fn attributes_compare() {
    let mut c = one();
    c.run(POOL, "o", vec![xattr(op::SETXATTR, "n", "12"), xattr(op::SETXATTR, "s", "m")]);
    let text = |v: &str, how: u8| {
        let mut o = xattr(op::CMPXATTR, "s", v);
        (o.raw[8], o.raw[9]) = (how, 1);
        o
    };
    let number = |v: u64, how: u8| {
        let mut o = OsdOp::new(op::CMPXATTR, [b"n".as_slice(), &v.to_le_bytes()].concat().into());
        o.put_u32(0, 1);
        o.put_u32(4, 8);
        (o.raw[8], o.raw[9]) = (how, 2);
        o
    };
    for (o, holds) in [
        (text("m", 1), true),
        (text("n", 3), true),
        (text("a", 3), false),
        (text("m", 2), false),
        (number(12, 1), true),
        (number(100, 3), true),
        (number(9, 5), true),
        (number(13, 6), false),
    ] {
        let r = c.run(POOL, "o", vec![o]);
        assert_eq!(r.result, if holds { 1 } else { -125 });
    }
    let all = c.run(POOL, "o", vec![plain(op::GETXATTRS)]);
    let all: Vec<(Bytes, Bytes)> = Denc::from_bytes(ok(&all)).unwrap();
    assert_eq!(all.len(), 2, "the OSD's own attribute is not a user's");
}

/// Lists all PGs of the pool, three names at a time: the names, and how many answers it took.
fn list_all(
    c: &mut Cluster,
    ask: impl Fn(&HObject) -> OsdOp,
) -> (std::collections::BTreeSet<Bytes>, usize) {
    let mut seen = std::collections::BTreeSet::new();
    let mut cursor = HObject::min();
    let mut pages = 0;
    loop {
        let pg = types::stable_mod(cursor.hash, 8);
        let mut ask = ask(&cursor);
        ask.put_u64(0, 3);
        let r = c.list(POOL, pg, vec![ask]);
        assert!(r.result == 0 || r.result == 1, "{}", r.result);
        let mut out = Reader::new(&r.ops[0].data);
        let next = out
            .framed("list", 1, |out, _| {
                let next = HObject::decode(out)?;
                for (ns, name, key) in out.seq(|r| Ok((r.blob()?, r.blob()?, r.blob()?)))? {
                    assert!(ns.is_empty() && key.is_empty());
                    assert!(seen.insert(name), "listed twice");
                }
                Ok(next)
            })
            .unwrap();
        pages += 1;
        assert_eq!(r.result == 1, types::stable_mod(next.hash, 8) != pg || next.max);
        if next.max {
            return (seen, pages);
        }
        cursor = next;
    }
}

/// All objects are listed once, in pages, PG by PG, as a client walks them.
#[test]
fn listings() {
    let mut c = Cluster::ready(3, 2, 8, 3);
    for i in 0..50 {
        c.run(POOL, &format!("obj{i}"), vec![plain(op::CREATE)]);
    }
    let (seen, pages) = list_all(&mut c, |at| encoded(op::PGNLS, |w| at.encode(w)));
    assert_eq!(seen.len(), 50);
    assert!(pages > 16);
}

fn filtered(at: &HObject, filter: impl FnOnce(&mut Writer)) -> OsdOp {
    encoded(op::PGNLS_FILTER, |w| {
        w.blob(b"");
        w.blob(b"");
        filter(w);
        at.encode(w);
    })
}

/// A listing with a filter has what passes it, page by page.
#[test]
fn listings_with_filters() {
    let mut c = Cluster::ready(3, 2, 8, 3);
    let tag = |tag: &str| String::from_utf8(tag.to_owned().to_bytes().to_vec()).unwrap();
    for i in 0..60 {
        let name = format!("{i:x}.{:08x}", i % 3);
        c.run(POOL, &name, vec![plain(op::CREATE)]);
        if i % 2 == 0 {
            let tag = tag(if i % 4 == 0 { "scan" } else { "other" });
            c.run(POOL, &name, vec![xattr(op::SETXATTR, "scrub_tag", &tag)]);
        }
    }
    for (wanted, tag) in [(20, &b""[..]), (15, b"scan"), (20, b"nobody's")] {
        let ask = |w: &mut Writer| {
            w.blob(b"cephfs.inode_tag");
            w.framed(1, 1, |w| w.blob(tag));
        };
        let (seen, _) = list_all(&mut c, |at| filtered(at, ask));
        assert!(seen.iter().all(|name| name.ends_with(b".00000000")));
        assert_eq!(seen.len(), wanted);
    }
    let value = tag("scan");
    let ask = |w: &mut Writer| {
        w.blob(b"plain");
        w.blob(b"_scrub_tag");
        w.blob(value.as_bytes());
    };
    assert_eq!(list_all(&mut c, |at| filtered(at, ask)).0.len(), 15);
    let unknown = |w: &mut Writer| w.blob(b"cephfs.nothing");
    let ask = filtered(&HObject::min(), unknown);
    assert_eq!(c.list(POOL, 0, vec![ask]).result, -22);
}

/// Objects are copied with all they have, within an OSD and between OSDs, large ones too.
#[test]
fn copies() {
    let mut c = Cluster::ready(3, 2, 8, 4);
    let big: Bytes = (0..10_000_000u32).map(|i| (i % 251) as u8).collect();
    let len = big.len() as u64;
    let pairs: Vec<(Bytes, Bytes)> =
        (0..3_000).map(|i| (format!("k{i:04}").into(), vec![7; 500].into())).collect();
    let make = vec![
        OsdOp::extent(op::WRITEFULL, 0, len, big.clone()),
        xattr(op::SETXATTR, "a", "attr"),
        encoded(op::OMAPSETVALS, |w| pairs.encode(w)),
        encoded(op::OMAPSETHEADER, |w| w.raw(b"head")),
    ];
    let version = c.run(POOL, "src", make).user_version;
    let copy = |version: u64| {
        let mut o = encoded(op::COPY_FROM, |w| {
            w.str("src");
            types::ObjectLocator { pool: POOL, ..Default::default() }.encode(w);
        });
        o.put_u64(0, types::SnapId::HEAD.0);
        o.put_u64(8, version);
        o
    };
    for i in 0..12 {
        let name = format!("copy{i}");
        assert_eq!(c.run(POOL, &name, vec![copy(version)]).result, 0);
        assert_eq!(ok(&c.run(POOL, &name, vec![read(0, 0)])), &big);
        assert_eq!(ok(&c.run(POOL, &name, vec![xattr(op::GETXATTR, "a", "")])), &b"attr"[..]);
        assert_eq!(ok(&c.run(POOL, &name, vec![plain(op::OMAPGETHEADER)])), &b"head"[..]);
        let last = encoded(op::OMAPGETVALSBYKEYS, |w| vec![pairs[2_999].0.clone()].encode(w));
        assert_eq!(ok(&c.run(POOL, &name, vec![last])).len(), 4 + 9 + 504);
    }
    assert_eq!(c.run(POOL, "x", vec![copy(version + 1)]).result, -75);
    assert_eq!(
        c.run(POOL, "x", vec![copy(version - 1)]).result,
        if version == 1 { 0 } else { -34 }
    );
    c.run(POOL, "src", vec![plain(op::DELETE)]);
    assert_eq!(c.run(POOL, "y", vec![copy(0)]).result, -2);
}

/// More output than a message takes is an error, and the request ends.
#[test]
fn output_is_bounded() {
    let mut c = one();
    let data = Bytes::from(vec![7; 31 << 20]);
    c.run(POOL, "o", vec![OsdOp::extent(op::WRITE, 0, data.len() as u64, data)]);
    let reads = |n| vec![read(0, 0); n];
    assert_eq!(c.run(POOL, "o", reads(2)).result, 0);
    let answer = c.run(POOL, "o", reads(4));
    assert_eq!(answer.result, -90, "EMSGSIZE");
    let out: usize = answer.ops.iter().map(|o| o.data.len()).sum();
    assert_eq!(out, 62 << 20, "what came before it");
}

/// Requests count as in hand until they are answered, also those that the history of the
/// slowest ones keeps: clients would be read no more for ever.
#[test]
fn what_was_answered_is_not_in_hand() {
    let mut c = one();
    for i in 0..50 {
        c.run(POOL, "o", vec![write(i * 4096, &[7; 4096])]);
        c.run(POOL, "o", vec![read(0, 0)]);
    }
    let (status, history) = c.admin(0, r#"{"prefix": "dump_historic_ops"}"#);
    assert!(status == 0 && history.contains("osd_op"), "{history}");
    let osd = c.nodes[0].osd.as_ref().expect("it runs");
    assert_eq!(osd.request_bytes().0, 0);
}

/// Maps kept in an object's bytes: made by their first update, changed by steps that all
/// succeed or none does, sorted when they are put whole; nonsense is refused.
#[test]
fn maps_in_bytes() {
    let mut c = one();
    let step = |w: &mut Writer, kind: u8, name: &str, value: Option<&str>| {
        w.u8(kind);
        w.str(name);
        if let Some(v) = value {
            w.str(v);
        }
    };
    let update = |f: &dyn Fn(&mut Writer)| encoded(op::TMAPUP, f);
    let whole = |header: &str, keys: &[(&str, &str)]| {
        let mut w = Writer::new(Features::ALL);
        w.str(header);
        w.u32(keys.len() as u32);
        for (k, v) in keys {
            w.str(k);
            w.str(v);
        }
        w.finish()
    };
    let r = c.run(
        POOL,
        "m",
        vec![update(&|w| {
            step(w, b's', "b", Some("2"));
            step(w, b'h', "head", None);
            step(w, b'c', "a", Some("1"));
        })],
    );
    assert_eq!(r.result, 0);
    let get = OsdOp::extent(op::TMAPGET, 0, 0, Bytes::new());
    let now = c.run(POOL, "m", vec![get.clone()]);
    assert_eq!(*ok(&now), whole("head", &[("a", "1"), ("b", "2")]));

    for (kind, name, want) in
        [(b'c', "a", -17), (b'r', "z", -2), (b'?', "a", -22), (b's', "a", -22)]
    {
        let r = c.run(
            POOL,
            "m",
            vec![update(&|w| {
                step(w, b'r', "b", None);
                step(w, kind, name, (kind == b'c').then_some("x"));
            })],
        );
        assert_eq!(r.result, want, "{}", kind as char);
    }
    let now = c.run(POOL, "m", vec![get.clone()]);
    assert_eq!(*ok(&now), whole("head", &[("a", "1"), ("b", "2")]));

    let unsorted = whole("", &[("y", "2"), ("x", "1")]);
    assert_eq!(c.run(POOL, "m", vec![OsdOp::new(op::TMAPPUT, unsorted)]).result, 0);
    assert_eq!(c.run(POOL, "m", vec![update(&|w| step(w, b'R', "nobody", None))]).result, 0);
    assert_eq!(*ok(&c.run(POOL, "m", vec![get])), whole("", &[("x", "1"), ("y", "2")]));
    let cut = whole("h", &[("k", "v")]).slice(..9);
    assert_eq!(c.run(POOL, "m", vec![OsdOp::new(op::TMAPPUT, cut)]).result, -22);
}
