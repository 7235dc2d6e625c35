//! Development verbs. `cargo xtask` without arguments lists them.

mod bench;
mod bench_ec;
mod bench_fs;
mod bench_rbd;
mod bench_rows;
mod bench_s3;
mod caps;
mod cluster;
mod failover;
mod fs;
mod fs_cluster;
mod fs_mounts;
mod fs_stock;
mod fs_thrash;
mod fuzz;
mod hostile;
mod hostile_clients;
mod hosts;
mod interop;
mod kernel;
mod kill9;
mod lab;
mod lanes;
mod memory;
mod mgr;
mod package;
mod packages;
mod pages;
mod parity;
mod qemu;
mod radosgw;
mod recovery;
mod report;
mod sh;
mod shrink;
mod sim;
mod store;
mod suites;
mod test;
mod thrash;
mod thrash_mons;
mod thrash_rbd;
mod tidy;
mod trouble;
mod unsafe_code;
mod volumes;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
cargo xtask VERB

  check              format, lints, types, tidy
  tidy               rules that no compiler checks: arrows between crates, licences and sources of
                     others' code, file lengths, rows of docs/dependencies.md
  test               install what tests need (Debian packages), run them all
  share [NAME]       the parts of `test` that run side by side, or one of them
  ci                 what runs before a merge: check, then test
  lab root SUITE     make a Debian root with upstream's release: bookworm, trixie, forky
  lab up|down [NAME] start or remove a stock cluster to compare with
  interop [SUITE..]  upstream's clients against `argonaut up`
  suites [NAME..]    upstream's own test programs against `argonaut up`
  kill9 [ROUNDS]     kill every daemon under load, check what was acknowledged (20)
  thrash-mons [SECS] kill monitors one after the other under load: no client notices (60)
  thrash [SECS] [mons] [partitions]
                     kill, stop, reweight and mark out OSDs, grow pools under load, one
                     monitor killed every 20 s too, while upstream's programs run (60);
                     partitions: on hosts of their own (network namespaces), cut off from
                     others, also one way, and disks filled now and then, without the programs
  thrash-rbd [SECS]  fio with checksums on images, by librbd, while OSDs and monitors are killed (60)
  thrash-fs [SECS]   metadata servers, OSDs and monitors killed and stopped under mounts of ceph-fuse, which
                     are killed too; what was synced, sums, a scrub and stores after it (60)
  mounts [OPERATIONS]
                     ceph-fuse of three releases as programs use it: random changes, one file by one mount
                     and by two, a source tree that is built and kept by git; on a coded pool, too (20000)
  fs                 a metadata server of ours, a stock client, through kills and restarts
  volumes            subvolumes by a manager of ours, stock clients: commands, clones, keys
  mgr                manager processes, a stock client: failover, commands, metrics
  fs-stock           stock metadata servers on our monitors and OSDs, a stock client
                     through their failover
  failover           how long clients wait for a killed OSD, a killed leading monitor, and
                     1,000 PGs for OSDs that are started anew
  memory [SECS]      OSDs stay within osd_memory_target under four loads, each so long (45)
  recovery [GIB]     recovery of so much beside clients: how much longer they wait (2)
  shrink             three OSDs, two copies, writing; each OSD fails in turn: capacity
                     shrinks, data stays
  qemu [SUITE]       a virtual machine boots from an image while OSDs are killed, and from a clone
  krbd [MODE..]      the kernel's rbd in a virtual machine (crc secure legacy)
  kfs [MODE..]       the kernel's mount of a file system there
  radosgw            stock radosgw on OSDs of ours, boto3 as its client
  rgw                our gateway, boto3 as its client, stock radosgw beside it, brokers of AMQP and Kafka
  hosts              a cluster over four hosts (network namespaces), cut off and joined
  join [PART..]      hosts that join a cluster, are lost, leave (network namespaces): six commands,
                     refusals, kills at each step, over ssh (six refuse again deploy)
  pages [PAGE..]     follow pages of the documentation: their commands do what they show
  parity [--seed N] [--steps M]
                     the same random actions of an operator on ours and on stock, compared at rest
                     (30); what may differ, and why: tests/parity/allowed.txt
  caps [record|peer] what users with all kinds of caps may do, as recorded of stock; record it
                     anew; or try stock by its record, then ours
  hostile [STREAMS]  random and mutated byte streams against every port (100000)
  hostile clients [SECS] [SCENE..]
                     limited clients that cost or lie as much as they can, an honest one beside (10)
  hostile files [SECS] [SCENE..]
                     the same of a file system
  package [--out DIR] [--bin PATH] [--version V] [--rpm]
                     Debian packages (and RPMs) of the release build, or of a binary
  packages [PART..]  them in clean Debian roots: installed beside upstream's, upgraded under
                     writes, rolled back, removed, purged; and rpm, chart, container
  unsafe             unsafe code under Miri and the address sanitizer (nightly compiler)
  fuzz [TARGET] [SECS]
                     every fuzz target, or one, for so long (60)
  sim store [--states N] [--seed S] [--seeds N]
                     power cuts on a disk in memory, from seed S on (100000 states)
  bench store [DIR] [SECS]
                     the object store beside its device; kept in bench/results
  sim cluster [--seeds N] [--seed S] [--plant BUG] [--verbose]
                     whole clusters on virtual time under faults, by seed (100)
  bench peer [SECS]  the table beside stock Ceph; kept in bench/results
  bench ec [SECS]    erasure-coded pools beside replicated ones and stock Ceph's; kept in bench/results
  bench fs [--quick] [--rows ROW,..] [--rounds N] [--names N] [--remark TEXT]
                     the file system beside stock Ceph's; kept in bench/results
  bench s3 [--quick] [--rows ROW,..] [--rounds N] [--keys N] [--secs N] [--remark TEXT]
                     the S3 gateway beside stock Ceph's; kept in bench/results
  bench rbd [SECS]   images by fio, `rbd export` and NBD, beside stock Ceph; kept in bench/results
