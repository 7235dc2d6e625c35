//! Capabilities: what is read, what is refused and how, what is allowed.

use std::collections::BTreeMap;

use auth::caps::{self, PoolApps};
use auth::*;
use types::{EntityAddr, EntityName};

fn unescape(s: &str) -> String {
    let mut out = String::new();
    let mut chars = s.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => out.push(match chars.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                other => other.unwrap(),
            }),
            (c, _) => out.push(c),
        }
    }
    out
}

/// Every capability a 20.2.4 monitor was asked to keep: accepted or refused alike, with the
/// same sentence; and what is accepted survives its canonical form.
#[test]
fn as_the_peer_reads_them() {
    let table = include_str!("../testdata/caps-20.2.4.tsv");
    let mut n = 0;
    for line in table.lines().filter(|l| !l.starts_with('#')) {
        let mut columns = line.split('\t');
        let (service, text, refusal) = (
            columns.next().unwrap(),
            unescape(columns.next().unwrap()),
            unescape(columns.next().unwrap()),
        );
        let said = caps::check(service, &text).err().map(|e| e.to_string()).unwrap_or_default();
        assert_eq!(said, refusal, "{service} {text:?}");
        if refusal.is_empty() {
            match service {
                "mon" => {
                    let cap = MonCap::parse(&text).unwrap();
                    let again = MonCap::parse(&cap.to_string()).unwrap();
                    assert_eq!(again.grants(), cap.grants(), "{text} -> {cap}");
                }
                "osd" => {
                    let cap = OsdCap::parse(&text).unwrap();
                    let again = OsdCap::parse(&cap.to_string()).unwrap();
                    assert_eq!(again.grants(), cap.grants(), "{text} -> {cap}");
                }
                "mds" => {
                    let cap = MdsCap::parse(&text).unwrap();
                    let again = MdsCap::parse(&cap.to_string()).unwrap();
                    assert_eq!(again.grants(), cap.grants(), "{text} -> {cap}");
                }
                _ => {
                    let cap = MgrCap::parse(&text).unwrap();
                    let again = MgrCap::parse(&cap.to_string()).unwrap();
                    assert_eq!(again.grants(), cap.grants(), "{text} -> {cap}");
                }
            }
        }
        n += 1;
    }
    assert!(n > 300, "{n} rows");
}

/// Pieces of the grammars in any order: no panic, and canonical forms are read back.
#[test]
fn any_text() {
    const PIECES: [&str; 40] = [
        "allow",
        " ",
        " ",
        " ",
        "rwx",
        "r",
        "*",
        "all",
        "profile",
        "=",
        "osd",
        "rbd",
        "pool",
        "'",
        "\"",
        ",",
        ";",
        "namespace",
        "tag",
        "service",
        "command",
        "with",
        "prefix",
        "regex",
        "network",
        "10.0.0.0/8",
        "fsname",
        "path=/a",
        "uid=1",
        "gids=1,2",
        "root_squash",
        "class-read",
        "class",
        "object_prefix",
        "\n",
        "é",
        "[",
        "((",
        "module",
        "foo",
    ];
    let mut rng = env::Seeded(7);
    let mut good = 0;
    for _ in 0..60_000 {
        let n = env::Random::u64(&mut rng) % 9;
        let text: String =
            (0..n).map(|_| PIECES[(env::Random::u64(&mut rng) % 40) as usize]).collect();
        if let Ok(cap) = MonCap::parse(&text) {
            assert_eq!(MonCap::parse(&cap.to_string()).unwrap().grants(), cap.grants(), "{text}");
            good += 1;
        }
        if let Ok(cap) = OsdCap::parse(&text) {
            assert_eq!(OsdCap::parse(&cap.to_string()).unwrap().grants(), cap.grants(), "{text}");
            good += 1;
        }
        if let Ok(cap) = MdsCap::parse(&text) {
            assert_eq!(MdsCap::parse(&cap.to_string()).unwrap().grants(), cap.grants(), "{text}");
        }
        if let Ok(cap) = MgrCap::parse(&text) {
            assert_eq!(MgrCap::parse(&cap.to_string()).unwrap().grants(), cap.grants(), "{text}");
        }
    }
    assert!(good > 50, "{good}");
}

struct Mon {
    cap: MonCap,
    name: EntityName,
    addr: EntityAddr,
}

