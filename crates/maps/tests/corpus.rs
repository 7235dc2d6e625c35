//! Every object of every type built here, as four releases wrote them: each is read to its
//! last byte, and written again to the same bytes.
//!
//! `ARGONAUT_CORPUS` names a directory `RELEASE/objects/TYPE/HASH`; without it the test
//! says so and passes.

use std::collections::BTreeMap;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use denc::{Bytes, Denc, Features};
use maps::fs as cephfs;
use maps::*;
use types::*;

/// Squid's word: 20.2.4's without bit 50.
const SQUID_WORD: u64 = Features::TENTACLE_WORD.0 & !(1 << 50);

/// The features of a release's own daemons, by the first number of its directory.
fn word(release: &str) -> Features {
    match release.split('.').next() {
        Some("16") => Features::PACIFIC_WORD,
        Some("18") => Features::REEF_WORD,
        Some("19") => Features(SQUID_WORD),
        _ => Features::TENTACLE_WORD,
    }
}

type Recode = fn(&[u8], Features) -> Result<Bytes, DecodeError>;

/// A type under test: its name in the corpus, how to read and write it, and the releases
/// (by first number) whose bytes come out the same; others with the reason.
struct Row {
    name: &'static str,
    recode: Recode,
    not_exact: &'static [(&'static str, &'static str)],
}

fn recode<T: Denc>(bytes: &[u8], features: Features) -> Result<Bytes, DecodeError> {
    Ok(T::from_bytes(bytes)?.to_bytes_for(features))
}

/// A delta names the features it was stored with, and is written with these.
fn recode_incremental(bytes: &[u8], features: Features) -> Result<Bytes, DecodeError> {
    let inc = Incremental::from_bytes(bytes)?;
    let _ = features;
    Ok(inc.to_bytes_for(inc.encode_features))
}

/// OSD maps are stored with the significant features only.
fn recode_osdmap(bytes: &[u8], features: Features) -> Result<Bytes, DecodeError> {
    Ok(OsdMap::from_bytes(bytes)?.to_bytes_for(features & SIGNIFICANT_FEATURES))
}

macro_rules! rows {
    ($($name:literal: $t:ty $(, not $release:literal: $why:literal)*;)*) => {
        vec![$(Row {
            name: $name,
            recode: recode::<$t>,
            not_exact: &[$(($release, $why)),*],
        }),*]
    };
}

