//! `cephfs`: what a scan of the data pool leaves at a file's first object, from which lost
//! metadata is made anew.
//!
//! The filter `inode_tag` of listings: [`crate::Filter`].

use bytes::Bytes;
use denc::Denc;
use types::{Errno, OpResult};

use crate::{Class, DONE, Object, READS, Reply, WRITES, method, params, record};

pub(crate) const CLASS: Class = Class {
    name: "cephfs",
    methods: &[method("accumulate_inode_metadata", READS | WRITES, accumulate)],
};

record! {
    /// `AccumulateArgs`: names of attributes, and what they are to hold at least.
    Args(1, 1) {
        ceiling_attr: Bytes,
        mtime_attr: Bytes,
        size_attr: Bytes,
        index: u64,
        size: u64,
        mtime: i64,
    }
}
record! {
    /// `ObjCeiling`: the last object of the file that was seen. Only `index` is compared.
    Ceiling(1, 1) { index: u64, size: u64, }
}

fn accumulate(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let args: Args = params(input)?;
    let ceiling = Ceiling { index: args.index, size: args.size };
    set_if_greater(o, &args.ceiling_attr, &ceiling, |c| c.index)?;
    set_if_greater(o, &args.mtime_attr, &args.mtime, |n| *n)?;
    set_if_greater(o, &args.size_attr, &args.size, |n| *n)?;
    Ok(DONE)
}

/// Sets an attribute unless it holds as much already; what cannot be read is written over.
fn set_if_greater<T: Denc, K: PartialOrd>(
    o: &mut dyn Object,
    name: &[u8],
    value: &T,
    key: impl Fn(&T) -> K,
) -> OpResult<()> {
    let old = match o.attr(name) {
        Ok(raw) => T::from_bytes(&raw).ok(),
        Err(Errno::NOENT | Errno::NODATA) => None,
        Err(e) => return Err(e),
    };
    match old {
        Some(old) if key(value) <= key(&old) => Ok(()),
        _ => o.set_attr(name, value.to_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Mem;

    /// Each attribute keeps the greatest it was told, by its own measure.
    #[test]
    fn the_greatest_stays() {
        let mut o = Mem::created();
        let names = ["ceiling", "mtime", "size"].map(|n| Bytes::from_static(n.as_bytes()));
        let tell = |o: &mut Mem, index, size, mtime| {
            let [ceiling_attr, mtime_attr, size_attr] = names.clone();
            let args = Args { ceiling_attr, mtime_attr, size_attr, index, size, mtime };
            o.run("cephfs", "accumulate_inode_metadata", &args).unwrap();
        };
        tell(&mut o, 3, 100, -5);
        tell(&mut o, 2, 4096, 7);
        tell(&mut o, 3, 1, 6);
        o.attrs.insert(Bytes::from_static(b"junk"), Bytes::from_static(b"?"));
        let ceiling = Ceiling::from_bytes(&o.attrs[&names[0]]).unwrap();
        assert_eq!(ceiling, Ceiling { index: 3, size: 100 });
        assert_eq!(i64::from_bytes(&o.attrs[&names[1]]), Ok(7));
        assert_eq!(u64::from_bytes(&o.attrs[&names[2]]), Ok(4096));
        o.attrs.insert(names[1].clone(), Bytes::from_static(b"\xff"));
        tell(&mut o, 0, 0, 1);
        assert_eq!(i64::from_bytes(&o.attrs[&names[1]]), Ok(1));
        o.refuses_short_input("cephfs", &["accumulate_inode_metadata"]);
    }
}
