//! The lines by which units, deployers and tools start programs are taken as upstream takes them.

use super::flags::{self, Given, Own};
use super::{mon, osd, others};

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn set<'a>(given: &'a Given, name: &str) -> Option<&'a str> {
    given.settings.iter().rev().find(|s| s.name == name).map(|s| s.value.as_str())
}

/// Flags of containers that Rook starts, but for those of one kind of daemon.
const ROOK: &str = "--fsid=a7f64266-0894-4f1e-a635-d0aeaca0e993 --keyring=/etc/ceph/keyring-store/keyring \
    --default-log-to-stderr=true --default-err-to-stderr=true --default-mon-cluster-log-to-stderr=true \
    --default-log-stderr-prefix=debug --default-log-to-file=false \
    --default-mon-cluster-log-to-file=false --mon-host=[v2:10.0.0.1:3300,v1:10.0.0.1:6789] \
    --mon-initial-members=a,b,c --id=0 --setuser=ceph --setgroup=ceph --foreground";

/// Program, its own flags, line, options that come of it.
type Row = (&'static str, &'static [Own], String, &'static [(&'static str, &'static str)]);

fn rows() -> Vec<Row> {
    let (mon, osd, mds) = (mon::FLAGS, osd::FLAGS, others::MDS_FLAGS);
    let user: &[_] = &[("setuser", "ceph"), ("setgroup", "ceph")];
    let unit = "-f --cluster ceph --id 0 --setuser ceph --setgroup ceph".to_owned();
    let prepare = "--cluster ceph --osd-objectstore bluestore --mkfs -i 0 --monmap /m --keyfile - \
        --osd-data /d --osd-uuid a7f64266-0894-4f1e-a635-d0aeaca0e993 --setuser ceph --setgroup ceph";
    vec![
        ("ceph-mon", mon, unit.clone(), user),
        ("ceph-osd", osd, unit.clone(), user),
        ("ceph-mgr", &[], unit.clone(), user),
        ("ceph-mds", mds, unit, user),
        (
            "radosgw",
            &[],
            "-f --cluster ceph --name client.rgw.a --setuser ceph".to_owned(),
            &user[..1],
        ),
        (
            "ceph-mon",
            mon,
            format!(
                "{ROOK} --public-addr=10.0.0.1 --setuser-match-path=/var/lib/ceph/mon/ceph-a/store.db --public-bind-addr=10.1.1.1 --mkfs"
            ),
            &[
                ("public_addr", "10.0.0.1"),
                ("public_bind_addr", "10.1.1.1"),
                ("log_to_file", "false"),
                ("setuser_match_path", "/var/lib/ceph/mon/ceph-a/store.db"),
                ("mon_initial_members", "a,b,c"),
            ],
        ),
        (
            "ceph-osd",
            osd,
            format!(
                "{ROOK} --cluster-addr=10.0.0.2 --osd-crush-initial-weight= --crush-location=root=default"
            ),
            &[("crush_location", "root=default"), ("cluster_addr", "10.0.0.2")],
        ),
        (
            "ceph-mon",
            mon,
            "--mkfs -i a --monmap /m --keyring /k".to_owned(),
            &[("monmap", "/m"), ("keyring", "/k")],
        ),
        (
            "ceph-osd",
            osd,
            prepare.to_owned(),
            &[("osd_objectstore", "bluestore"), ("osd_data", "/d")],
        ),
        (
            "ceph-osd",
            osd,
            format!("{prepare} --osdspec-affinity all --bdev-enable-discard false"),
            &[("bdev_enable_discard", "false")],
        ),
        ("ceph-osd", osd, "--no-mon-config --get-device-fsid /dev/sdx".to_owned(), &[]),
        ("ceph-osd", osd, "-i 0 --check-wants-journal --mkkey".to_owned(), &[]),
        (
            "ceph-mds",
            mds,
            "--cluster ceph -i a -m 10.0.0.1:6789 -f".to_owned(),
            &[("mon_host", "10.0.0.1:6789")],
        ),
    ]
}

#[test]
fn lines_of_deployers_are_taken_apart() {
    for (program, own, line, options) in rows() {
        let given = flags::parse(own, &words(&line)).unwrap();
        assert!(given.rest.is_empty(), "{program} {line}: {:?} is left", given.rest);
        let wrong: Vec<_> =
            given.wrong.iter().filter(|w| !w.contains("osd_crush_initial_weight")).collect();
        assert!(wrong.is_empty(), "{program} {line}: {wrong:?}");
        for (name, value) in options {
            assert_eq!(set(&given, name), Some(*value), "{program} {line}: {name}");
        }
    }
}
