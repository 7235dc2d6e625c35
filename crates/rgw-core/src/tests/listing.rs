//! Listings equal a sorted map, whatever the keys, page sizes and delimiters.

use std::collections::BTreeSet;

use super::memory::{Memory, now};
use super::*;

const KEYS: [&str; 16] = [
    "a",
    "a/",
    "a/b",
    "a/b/c",
    "a/c",
    "a0",
    "b//c",
    "b//d",
    "_x",
    "__y",
    "dir_1",
    "dir_2/x",
    "ä/ö",
    "日本/語",
    "z\u{10ffff}",
    "zz",
];

/// What S3 says of keys: entries and common prefixes behind `after`, in order.
fn model(keys: &BTreeSet<&str>, prefix: &str, delimiter: &str) -> Vec<(String, bool)> {
    let mut out: Vec<(String, bool)> = Vec::new();
    for key in keys.iter().filter(|k| k.starts_with(prefix)) {
        let rest = &key[prefix.len()..];
        match rest.find(delimiter).filter(|_| !delimiter.is_empty()) {
            Some(at) => {
                let folded = (key[..prefix.len() + at + delimiter.len()].to_owned(), true);
                if out.last() != Some(&folded) {
                    out.push(folded);
                }
            }
            None => out.push(((*key).to_owned(), false)),
        }
    }
    out
}

async fn pages(gateway: &Gateway<Memory>, bucket: &BucketAt, query: &Query) -> Vec<(String, bool)> {
    let mut query = query.clone();
    let mut out = Vec::new();
    for _ in 0..100 {
        let page = gateway.list(bucket, &query).await.unwrap();
        assert!(page.entries.len() + page.prefixes.len() <= query.max);
        let mut all: Vec<_> = page.entries.iter().map(|e| (e.key.name.clone(), false)).collect();
        all.extend(page.prefixes.iter().map(|p| (p.clone(), true)));
        all.sort();
        out.extend(all);
        match page.next {
            Some(next) => query.after = next,
            None => return out,
        }
    }
    panic!("the listing has no end");
}

#[test]
fn pages_are_a_sorted_map() {
    now(async {
        let gateway = gateway(Memory::new());
        let bucket = made(&gateway).await.unwrap();
        let mut keys: BTreeSet<&str> = KEYS.into();
        for key in &keys {
            put(&gateway, &bucket, key, b"x").await.unwrap();
        }
        for round in 0..2 {
            for prefix in ["", "a", "a/", "b/", "_", "dir_", "ä", "none"] {
                for delimiter in ["", "/", "//", "_", "b", "ö"] {
                    for max in [1, 2, 3, 7, 1_000] {
                        let query = Query {
                            prefix: prefix.into(),
                            delimiter: delimiter.into(),
                            max,
                            ..Query::default()
                        };
                        let want = model(&keys, prefix, delimiter);
                        let got = pages(&gateway, &bucket, &query).await;
                        assert_eq!(got, want, "round {round}: {prefix:?} {delimiter:?} {max}");
                    }
                }
            }
            for key in ["a/b", "_x", "zz"] {
                remove(&gateway, &bucket, key).await.unwrap();
                keys.remove(key);
            }
        }
    });
}

#[test]
fn versions_come_in_pages() {
    now(async {
        let gateway = gateway(Memory::new());
        let bucket = versioned(&gateway).await.unwrap();
        let mut want = Vec::new();
        for key in ["a", "a/b", "_c", "d"] {
            let mut ids = Vec::new();
            for n in 0..4u8 {
                ids.push(put(&gateway, &bucket, key, &[n]).await.unwrap());
            }
            want.extend(ids.into_iter().rev().map(|id| (key.to_owned(), id)));
        }
        want.sort_by(|a, b| a.0.cmp(&b.0));
        for max in [1, 3, 100] {
            let mut query = Query { max, versions: true, ..Query::default() };
            let mut got = Vec::new();
            for _ in 0..100 {
                let page = gateway.list(&bucket, &query).await.unwrap();
                got.extend(
                    page.entries.iter().map(|e| (e.key.name.clone(), e.key.instance.clone())),
                );
                match page.next {
                    Some(next) => query.after = next,
                    None => break,
                }
            }
            assert_eq!(got, want, "pages of {max}");
        }
    });
}

/// A shard that cannot be read fails the listing: nothing is left out in silence.
#[test]
fn a_shard_that_fails_fails_the_listing() {
    now(async {
        let memory = Memory::new();
        let gateway = gateway(memory.clone());
        let bucket = made(&gateway).await.unwrap();
        put(&gateway, &bucket, "k", b"x").await.unwrap();
        let shard = bucket.index_places()[3].name.clone();
        memory.change("index", &shard, |object| {
            object.omap.insert(Bytes::from_static(b"j"), Bytes::from_static(b"garbage"));
        });
        let query = Query { max: 10, ..Query::default() };
        assert!(gateway.list(&bucket, &query).await.is_err());
    });
}