fn rows() -> Vec<Row> {
    let mut rows = rows! {
        "entity_addr_t": EntityAddr;
        "entity_addrvec_t": AddrVec;
        "entity_name_t": EntityId;
        "entity_inst_t": EntityInst;
        "EntityName": EntityName;
        "hobject_t": HObject;
        "object_locator_t": ObjectLocator;
        "pg_t": PgId;
        "spg_t": SpgId;
        "eversion_t": EVersion;
        "osd_reqid_t": ReqId;
        "uuid_d": Uuid;
        "utime_t": UTime;
        "shard_id_t": ShardId;
        "MonMap": MonMap;
        "mon_info_t": MonInfo;
        "mon_feature_t": MonFeatures;
        "osd_info_t": OsdInfo;
        "osd_xinfo_t": OsdXInfo;
        "pg_pool_t": PgPool;
        "pool_opts_t": PoolOpts;
        "pool_snap_info_t": PoolSnapInfo;
        "pg_merge_meta_t": PgMergeMeta;
        "MgrMap": MgrMap, not "16": "the corpus is of 16.2.0, whose v11 lacks client names",
            not "18": "the corpus is of 18.2.0, whose v12 lacks flags";
        "MgrMap::ModuleInfo": ModuleInfo;
        "MgrMap::ModuleOption": ModuleOption;
        "MgrMap::StandbyInfo": MgrStandby;
        "FSMap": FsMap, not "16": "the corpus is of 16.2.0, whose MDS infos are v9";
        "MDSMap": MdsMap;
        "MDSMap::mds_info_t": MdsInfo, not "16": "the corpus is of 16.2.0, whose v9 lacks compat";
        "Filesystem": Filesystem, not "16": "the corpus is of 16.2.0, whose MDS infos are v9";
        "MirrorInfo": MirrorInfo;
        "ServiceMap": ServiceMap;
        "ServiceMap::Service": Service;
        "ServiceMap::Daemon": ServiceDaemon;
        "CompatSet": CompatSet;
        "feature_bitset_t": FeatureBits;
        "LogEntry": LogEntry;
        "LogEntryKey": LogEntryKey;
        "LogSummary": LogSummary;
        "object_stat_sum_t": ObjectStatSum;
        "object_stat_collection_t": ObjectStatCollection;
        "store_statfs_t": StoreStatfs;
        "pool_stat_t": PoolStat;
        "pg_stat_t": PgStat;
        "pg_history_t": PgHistory;
        "pg_info_t": PgInfo;
        "pg_shard_t": PgShard;
        "pg_hit_set_info_t": HitSetInfo;
        "compressible_bloom_filter": Bloom;
        "pg_hit_set_history_t": HitSetHistory;
        "osd_stat_t": OsdStat;
        "objectstore_perf_stat_t": StorePerf;
        "pow2_hist_t": Pow2Hist;
        "PGMap": PgMap;
        "PGMapDigest::pg_count": PgCount;
        "pg_log_entry_t": PgLogEntry;
        "pg_log_dup_t": PgLogDup;
        "pg_log_op_return_item_t": OpReturn;
        "ObjectModDesc": ModDesc;
        "ObjectCleanRegions": CleanRegions;
        "SnapContext": SnapContext;
        "SnapSet": SnapSet;
        "SnapInfo": cephfs::SnapInfo;
        "object_info_t": ObjectInfo;
        "object_manifest_t": ObjectManifest;
        "watch_info_t": WatchInfo;
        "health_check_t": HealthCheck;
        "health_check_map_t": HealthChecks;
        "file_layout_t": striper::FileLayout;
        "inodeno_t": Ino;
        "frag_t": cephfs::Frag;
        "fragtree_t": cephfs::FragTree;
        "dirfrag_t": cephfs::DirFrag;
        "frag_info_t": cephfs::FragInfo;
        "nest_info_t": cephfs::NestInfo;
        "quota_info_t": cephfs::Quota;
        "fnode_t": cephfs::Fnode;
        "client_writeable_range_t": cephfs::ClientRange;
        "inode_backpointer_t": cephfs::Backpointer;
        "inode_backtrace_t": cephfs::Backtrace;
        "InoTable": cephfs::InoTable;
        "mds_table_pending_t": cephfs::TablePending;
        "session_info_t": cephfs::SessionInfo;
        "client_metadata_t": cephfs::ClientMetadata;
        "metric_spec_t": cephfs::MetricSpec;
        "SnapPayload": cephfs::SnapPayload;
        "SnapServer": cephfs::SnapTable;
        "sr_t": cephfs::SnapRealm;
        "snaplink_t": cephfs::SnapLink;
        "SnapRealmInfo": cephfs::SnapRealmInfo;
        "SnapRealmInfoNew": cephfs::SnapRealmInfoNew;
        "Anchor": cephfs::OpenFile;
        "JournalPointer": cephfs::JournalPointer;
        "Journaler::Header": cephfs::JournalHeader;
        "PurgeItem": cephfs::PurgeItem;
        "MDSHealth": cephfs::MdsHealth;
        "MDSHealthMetric": cephfs::MdsHealthMetric;
        "MDSCapAuth": types::MdsCapAuth;
        "MDSCapMatch": types::MdsMatch;
    };
    for (name, recode) in [
        ("inode_t<std::allocator>", recode_inode::<cephfs::Inode, 0> as Recode),
        ("InodeStore", recode_inode::<cephfs::InodeStore, 6>),
        ("InodeStoreBare", recode_inode::<cephfs::InodeStoreBare, 0>),
        ("old_inode_t<std::allocator>", recode_inode::<cephfs::OldInode, 14>),
    ] {
        rows.push(Row { name, recode, not_exact: &[] });
    }
    rows.push(Row { name: "PGMapDigest", recode: recode_unordered, not_exact: &[] });
    rows.push(Row { name: "HitSet", recode: recode_hits, not_exact: &[] });
    rows.push(Row {
        name: "OSDMap",
        recode: recode_osdmap,
        not_exact: &[(
            "16",
            "bit 31 had another meaning in 16.2, which wrote client section 9 all the same",
        )],
    });
    rows.push(Row {
        name: "OSDMap::Incremental",
        recode: recode_incremental,
        not_exact: &[
            ("16", "bit 31 had another meaning in 16.2, which wrote client section 8 all the same"),
            ("18", "18.2.0 wrote client section 9 whether or not bit 31 was among the features"),
        ],
    });
    rows
}