";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without the program's own stack: the last lines of a run tell what failed.
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |at: usize, default: u64| -> Result<u64> {
        Ok(args.get(at).map_or(Ok(default), |s| s.parse())?)
    };
    match args.as_slice() {
        ["check"] => test::check(),
        ["tidy"] => tidy::tidy(),
        ["test"] => test::test(),
        ["share"] => lanes::run()?.end(),
        ["share", name] => lanes::share(name),
        ["ci"] => test::check().and_then(|()| test::test()),
        ["lab", "root", suite] => {
            println!("{}", lab::root(suite)?.display());
            Ok(())
        }
        ["lab", "up"] => lab::peer_up("peer", 3, 3).map(|c| println!("{}", c.display())),
        ["lab", "up", name] => lab::peer_up(name, 3, 3).map(|c| println!("{}", c.display())),
        ["lab", "down"] => lab::peer_down("peer"),
        ["lab", "down", name] => lab::peer_down(name),
        ["interop", suites @ ..] => interop::run(suites, false)?.end(),
        ["suites", names @ ..] => suites::run(names)?.end(),
        ["kill9", ..] => kill9::run(number(1, 20)?)?.end(),
        ["thrash-mons", ..] => thrash_mons::run(number(1, 60)?)?.end(),
        ["thrash", rest @ ..] => {
            let (mons, partitions) = (rest.contains(&"mons"), rest.contains(&"partitions"));
            let mode = thrash::Mode { mons, partitions, programs: !partitions };
            thrash::run(number(1, 60)?, mode)?.end()
        }
        ["thrash-rbd", ..] => thrash_rbd::run(number(1, 60)?)?.end(),
        ["thrash-fs", ..] => fs_thrash::run(number(1, 60)?)?.end(),
        ["mounts", ..] => fs_mounts::run(number(1, 20_000)?)?.end(),
        ["fs"] => fs::run()?.end(),
        ["mgr"] => mgr::run()?.end(),
        ["volumes"] => volumes::run()?.end(),
        ["fs-stock"] => fs_stock::run()?.end(),
        ["failover"] => failover::run()?.end(),
        ["memory", ..] => memory::run(number(1, 45)?)?.end(),
        ["shrink"] => shrink::run()?.end(),
        ["qemu"] => qemu::run("forky")?.end(),
        ["qemu", suite] => qemu::run(suite)?.end(),
        ["krbd"] => kernel::blocks(&["crc", "secure", "legacy"])?.end(),
        ["krbd", modes @ ..] => kernel::blocks(modes)?.end(),
        ["kfs"] => kernel::files(&["crc", "secure", "legacy"])?.end(),
        ["kfs", modes @ ..] => kernel::files(modes)?.end(),
        ["radosgw"] => radosgw::run()?.end(),
        ["rgw"] => radosgw::ours_with_brokers()?.end(),
        ["hosts"] => hosts::hosts(false).end(),
        ["join", parts @ ..] => hosts::join(parts)?.end(),
        ["recovery", ..] => recovery::run(number(1, 2)?)?.end(),
        ["hostile", "clients", only @ ..] => {
            let secs = only.first().and_then(|s| s.parse().ok());
            let only = if secs.is_some() { &only[1..] } else { only };
            hostile_clients::run(secs.unwrap_or(10), only)?.end()
        }
        ["hostile", "files", only @ ..] => {
            let secs = only.first().and_then(|s| s.parse().ok());
            let only = if secs.is_some() { &only[1..] } else { only };
            hostile_clients::files(secs.unwrap_or(10), only)?.end()
        }
        ["pages", pages @ ..] => pages::run(pages)?.end(),
        ["parity", words @ ..] => parity::run(&parity::Asked::parse(words)?)?.end(),
        ["caps"] => caps::ours()?.end(),
        ["caps", "peer"] => caps::peer()?.end(),
        ["caps", "record"] => caps::record(),
        ["hostile", ..] => hostile::run(number(1, 100_000)?)?.end(),
        ["package", words @ ..] => package::run(&package::Asked::parse(words)?),
        ["packages", parts @ ..] => packages::run(parts)?.end(),
        ["unsafe"] => unsafe_code::run()?.end(),
        ["fuzz"] => fuzz::run(None, 60)?.end(),
        ["fuzz", secs] if secs.parse::<u64>().is_ok() => fuzz::run(None, secs.parse()?)?.end(),
        ["fuzz", target, ..] => fuzz::run(Some(target), number(2, 60)?)?.end(),
        ["sim", "store", args @ ..] => store::sim(args),
        ["bench", "store", args @ ..] => store::bench(args),
        ["sim", "cluster", words @ ..] => sim::cluster(words),
        ["bench", "peer", ..] => bench::peer(number(2, 10)?),
        ["bench", "ec", ..] => bench_ec::run(number(2, 5)?),
        ["bench", "fs", words @ ..] => bench_fs::run(words),
        ["bench", "s3", words @ ..] => bench_s3::run(words),
        ["bench", "rbd", ..] => bench_rbd::run(number(2, 5)?),
        _ => {
            print!("{USAGE}");
            if args.is_empty() {
                return Ok(());
            }
            bail!("unknown verb: {}", args.join(" "))
        }
    }
}