fn mon(text: &str) -> Mon {
    Mon {
        cap: MonCap::parse(text).unwrap(),
        name: "client.x".parse().unwrap(),
        addr: "10.1.2.3:55".parse().unwrap(),
    }
}

impl Mon {
    fn may(&self, service: &str, wants: &str) -> bool {
        self.run(service, "", &[], wants)
    }
    fn run(&self, service: &str, command: &str, args: &[(&str, &str)], wants: &str) -> bool {
        let args: BTreeMap<_, _> =
            args.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        self.cap.is_capable(&MonAccess {
            name: &self.name,
            addr: &self.addr,
            service,
            command,
            args: &args,
            wants: Rights::asked(wants.contains('r'), wants.contains('w'), wants.contains('x')),
        })
    }
}

#[test]
fn monitors() {
    assert!(mon("allow *").may("config-key", "rwx") && mon("allow *").cap.is_allow_all());
    let rwx = mon("allow rwx");
    assert!(rwx.may("osd", "rwx") && !rwx.cap.is_allow_all());
    assert!(!rwx.may("config-key", "r"), "keys are not for blanket rights");
    assert!(mon("allow service config-key r").may("config-key", "r"));
    assert!(mon("allow r").may("osd", "r") && !mon("allow r").may("osd", "rw"));
    assert!(mon("allow service foo r, allow service foo w").may("foo", "rw"), "rights add up");
    assert!(!mon("allow service foo rwx").may("bar", "r"));
    assert!(
        !mon("allow *").cap.is_capable_of_fs("a", Rights::NONE) || mon("allow *").may("x", "r")
    );

    assert!(mon("allow r network 10.0.0.0/8").may("osd", "r"));
    assert!(!mon("allow * network 11.0.0.0/8").may("osd", "r"));
    assert!(!mon("allow r network ff").may("osd", "r"), "no network, nowhere");

    let cmd = mon(
        "allow command \"osd out\" with ids=3, allow command foo with a prefix b c regex \"[0-9]+\"",
    );
    assert!(cmd.run("osd", "osd out", &[("ids", "3"), ("x", "y")], "rw"));
    assert!(!cmd.run("osd", "osd out", &[("ids", "4")], "rw"));
    assert!(!cmd.run("osd", "osd out", &[], "rw"));
    assert!(cmd.run("x", "foo", &[("a", "bcd"), ("c", "77")], "rwx"));
    assert!(!cmd.run("x", "foo", &[("a", "bcd"), ("c", "7x7")], "r"));
    assert!(!cmd.run("x", "foo", &[("a", "xbcd"), ("c", "7")], "r"));
    assert!(!mon("allow command foo with a regex \"(\"").run("x", "foo", &[("a", "(")], "r"));

    let fs = mon("allow r fsname=a").cap;
    assert!(fs.is_capable_of_fs("a", Rights::R) && !fs.is_capable_of_fs("b", Rights::R));
    assert!(!fs.is_capable_of_fs("a", Rights::W));
    assert!(mon("profile fs-client").cap.is_capable_of_fs("any", Rights::R));
}

