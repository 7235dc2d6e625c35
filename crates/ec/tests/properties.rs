//! What holds for every code: any `m` lost shards come back, a parity delta is a new
//! encoding, and no profile makes it panic.

use std::collections::BTreeMap;

use ec::{Codec, DecodeError, Profile, ProfileError};
use proptest::prelude::*;

fn profile(text: &str) -> Profile {
    Profile::parse(&pairs(text)).unwrap_or_else(|why| panic!("{text}: {why}"))
}

fn pairs(text: &str) -> BTreeMap<String, String> {
    text.split(' ')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// A codec of each kind, in several sizes.
fn codecs() -> Vec<Codec> {
    [
        "k=2 m=1",
        "k=4 m=2",
        "k=8 m=3",
        "k=21 m=4",
        "technique=cauchy k=6 m=5",
        "technique=cauchy k=4 m=1",
        "plugin=jerasure k=4 m=2",
        "plugin=jerasure k=9 m=6",
        "plugin=jerasure k=5 m=3 w=16",
        "plugin=jerasure k=3 m=2 w=32",
        "plugin=jerasure technique=reed_sol_r6_op k=7",
        "plugin=jerasure technique=reed_sol_r6_op k=4 w=16",
        "plugin=jerasure technique=cauchy_orig k=4 m=3 packetsize=8",
        "plugin=jerasure technique=cauchy_orig k=5 m=3 w=5 packetsize=12",
        "plugin=jerasure technique=cauchy_good k=4 m=2 packetsize=8",
        "plugin=jerasure technique=cauchy_good k=6 m=4 packetsize=16",
        "plugin=jerasure technique=cauchy_good k=6 m=3 w=4 packetsize=4",
        "plugin=jerasure technique=liberation k=5 packetsize=8",
        "plugin=jerasure technique=blaum_roth k=6 packetsize=8",
        "plugin=jerasure technique=blaum_roth k=9 w=10 packetsize=4",
        "plugin=jerasure technique=liber8tion k=8 packetsize=8",
    ]
    .map(|text| Codec::new(&profile(text)).expect("a code"))
    .into()
}

/// Chunk bytes of a seed, data first, coding chunks computed.
fn encoded(codec: &Codec, groups: usize, seed: u32) -> Vec<Vec<u8>> {
    let len = codec.chunk_alignment() * groups;
    let byte = |c: usize, i: usize| {
        ((c * 1_000_003 + i) as u32 ^ seed).wrapping_mul(2_654_435_761).rotate_left(9) as u8
    };
    let data: Vec<Vec<u8>> =
        (0..codec.k()).map(|c| (0..len).map(|i| byte(c, i)).collect()).collect();
    let mut parity = vec![vec![0xff; len]; codec.m()];
    let runs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut to: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    codec.encode(&runs, &mut to);
    data.into_iter().chain(parity).collect()
}

/// Every way to lose up to two shards, of every kind of code.
#[test]
fn every_pair_comes_back() {
    for codec in codecs() {
        let shards = encoded(&codec, 3, 7);
        let count = shards.len();
        for a in 0..count {
            for b in a..count {
                if codec.m() == 1 && a != b {
                    continue;
                }
                let mut left: Vec<Option<Vec<u8>>> = shards.iter().cloned().map(Some).collect();
                left[a] = None;
                left[b] = None;
                codec.decode(&mut left, &[b, a]).expect("enough shards");
                assert_eq!(left[a].as_ref(), Some(&shards[a]), "{codec:?} without {a} {b}");
                assert_eq!(left[b].as_ref(), Some(&shards[b]), "{codec:?} without {a} {b}");
            }
        }
    }
}

proptest! {
    /// Any `m` shards may be lost; what is wanted comes back, what is not stays away.
    #[test]
    fn any_m_come_back(which in 0..21usize, seed: u32, order in Just(()).prop_perturb(|(), mut r| {
        std::array::from_fn::<u64, 32, _>(|_| r.random())
    })) {
        let codec = &codecs()[which];
        let shards = encoded(codec, 2, seed);
        let count = shards.len();
        let mut numbers: Vec<usize> = (0..count).collect();
        numbers.sort_by_key(|&n| order[n % 32].rotate_left(n as u32));
        let lost = &numbers[..codec.m()];
        let mut left: Vec<Option<Vec<u8>>> = shards.iter().cloned().map(Some).collect();
        for &n in lost {
            left[n] = None;
        }
        codec.decode(&mut left, &lost[..1]).expect("k are left");
        prop_assert_eq!(left[lost[0]].as_ref(), Some(&shards[lost[0]]));
        prop_assert!(lost[1..].iter().all(|&n| left[n].is_none()));
        codec.decode(&mut left, lost).expect("more than k are left");
        prop_assert!(left.iter().zip(&shards).all(|(a, b)| a.as_ref() == Some(b)));
    }

    /// A change of part of one data chunk, brought to each parity, is a new encoding.
    #[test]
    fn delta_is_encoding_anew(which in 0..21usize, seed: u32, chunk: usize, from in 0..4usize, len in 1..3usize) {
        let codec = &codecs()[which];
        let mut shards = encoded(codec, 6, seed);
        let unit = codec.chunk_alignment();
        let range = from * unit..(from + len) * unit;
        let chunk = chunk % codec.k();
        let diff: Vec<u8> = (0..len * unit).map(|i| (i as u32 ^ seed) as u8).collect();
        for (byte, d) in shards[chunk][range.clone()].iter_mut().zip(&diff) {
            *byte ^= d;
        }
        let (data, parity) = shards.split_at_mut(codec.k());
        for (p, run) in parity.iter_mut().enumerate() {
            codec.delta(chunk, &diff, p, &mut run[range.clone()]);
        }
        let runs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut anew = vec![vec![0; runs[0].len()]; codec.m()];
        let mut to: Vec<&mut [u8]> = anew.iter_mut().map(Vec::as_mut_slice).collect();
        codec.encode(&runs, &mut to);
        prop_assert_eq!(&anew[..], &*parity);
    }

    /// Odd profiles are errors or codes that work, never panics.
    #[test]
    fn odd_profiles(
        plugin in "isa|jerasure|lrc|clay|||[a-z]{1,4}",
        technique in "reed_sol_van|reed_sol_r6_op|cauchy|cauchy_orig|cauchy_good|liberation|blaum_roth|liber8tion||x",
        k in "[0-9]|1[0-9]|-1|||x|9999999999|127|[+-]",
        m in "[1-4]|-5|0|||4294967297|1 ",
        w in "[1-9]|1[0-9]|8|8|16|32|33||-1",
        packetsize in "|8|3|0|-8|1000000000|4",
        stripe_unit in "|4096|4K|x|99999999999999999999|18446744073709551615",
        chunk_alignment in "|true|yes|no",
    ) {
        let given: BTreeMap<String, String> = [
            ("plugin", plugin), ("technique", technique), ("k", k), ("m", m), ("w", w),
            ("packetsize", packetsize), ("stripe_unit", stripe_unit),
            ("jerasure-per-chunk-alignment", chunk_alignment),
        ].map(|(key, value)| (key.to_owned(), value)).into();
        if let Ok(profile) = Profile::parse(&given) {
            let codec = Codec::new(&profile).expect("parsed profiles are codes");
            let again = Profile::parse(&profile.filled()).expect("filled profiles parse");
            prop_assert_eq!(Profile { stripe_unit: profile.stripe_unit, ..again }, profile.clone());
            let unit = profile.chunk_size(4096 * profile.k as u64);
            prop_assert!(unit >= 4096 && unit.is_multiple_of(codec.chunk_alignment() as u64));
            let shards = encoded(&codec, 1, 3);
            let mut left: Vec<Option<Vec<u8>>> = shards.iter().cloned().map(Some).collect();
            let lost: Vec<usize> = (0..codec.m().min(codec.k())).collect();
            for &n in &lost {
                left[n] = None;
            }
            codec.decode(&mut left, &lost).expect("k are left");
            prop_assert!(left.iter().zip(&shards).all(|(a, b)| a.as_ref() == Some(b)));
        }
    }
}

/// What to read: the wanted themselves, else the first `k`, else an error.
#[test]
fn minimum() {
    let codec = Codec::new(&profile("k=4 m=2")).unwrap();
    assert_eq!(codec.minimum(&[3, 1], &[0, 1, 3]), Ok(vec![1, 3]));
    assert_eq!(codec.minimum(&[0], &[5, 4, 3, 2, 1]), Ok(vec![1, 2, 3, 4]));
    assert_eq!(codec.minimum(&[0], &[1, 2, 3]), Err(DecodeError::TooFew { have: 3, need: 4 }));
    assert_eq!(codec.minimum(&[6], &[0]), Err(DecodeError::NoSuchShard { shard: 6, count: 6 }));
}

/// Broken calls of decode are errors and change nothing.
#[test]
fn decode_refuses() {
    let codec = Codec::new(&profile("k=2 m=1")).unwrap();
    let mut slots = vec![Some(vec![1; 8]), None, None];
    assert_eq!(codec.decode(&mut slots, &[1]), Err(DecodeError::TooFew { have: 1, need: 2 }));
    slots[2] = Some(vec![1; 9]);
    let wrong = DecodeError::Lengths { len: 8, other: 9, alignment: 1 };
    assert_eq!(codec.decode(&mut slots, &[1]), Err(wrong));
    assert_eq!(
        codec.decode(&mut slots, &[3]),
        Err(DecodeError::NoSuchShard { shard: 3, count: 3 })
    );
    assert!(slots[1].is_none());
}

/// The peer's sentences, seen with `ceph-erasure-code-tool validate-profile` of 20.2.4.
#[test]
fn refusals() {
    let says = |text: &str| Profile::parse(&pairs(text)).unwrap_err().to_string();
    for (text, sentence) in [
        ("k=1", "k=1 must be >= 2"),
        ("m=0", "m=0 must be >= 1"),
        (
            "k=30 m=4",
            "Vandermonde: k=30 should be less than 22 to guarantee an MDS codec with m=4: revert to k=21",
        ),
        (
            "m=x",
            "could not convert m=x to int because Expected option value to be integer, got 'x', set to default 3",
        ),
        (
            "k=99999999999",
            "could not convert k=99999999999 to int because The option value '99999999999' seems to be invalid, set to default 7",
        ),
        (
            "technique=x",
            "technique=x is not a valid coding technique.  Choose one of the following: reed_sol_van,cauchy",
        ),
        ("technique=cauchy k=100 m=28", "(k+m)=128 must be <= 127"),
        (
            "plugin=jerasure k=2 m=1 w=9",
            "ReedSolomonVandermonde: w=9 must be one of {8, 16, 32} : revert to 8",
        ),
        (
            "plugin=jerasure technique=reed_sol_r6_op m=3",
            "ReedSolomonRAID6: m=3 must be 2 for RAID6: revert to 2",
        ),
        ("plugin=jerasure technique=liberation k=8", "k=8 must be less than or equal to w=7"),
        ("plugin=jerasure technique=liberation w=6", "w=6 must be greater than two and be prime"),
        ("plugin=clay", "erasure code plugin 'clay' is not supported by this cluster"),
    ] {
        assert_eq!(says(text), sentence);
    }
    assert!(matches!(Profile::parse(&pairs("plugin=nix")), Err(ProfileError::UnknownPlugin(_))));
}