/// Objects with bytes behind the struct, by accident of the corpus: they are cut off.
const STRAY: &[(&str, usize)] = &[("f97d85482139c3de61f9ec00522b6bd6", 94)];

/// Single objects that come out otherwise, with the reason.
const NOT_EXACT: &[(&str, &str)] = &[
    (
        "303e0d4679afb7b809fd924c7825eecd",
        "made by the peer's generator, which gives the CRUSH map more than the features of OSD maps",
    ),
    (
        "4fcc2ecdac88971e097c7403ca035074",
        "a file's layout in the form before version 2: written as version 2",
    ),
    (
        "c1556dfd82367003aebd4dbe0477be39",
        "made by the peer's generator: a journal's unused field is not the copy that it is on disk",
    ),
];

/// Objects that are refused, with the reason.
const REFUSED: &[(&str, &str)] = &[
    (
        "e9b3fc62bd1251d835a7eda323f850a9",
        "made by the peer's generator: a fragment of 0 bits with the value 3",
    ),
    ("fa68ad7770b3af7e5d401f618c17c69e", "a hex dump of an inode as text, by accident"),
];

/// Types whose newest form no daemon asks of another: it needs a feature (latencies in ns)
/// that none advertises.
const NEWER_WITH_ALL: &[&str] = &["osd_stat_t", "objectstore_perf_stat_t", "PGMap", "PGMapDigest"];

/// The peer writes some maps of a digest in the order of its hash tables: what comes out
/// must have the same length and mean the same.
fn recode_unordered(bytes: &[u8], features: Features) -> Result<Bytes, DecodeError> {
    let digest = PgMapDigest::from_bytes(bytes)?;
    let again = digest.to_bytes_for(features);
    let same = again.len() == bytes.len() && PgMapDigest::from_bytes(&again)? == digest;
    Ok(if same { Bytes::copy_from_slice(bytes) } else { again })
}

/// The corpus' newest objects are of a version after 20.2, whose inodes are version 21: with
/// the inode that a remote entry stands for, and a list of such entries' inodes. Release 20.2
/// does not know these, so they are not written; nothing but these may differ. `AT` is where
/// the inode begins; what begins before it is framed around all.
fn recode_inode<T: Denc, const AT: usize>(
    bytes: &[u8],
    features: Features,
) -> Result<Bytes, DecodeError> {
    const TAIL: u32 = 12;
    let again = T::from_bytes(bytes)?.to_bytes_for(features);
    let Some((&21, rest)) = bytes.get(AT..).and_then(|b| b.split_first()) else {
        return Ok(again);
    };
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let end = AT + 6 + word(AT + 2) as usize;
    if rest.len() < 6 || end > bytes.len() || bytes[end - TAIL as usize..end] != [0; 12] {
        return Ok(again);
    }
    let mut expected = bytes.to_vec();
    expected.drain(end - TAIL as usize..end);
    expected[AT] = 20;
    for at in [Some(AT + 2), (AT > 0).then_some(2)].into_iter().flatten() {
        expected[at..at + 4].copy_from_slice(&(word(at) - TAIL).to_le_bytes());
    }
    Ok(if again == expected { Bytes::copy_from_slice(bytes) } else { again })
}

/// The peer writes explicit hit sets in the order of its hash tables.
fn recode_hits(bytes: &[u8], features: Features) -> Result<Bytes, DecodeError> {
    let hits = HitSet::from_bytes(bytes)?;
    let again = hits.to_bytes_for(features);
    let same = again.len() == bytes.len() && HitSet::from_bytes(&again)? == hits;
    Ok(if same { Bytes::copy_from_slice(bytes) } else { again })
}