#[test]
fn monitor_profiles() {
    for profile in ["rbd", "rbd-read-only", "simple-rados-client-with-blocklist", "rbd-mirror"] {
        let p = mon(&format!("profile {profile}"));
        assert!(p.may("mon", "r") && p.may("osd", "r") && p.may("pg", "r"), "{profile}");
        assert!(!p.may("osd", "w") && !p.may("auth", "r") && !p.may("mds", "r"));
        let add =
            |op, addr| p.run("osd", "osd blocklist", &[("blocklistop", op), ("addr", addr)], "rw");
        assert!(add("add", "1.2.3.4:0/77"));
        assert!(!add("rm", "1.2.3.4:0/77") && !add("add", "1.2.3.4"));
        let former = [("blacklistop", "add"), ("addr", "1.2.3.4:0/77")];
        assert_eq!(p.run("osd", "osd blacklist", &former, "rw"), profile.starts_with("rbd"));
    }
    let p = mon("profile simple-rados-client");
    assert!(
        p.may("osd", "r")
            && !p.run(
                "osd",
                "osd blocklist",
                &[("blocklistop", "add"), ("addr", "1.2.3.4:0/7")],
                "rw"
            )
    );
    let p = mon("profile rbd-mirror");
    assert!(p.run("config-key", "config-key get", &[("key", "rbd/mirror/x")], "r"));
    assert!(!p.run("config-key", "config-key get", &[("key", "rbd/other")], "r"));

    let mut osd = mon("allow profile osd");
    osd.name = "osd.7".parse().unwrap();
    assert!(
        osd.may("osd", "rwx") && osd.may("pg", "rw") && osd.may("log", "w") && osd.may("mon", "r")
    );
    assert!(!osd.may("mon", "w") && !osd.may("auth", "r"));
    let get = |key| osd.run("config-key", "config-key get", &[("key", key)], "r");
    assert!(get("daemon-private/osd.7/a"));
    assert!(!get("daemon-private/osd.77/a") && !get("daemon-private/osd.7") && !get("x"));
    assert!(osd.run(
        "config",
        "config rm",
        &[("who", "osd.7"), ("name", "osd_recovery_max_active_hdd")],
        "rw"
    ));
    assert!(!osd.run("config", "config rm", &[("who", "osd.7"), ("name", "debug_osd")], "rw"));

    let mgr = mon("profile mgr");
    assert!(mgr.may("osd", "rw") && mgr.may("config-key", "rw") && mgr.may("auth", "rwx"));
    assert!(mgr.run("auth", "auth caps", &[], "rwx") && !mgr.may("osd", "x"));
    let boot = mon("profile bootstrap-osd");
    assert!(boot.run("osd", "osd new", &[], "rw") && !boot.run("osd", "osd rm", &[], "rw"));
    let boot = mon("profile bootstrap-rbd");
    let create = |osd| {
        let args = [("entity", "client.a"), ("caps_mon", "profile rbd"), ("caps_osd", osd)];
        boot.run("auth", "auth get-or-create", &args, "rwx")
    };
    assert!(create("profile rbd pool=x, profile rbd-read-only pool=y") && !create("allow *"));
    let role = mon("profile role-definer");
    assert!(role.may("auth", "rwx") && role.may("mon", "r") && !role.may("osd", "r"));
    assert!(mon("profile crash").may("mon", "r") && !mon("profile crash").may("mon", "w"));
    assert!(mon("profile read-only").may("osd", "r") && !mon("profile read-only").may("osd", "w"));
    assert!(
        mon("profile read-write").may("osd", "rw") && !mon("profile read-write").may("osd", "x")
    );
    assert!(!mon("profile nosuch").may("mon", "r"));
}

#[derive(Clone, Copy)]
struct Op<'a> {
    pool: &'a str,
    ns: &'a str,
    object: &'a str,
    wants: &'a str,
}

/// `calls`: class.method with flags after a slash: r, w, and `!` when `x` does not cover it.
fn osd_may(cap: &OsdCap, op: Op<'_>, calls: &[&str]) -> bool {
    let apps = PoolApps::from([(
        "cephfs".to_owned(),
        BTreeMap::from([("data".to_owned(), "fs_a".to_owned())]),
    )]);
    let calls: Vec<_> = calls
        .iter()
        .map(|c| {
            let (name, flags) = c.split_once('/').unwrap();
            let (class, method) = name.split_once('.').unwrap();
            ClassCall {
                class,
                method,
                read: flags.contains('r'),
                write: flags.contains('w'),
                allowed: !flags.contains('!'),
            }
        })
        .collect();
    cap.is_capable(&OsdAccess {
        pool: op.pool,
        nspace: op.ns.as_bytes(),
        apps: if op.pool == "fsdata" { &apps } else { const { &PoolApps::new() } },
        object: op.object.as_bytes(),
        read: op.wants.contains('r'),
        write: op.wants.contains('w'),
        calls: &calls,
        addr: &"10.1.2.3:55".parse().unwrap(),
    })
}

