//! Output for people and scripts, word by word.

use std::path::Path;

use denc::Denc;

use crate::generate::{Random, case};
use crate::{Peer, difference, ours, strings};

/// Texts that are no maps, and one that is.
const TEXTS: [&str; 32] = [
    "type 0 osd\ntype 1 host\n",
    "device 0 osd.0\ntype 0 osd\ntype 1 host\n\n  # c\nhost a {\n alg straw2\n  item  osd.0  wight 1\n}\n",
    "device 0 osd.0\ntype 0 osd\n  foo bar baz # hi\n",
    "device 0 osd.0 class ssd extra stuff\n",
    "device 0 osd.0\ntype 0 osd\nhost a { alg straw2\n}\n",
    "device 0 osd.0\ntype 0 osd\ntype 1 host\nhost a { alg strawx\n}\n",
    "device 0 osd.0\ntype 0 osd\ntype 1 host\nhost a { alg straw2\n item osd.1\n}\n",
    "device 0 osd.0\ntype 0 osd\ntype 1 host\nhost a { alg straw2\n item osd.0 weight 20000\n}\n",
    "device 0 osd.0\ntype 0 osd\ntype 1 host\nhost a { id -1\n alg straw2\n}\nhost b { id -1\nalg straw2 \n}",
    "device 0 osd.0\ndevice 1 osd.0\n",
    "type 0 osd\ntunable foo 1\n",
    "type 0 osd\nrule x { id 0 type replicated step emit }\nrule x { id 1 type replicated step emit }",
    "rule x { id 0 type replicated step emit }\ntype 1 host\n",
    "type 0 osd\nrule x { id 0 type replicated step take foo step emit }\n",
    "type 1 host\nrule x { id 0 type replicated step choose firstn 0 type ro step emit }\n",
    "type 1 host\nhost a { alg straw2 }\nrule x { id 0 type replicated step take a step emit }\n host b { alg straw2 }",
    "type 0 osd\nrule x { ruleset 0 type replicated step emit }\nrule y { id 0 type replicated step emit }\n",
    "type 1 host\nhost a { alg straw2 item b }\nhost b { alg straw2 item a }\n",
    "type 1 host\ntype 2 root\nroot b { alg straw2\n item a }\nhost a { alg straw2 }\n",
    "device 0 osd.0 class ssd\ntype 1 host\nhost a { alg straw2 item osd.0}\nrule x { id 0 type replicated step take a class hdd step emit }",
    "device 0 osd.0 class ssd\ntype 1 host\nhost a { id -3\nid -4 class hdd\nid -5 class hdd\nalg straw2 item osd.0}\n",
    "device 0 osd.0 class ssd\ntype 1 host\nhost osd.0 { alg straw2 item osd.0}\n",
    "device 0 a\ndevice 1 b\ntype 1 host\nhost h { alg uniform item a weight 2\nitem b weight 1.5}\n",
    "device 0 a\ndevice 1 b\ntype 1 host\nhost h { alg tree item a pos 0\nitem b pos 0}\n",
    "device 0 a\ndevice 1 b\ntype 1 host\nhost h { alg list item a pos 1\nitem b weight .5e1 }\n",
    "device 0 a\ntype 1 host\nhost h { alg straw2 hash 0 hash rjenkins1 item a pos 7 }\n",
    "device 0 a\ntype 1 host\nhost h { alg straw2 item a}\nchoose_args 1 {\n {bucket_id -5} }\n",
    "device 0 a\ntype 1 host\nhost h { alg straw2 item a}\nchoose_args 1 {\n {bucket_id -50} }\n",
    "device 0 a\ntype 1 host\nhost h { alg straw2 item a}\nchoose_args 1 {\n {bucket_id -1 weight_set [ [ 1 2 ] ] } }\n",
    "device 0 a\ntype 1 host\nhost h { alg straw2 item a}\nchoose_args 1 {\n {bucket_id -1 ids [ 1 2 ] } }\n",
    "device 0 a\ntype 1 host\nhost h { alg straw2 item a}\nchoose_args 1 { }\n choose_args 1 { } ",
    "device0a type1host\nhosth{ alg straw2 itema }\nhost h{algstraw2itema}\n\nrulex{id0typereplicated steptakeh\nstep emit}\n",
];

/// Some runs on one map; gives how many were compared.
pub fn check(seed: u64, peer: &Peer, stem: &Path) -> u64 {
    let r = &mut Random(seed ^ 0x90d5);
    let path = |suffix: &str| stem.with_extension(suffix).to_str().unwrap().to_owned();
    let (binary, source) = (path("bin"), path("txt"));
    let map = case(seed).map;
    std::fs::write(&binary, map.to_bytes()).unwrap();
    let text = TEXTS[(seed % TEXTS.len() as u64) as usize];
    std::fs::write(&source, text).unwrap();
    let osd = r.range(0, 9).to_string();
    let alg = r.pick(&["list", "tree", "straw", "straw2", "uniform"]);
    let per = r.range(1, 5).to_string();
    let runs = [
        strings(["-i", &binary, "--dump"]),
        strings(["-i", &binary, "--show-location", &osd]),
        strings(["-i", &binary, "--check", &osd]),
        strings(["-i", &binary, "--compare", &binary, "--num-rep", "2", "--max-x", "9"]),
        strings(["-i", &binary, "--bucket-tree", "--bucket-name", "h0"]),
        strings(["-i", &binary, "--test", "--show-mappings"]),
        strings(["-i", &binary, "--test", "--num-rep", "x"]),
        strings(["-i", &binary]),
        strings(["-i", "/none/such", "--tree"]),
        strings(["-i", &source, "--tree"]),
        strings(["-c", &source, "--tree"]),
    ];
    for args in &runs {
        let (their_code, their_out, their_err) = peer.run(args);
        let (code, out, err) = ours(args);
        let context = format!("seed {seed}: {args:?}\n{text}\nours: {err}\ntheirs: {their_err}");
        assert_eq!(Some(code), their_code, "{context}");
        assert!(out == their_out, "{context}\n{}", difference(&out, &their_out));
        assert!(err == their_err, "{context}");
    }
    let files = [path("theirs"), path("mine")];
    let build = |to: &str| {
        strings([
            "--build",
            "--num_osds",
            "17",
            "host",
            alg,
            &per,
            "rack",
            "straw2",
            "3",
            "root",
            "straw2",
            "0",
            "--tree",
            "-o",
            to,
        ])
    };
    let (their_code, their_out, _) = peer.run(&build(&files[0]));
    let (code, out, err) = ours(&build(&files[1]));
    assert_eq!((Some(code), out), (their_code, their_out), "seed {seed}: {err}");
    let [theirs, mine] = files.map(|file| std::fs::read(file).unwrap());
    assert!(theirs == mine, "seed {seed}: built otherwise");
    runs.len() as u64 + 1
}