fn corpus() -> Option<PathBuf> {
    let dir = std::env::var_os("ARGONAUT_CORPUS").map(PathBuf::from).filter(|d| d.is_dir());
    if dir.is_none() {
        println!("skipped: ARGONAUT_CORPUS names no directory RELEASE/objects/TYPE/HASH");
    }
    dir
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut all: Vec<_> =
        fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect();
    all.sort();
    all
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Every object is read whole; and written again, it is the same, but for the exceptions
/// each row names.
#[test]
fn reads_and_writes_every_object() {
    let Some(corpus) = corpus() else { return };
    let mut wrong: BTreeMap<(String, &str), (usize, String)> = BTreeMap::new();
    let (mut read, mut same, mut kinds) = (0, 0, 0);
    for row in rows() {
        let mut seen = 0;
        for release in entries(&corpus) {
            let release_name = name(&release);
            let major = release_name.split('.').next().unwrap_or_default().to_owned();
            let exception = row.not_exact.iter().find(|x| x.0 == major);
            for file in entries(&release.join("objects").join(row.name)) {
                let mut bytes = fs::read(&file).expect("a readable object");
                if let Some((_, len)) = STRAY.iter().find(|s| s.0 == name(&file)) {
                    bytes.truncate(*len);
                }
                seen += 1;
                let mut complain = |what: String| {
                    let e = wrong
                        .entry((format!("{release_name} {}", row.name), "not as it was"))
                        .or_insert((0, format!("{}: {what}", name(&file))));
                    e.0 += 1;
                };
                match (row.recode)(&bytes, word(&release_name)) {
                    Err(_) if REFUSED.iter().any(|x| x.0 == name(&file)) => {}
                    Err(e) => complain(e.to_string()),
                    Ok(again) => {
                        read += 1;
                        if again == bytes {
                            same += 1;
                            if major == "20"
                                && !NEWER_WITH_ALL.contains(&row.name)
                                && (row.recode)(&bytes, Features::ALL) != Ok(again)
                            {
                                complain("another form with every feature".to_owned());
                            }
                        } else if exception.is_none()
                            && !NOT_EXACT.iter().any(|x| x.0 == name(&file))
                        {
                            let at = again.iter().zip(&bytes).position(|(a, b)| a != b);
                            complain(format!(
                                "{} bytes became {}, first difference at {at:?}",
                                bytes.len(),
                                again.len()
                            ));
                        }
                    }
                }
            }
        }
        kinds += usize::from(seen > 0);
        if seen == 0 {
            println!("no object of {}", row.name);
        }
    }
    println!("{kinds} types, {read} objects read, {same} written to the same bytes");
    for ((what, _), (n, first)) in &wrong {
        println!("{what}: {n} wrong; {first}");
    }
    assert!(wrong.is_empty(), "{} kinds of objects are wrong", wrong.len());
    assert!(read > 1000, "the corpus has thousands of objects");
}

/// Bytes changed at random are read or refused, and nothing panics.
#[test]
fn survives_mutations() {
    let Some(corpus) = corpus() else { return };
    let per_object: u64 =
        std::env::var("ARGONAUT_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(10);
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    let mut tried = 0u64;
    for row in rows() {
        for release in entries(&corpus) {
            for file in entries(&release.join("objects").join(row.name)).into_iter().take(12) {
                let bytes = fs::read(&file).expect("a readable object");
                if bytes.is_empty() {
                    continue;
                }
                for _ in 0..per_object {
                    let mut hostile = bytes.clone();
                    for _ in 0..1 + next() % 3 {
                        let at = next() as usize % hostile.len();
                        hostile[at] = match next() % 4 {
                            0 => 0xff,
                            1 => hostile[at].wrapping_add(1),
                            2 => 0,
                            _ => next() as u8,
                        };
                    }
                    if next() % 4 == 0 {
                        hostile.truncate(next() as usize % hostile.len());
                    }
                    tried += 1;
                    let outcome = catch_unwind(|| {
                        if row.name.starts_with("OSDMap") {
                            maps::fuzz::place(&hostile); // behind the crc
                        }
                        (row.recode)(&hostile, Features::ALL).is_ok()
                    });
                    assert!(outcome.is_ok(), "{} panics on a changed {}", row.name, name(&file));
                }
            }
        }
    }
    println!("{tried} changed objects survived");
}