#[test]
fn osds() {
    let op = |pool, ns, object, wants| Op { pool, ns, object, wants };
    // capability, operation, calls, allowed; the peer's own test cases among them
    let table: &[(&str, Op<'_>, &[&str], bool)] = &[
        ("allow *", op("foo", "", "o", "rw"), &["cls.m/rw"], true),
        ("allow *", op("foo", "n", "o", "rw"), &["cls.m/rw!"], true),
        ("allow rwx", op("foo", "", "o", "rw"), &["cls.m/rw"], true),
        ("allow rwx", op("foo", "", "o", "rw"), &["cls.m/rw!"], false),
        ("allow rwx pool foo", op("foo", "ns", "", "rw"), &["cls./rw"], true),
        ("allow rwx pool foo", op("foo", "ns", "", "rw"), &["cls./rw!"], false),
        ("allow rwx pool foo", op("bar", "", "", "rw"), &["cls./rw"], false),
        ("allow rwx pool foo, allow r pool bar", op("bar", "", "", "r"), &[], true),
        ("allow rwx pool foo, allow r pool bar", op("bar", "", "", "rw"), &[], false),
        ("allow rwx pool foo, allow r pool bar", op("baz", "", "", "r"), &[], false),
        ("allow r, allow rwx pool foo", op("foo", "", "", "rw"), &["cls./rw"], true),
        ("allow r, allow rwx pool foo", op("bar", "", "", "r"), &[], true),
        ("allow r, allow w", op("bar", "", "", "rw"), &[], false),
        ("allow rwx object_prefix foo", op("b", "", "food", "rw"), &["c./rw"], true),
        ("allow rwx object_prefix foo", op("b", "", "_foo", "rw"), &["c./rw"], false),
        ("allow rwx object_prefix foo", op("b", "", "fo", "r"), &[], false),
        ("allow rwx pool bar object_prefix foo", op("baz", "", "foo", "r"), &[], false),
        ("allow rw namespace=nfoo", op("bar", "nfoo", "o", "rw"), &[], true),
        ("allow rw namespace=nfoo", op("bar", "", "o", "rw"), &[], false),
        ("allow rw namespace=nfoo", op("bar", "nfoobar", "o", "rw"), &[], false),
        ("allow rw namespace=nfoo*", op("bar", "nfoobar", "o", "rw"), &[], true),
        ("allow rw namespace=nfoo*", op("bar", "nfo", "o", "rw"), &[], false),
        ("allow rw namespace=\"\"", op("bar", "", "o", "rw"), &[], true),
        ("allow rw namespace=\"\"", op("bar", "n", "o", "r"), &[], false),
        ("allow r", op("bar", "", "foo", "r"), &[], true),
        ("allow r", op("bar", "", "foo", ""), &["cls./w"], false),
        ("allow r", op("bar", "", "foo", "r"), &["cls./r"], false),
        ("allow w", op("bar", "", "foo", "w"), &[], true),
        ("allow w", op("bar", "", "foo", "rw"), &[], false),
        ("allow x", op("bar", "", "foo", ""), &["cls./rw"], true),
        ("allow x", op("bar", "", "foo", "r"), &[], false),
        ("allow rw class-read class-write", op("b", "", "f", "rw"), &["cls./rw"], true),
        ("allow class-read", op("b", "", "f", ""), &["cls./r"], true),
        ("allow class-read", op("b", "", "f", ""), &["cls./w"], false),
        ("allow class-write", op("b", "", "f", ""), &["cls./w"], true),
        ("allow class-write", op("b", "", "f", ""), &["cls./rw"], false),
        ("allow r class-read", op("b", "", "f", "r"), &["cls./r"], true),
        ("allow r class-read", op("b", "", "f", "r"), &["cls./r", "cls./w"], false),
        ("allow class foo", op("b", "", "f", ""), &["foo.bar/rw!"], true),
        ("allow class foo", op("b", "", "f", ""), &["baz.bar/r"], false),
        ("allow class foo bar", op("b", "", "f", ""), &["foo.bar/rw"], true),
        ("allow class foo bar", op("b", "", "f", ""), &["foo.baz/rw"], false),
        ("allow class foo", op("b", "", "f", "r"), &["foo.bar/r"], false),
        ("allow class foo, allow class bar", op("b", "", "f", ""), &["foo.a/r", "bar.b/w"], true),
        (
            "allow class foo, allow r class-read",
            op("b", "", "f", "r"),
            &["foo.a/w", "x.y/r"],
            false,
        ),
        ("allow rwx tag cephfs data=fs_a", op("fsdata", "", "f", "rw"), &[], true),
        ("allow rwx tag cephfs data=fs_b", op("fsdata", "", "f", "r"), &[], false),
        ("allow rwx tag cephfs *=fs_a", op("fsdata", "", "f", "r"), &[], true),
        ("allow rwx tag cephfs data=*", op("fsdata", "", "f", "r"), &[], true),
        ("allow rwx tag cephfs metadata=*", op("fsdata", "", "f", "r"), &[], false),
        ("allow all tag all all=all", op("fsdata", "", "f", "r"), &[], false),
        ("allow all tag cephfs all=all", op("fsdata", "", "f", "rw"), &["c.d/rw!"], true),
        ("allow rwx tag cephfs data=fs_a", op("foo", "", "f", "r"), &[], false),
        ("allow rw namespace=n tag cephfs data=fs_a", op("fsdata", "", "f", "r"), &[], false),
        ("allow rw namespace=n tag cephfs data=fs_a", op("fsdata", "n", "f", "r"), &[], true),
        ("allow * network 10.1.0.0/16", op("b", "", "f", "rw"), &["c.d/rw!"], true),
        ("allow * network 10.2.0.0/16", op("b", "", "f", "r"), &[], false),
        ("profile rbd network 10.2.0.0/16", op("b", "", "f", "r"), &[], false),
        ("profile read-only", op("b", "", "f", "r"), &[], true),
        ("profile read-only pool=x", op("b", "", "f", "r"), &[], false),
        ("profile read-write pool=x", op("x", "", "f", "rw"), &[], true),
        ("profile rbd", op("b", "n", "f", "rw"), &["rbd.create/rw"], true),
        ("profile rbd pool=p", op("p", "n", "f", "rw"), &["rbd.create/rw"], true),
        ("profile rbd pool=p", op("q", "", "f", "r"), &[], false),
        ("profile rbd pool=p", op("q", "", "rbd_children", ""), &["rbd.get_children/r"], true),
        ("profile rbd pool=p", op("q", "", "rbd_info", "r"), &[], true),
        ("profile rbd pool=p namespace=n", op("p", "", "f", "r"), &[], false),
        ("profile rbd pool=p namespace=n", op("p", "n", "f", "rw"), &[], true),
        (
            "profile rbd pool=p namespace=n",
            op("p", "", "rbd_info", ""),
            &["rbd.metadata_list/r"],
            true,
        ),
        ("profile rbd-read-only", op("p", "", "f", "r"), &["rbd.get_size/r"], true),
        ("profile rbd-read-only", op("p", "", "f", "rw"), &[], false),
        ("profile rbd-read-only", op("p", "", "f", ""), &["rbd.set_size/w"], false),
        ("profile rbd-read-only", op("p", "", "rbd_header.1", ""), &["rbd.child_attach/w"], true),
        ("profile rbd-read-only", op("p", "", "f", ""), &["rbd.child_attach/w"], false),
        ("profile nosuch", op("p", "", "f", "r"), &[], false),
    ];
    for (text, op, calls, allowed) in table {
        let cap = OsdCap::parse(text).unwrap();
        let line = format!("{text}: {}/{}/{} {} {calls:?}", op.pool, op.ns, op.object, op.wants);
        assert_eq!(osd_may(&cap, *op, calls), *allowed, "{line}");
    }
    let addr = |text: &str| text.parse::<types::EntityAddr>().unwrap();
    let here = addr("v2:127.0.0.1:3300/1");
    assert!(OsdCap::parse("allow *").unwrap().is_allow_all(&here));
    let bound = OsdCap::parse("allow r, allow * network 10.0.0.0/8").unwrap();
    assert!(!bound.is_allow_all(&here) && bound.is_allow_all(&addr("v2:10.1.2.3:3300/1")));
    for some in ["allow r", "allow w", "allow x", "allow rwx", "allow * pool foo", "profile rbd"] {
        assert!(!OsdCap::parse(some).unwrap().is_allow_all(&here), "{some}");
    }
    let many: Vec<String> = (0..100).map(|i| format!("c{i}.m/w")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let named: Vec<String> = (0..100).map(|i| format!("allow class c{i}")).collect();
    let op = op("b", "", "f", "");
    assert!(osd_may(&OsdCap::parse(&named.join(",")).unwrap(), op, &many));
    assert!(!osd_may(&OsdCap::parse(&named[1..].join(",")).unwrap(), op, &many));
    assert!(!osd_may(&OsdCap::parse(&named[..99].join(",")).unwrap(), op, &many));
}

#[test]
fn metadata_servers() {
    let addr: EntityAddr = "10.1.2.3:55".parse().unwrap();
    let base = MdsAccess {
        fs_name: "a",
        path: "foo/bar",
        inode_uid: 10,
        inode_gid: 20,
        inode_mode: 0o640,
        caller_uid: 10,
        caller_gid: 20,
        caller_gids: &[],
        wants: MdsMay::READ,
        new_uid: 0,
        new_gid: 0,
        addr: &addr,
    };
    let may = |text: &str, a: MdsAccess<'_>| MdsCap::parse(text).unwrap().is_capable(&a);
    let write = MdsAccess { wants: MdsMay::WRITE, ..base };
    assert!(may("allow", write) && may("allow *", write) && may("allow rw", write));
    assert!(may("allow r", base) && !may("allow r", write));
    let layout = MdsAccess { wants: MdsMay(MdsMay::WRITE.0 | MdsMay::SET_VXATTR.0), ..base };
    assert!(may("allow rwp", layout) && !may("allow rw", layout) && may("allow *", layout));
    let snap = MdsAccess { wants: MdsMay(MdsMay::WRITE.0 | MdsMay::SNAPSHOT.0), ..base };
    assert!(may("allow rwps", snap) && !may("allow rwp", snap) && may("allow", snap));
    let full = MdsAccess { wants: MdsMay(MdsMay::WRITE.0 | MdsMay::FULL.0), ..base };
    assert!(may("allow rwf", full) && !may("allow rwps", full));
    for (path, allowed) in
        [("/foo", true), ("/foo/", true), ("/foo/bar", true), ("/fo", false), ("/foo/bar/x", false)]
    {
        assert_eq!(may(&format!("allow rw path={path}"), write), allowed, "{path}");
    }
    assert!(may("allow rw fsname=a", write) && !may("allow rw fsname=b", write));
    let root = MdsAccess { caller_uid: 0, caller_gid: 0, ..write };
    assert!(may("allow rw", root) && !may("allow rw root_squash", root));
    assert!(may("allow rw root_squash", write));
    // A grant for one user obeys the file's mode.
    assert!(may("allow rw uid=10", write) && !may("allow rw uid=11", write));
    let other = MdsAccess { inode_uid: 99, ..base };
    assert!(!may("allow rw uid=10", other), "others have no bits");
    assert!(may("allow rw uid=10 gids=20", other), "the group may read");
    let chown = MdsAccess { wants: MdsMay::CHOWN, new_uid: 11, ..base };
    assert!(!may("allow rw uid=10", chown));
    assert!(may("allow rw uid=10", MdsAccess { new_uid: 10, ..chown }));
    let chgrp = MdsAccess { wants: MdsMay::CHGRP, new_gid: 30, caller_gids: &[30], ..base };
    assert!(may("allow rw uid=10 gids=20,30", chgrp) && !may("allow rw uid=10 gids=20", chgrp));
    assert!(!may("allow rw network 11.0.0.0/8", base) && may("allow r network 10.0.0.0/8", base));
}

#[test]
fn manager() {
    let addr: EntityAddr = "10.1.2.3:55".parse().unwrap();
    let name: EntityName = "client.x".parse().unwrap();
    let args = BTreeMap::from([("pool".to_owned(), "p".to_owned())]);
    let may = |text: &str, service, module, command, wants| {
        MgrCap::parse(text).unwrap().is_capable(&MgrAccess {
            name: &name,
            addr: &addr,
            service,
            module,
            command,
            args: &args,
            wants,
        })
    };
    assert!(may("allow *", "s", "m", "c", Rights::RWX));
    assert!(may("allow r", "s", "m", "c", Rights::R) && !may("allow r", "s", "m", "c", Rights::W));
    assert!(may("allow service s rw", "s", "", "", Rights::W));
    assert!(!may("allow service s rw", "t", "", "", Rights::R));
    assert!(may("allow module rbd_support with pool=p rw", "py", "rbd_support", "", Rights::W));
    assert!(!may("allow module rbd_support with pool=q rw", "py", "rbd_support", "", Rights::W));
    assert!(may("allow command \"a b\" with pool=p", "py", "", "a b", Rights::RWX));
    assert!(!may("allow command \"a b\" with pool=q", "py", "", "a b", Rights::R));
    assert!(may("profile rbd pool=p", "py", "rbd_support", "", Rights::W));
    assert!(!may("profile rbd-read-only pool=p", "py", "rbd_support", "", Rights::W));
    assert!(!may("profile osd", "py", "x", "", Rights::R));
    assert!(may("profile crash", "py", "crash", "crash post", Rights::W));
}
