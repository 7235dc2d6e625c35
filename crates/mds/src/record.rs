//! What the journal says: the results of operations, as they will stand in the tree.
//!
//! Each change carries whole values and the version that it leads to, so that applying it
//! twice, or to a tree that is ahead of it, changes nothing.

use bytes::Bytes;
use denc::{DecodeError, Denc, Features, Reader, Writer};
use maps::fs::{DirFrag, Fnode, SessionInfo};
use types::Ino;

/// What a record changes in one place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// A fragment: its header, and entries by key.
    Frag {
        dir: DirFrag,
        /// The fragment begins here: there is no object of it before.
        fresh: bool,
        fnode: Box<Fnode>,
        set: Vec<(Bytes, Bytes)>,
        removed: Vec<Bytes>,
    },
    /// The inode of the root or of `~mds<rank>`: an encoded `SystemInode`.
    System { ino: Ino, version: u64, inode: Bytes },
    /// A directory's objects are removed.
    Gone(DirFrag),
    /// A session began or changed; or ended, which gives back its numbers.
    Session { version: u64, table: u64, client: i64, info: Option<Box<SessionInfo>> },
    /// A request was done; it made this inode, or none (0).
    Request { version: u64, client: i64, tid: u64, ino: Ino },
    /// A flush of caps was done.
    Flush { version: u64, client: i64, tid: u64 },
    /// Numbers are reserved for a client.
    Reserve { version: u64, table: u64, client: i64, start: u64, len: u64 },
    /// The table of snapshots: an encoded `SnapTableObject`.
    Snaps { version: u64, table: Bytes },
    /// A fragment's entries are in others now; a directory's first object stays.
    Cleared(DirFrag),
}

impl Denc for Change {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Frag { dir, fresh, fnode, set, removed } => {
                w.u8(1);
                dir.encode(w);
                w.bool(*fresh);
                fnode.encode(w);
                w.seq(set, |w, (key, value)| {
                    w.blob(key);
                    w.blob(value);
                });
                removed.encode(w);
            }
            Self::System { ino, version, inode } => {
                w.u8(2);
                ino.encode(w);
                w.u64(*version);
                w.blob(inode);
            }
            Self::Gone(dir) => {
                w.u8(3);
                dir.encode(w);
            }
            Self::Session { version, table, client, info } => {
                w.u8(4);
                w.u64(*version);
                w.u64(*table);
                w.i64(*client);
                w.bool(info.is_some());
                if let Some(info) = info {
                    info.encode(w);
                }
            }
            Self::Request { version, client, tid, ino } => {
                w.u8(5);
                w.u64(*version);
                w.i64(*client);
                w.u64(*tid);
                ino.encode(w);
            }
            Self::Flush { version, client, tid } => {
                w.u8(6);
                w.u64(*version);
                w.i64(*client);
                w.u64(*tid);
            }
            Self::Reserve { version, table, client, start, len } => {
                w.u8(7);
                w.u64(*version);
                w.u64(*table);
                w.i64(*client);
                w.u64(*start);
                w.u64(*len);
            }
            Self::Cleared(dir) => {
                w.u8(9);
                dir.encode(w);
            }
            Self::Snaps { version, table } => {
                w.u8(8);
                w.u64(*version);
                w.blob(table);
            }
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            1 => Self::Frag {
                dir: Denc::decode(r)?,
                fresh: r.bool()?,
                fnode: Box::new(Denc::decode(r)?),
                set: r.seq(|r| Ok((r.blob()?, r.blob()?)))?,
                removed: Denc::decode(r)?,
            },
            2 => Self::System { ino: Denc::decode(r)?, version: r.u64()?, inode: r.blob()? },
            3 => Self::Gone(Denc::decode(r)?),
            4 => Self::Session {
                version: r.u64()?,
                table: r.u64()?,
                client: r.i64()?,
                info: if r.bool()? { Some(Box::new(Denc::decode(r)?)) } else { None },
            },
            5 => Self::Request {
                version: r.u64()?,
                client: r.i64()?,
                tid: r.u64()?,
                ino: Denc::decode(r)?,
            },
            6 => Self::Flush { version: r.u64()?, client: r.i64()?, tid: r.u64()? },
            7 => Self::Reserve {
                version: r.u64()?,
                table: r.u64()?,
                client: r.i64()?,
                start: r.u64()?,
                len: r.u64()?,
            },
            9 => Self::Cleared(Denc::decode(r)?),
            8 => Self::Snaps { version: r.u64()?, table: r.blob()? },
            _ => {
                return Err(DecodeError::Invalid {
                    what: "journal record",
                    rule: "a change is of a known kind",
                });
            }
        })
    }
}

/// One operation's changes: all of them hold, or none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Record {
    pub seq: u64,
    pub changes: Vec<Change>,
}

impl Record {
    /// u64 seq, changes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(Features::ALL, 1024);
        w.u64(self.seq);
        self.changes.encode(&mut w);
        w.as_slice().to_vec()
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let bytes = Bytes::copy_from_slice(bytes);
        let r = &mut Reader::shared(&bytes);
        let record = Self { seq: r.u64()?, changes: Denc::decode(r)? };
        r.finish().map(|()| record)
    }

    /// As in journals of version 1: with runs of zeros made short.
    #[cfg(test)]
    pub fn to_payload(&self) -> Vec<u8> {
        squeeze(&self.to_bytes())
    }

    pub fn from_payload(payload: &[u8]) -> Result<Self, DecodeError> {
        Self::from_bytes(&stretch(payload)?)
    }
}

/// Bytes of one literal run at most.
const LITERALS_MAX: usize = 0x80;
/// Zeros of one run at least.
const ZEROS_MIN: usize = 2;

#[cfg(test)]
const ZEROS_MAX: usize = ZEROS_MIN + 0x7f;

/// Replaces runs of zeros. A byte below 0x80 leads so many literals and one more; one above
/// stands for so many zeros more than 0x7e.
#[cfg(test)]
fn squeeze(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() / 2);
    let zeros = |at: usize| bytes[at..].iter().take(ZEROS_MAX).take_while(|b| **b == 0).count();
    let mut at = 0;
    while at < bytes.len() {
        let run = zeros(at);
        if run >= ZEROS_MIN {
            out.push(0x80 + (run - ZEROS_MIN) as u8);
            at += run;
            continue;
        }
        let start = at;
        while at < bytes.len() && at - start < LITERALS_MAX && zeros(at) <= ZEROS_MIN {
            at += 1;
        }
        out.push((at - start - 1) as u8);
        out.extend_from_slice(&bytes[start..at]);
    }
    out
}

fn stretch(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut r = Reader::new(bytes);
    let mut out = Vec::with_capacity(bytes.len() * 3);
    while r.left() > 0 {
        let lead = usize::from(r.u8()?);
        if lead < LITERALS_MAX {
            out.extend_from_slice(r.take("literals", lead + 1)?);
        } else {
            out.resize(out.len() + lead - 0x80 + ZEROS_MIN, 0);
        }
    }
    Ok(out)
}

/// What the `n`th file of a directory is recorded with when it is made (step 0), and when its maker
/// no longer writes it.
#[cfg(test)]
pub(crate) fn a_create(n: u64, step: u64) -> Record {
    use maps::fs::{ClientRange, DentryLink, DentryValue, InodeStore};
    use types::{PoolId, SnapId, UTime};
    let mut store = InodeStore::default();
    let i = &mut store.inode;
    i.ino = Ino((1 << 40) + n);
    (i.mode, i.nlink, i.uid, i.gid) = (0o100_644, 1, 1000, 1000);
    i.layout = striper::FileLayout::plain(PoolId(3));
    let t = UTime {
        sec: 1_790_000_000 + n as u32 / 50,
        nsec: (n as u32).wrapping_mul(123_456_789) % 999_999_999,
    };
    (i.times.ctime, i.times.mtime, i.times.atime, i.times.btime) = (t, t, t, t);
    i.dir.rstat.rctime = t;
    i.versions.version = 3 * n + step;
    if step == 0 {
        let range = ClientRange { first: 0, last: 4 << 20, follows: SnapId(1) };
        i.file.client_ranges.insert(4120, range);
    }
    let value = DentryValue {
        first: SnapId(2),
        alternate_name: Bytes::new(),
        link: DentryLink::Primary(Box::new(store)),
    };
    let mut fnode = Fnode { version: 3 * n + step, ..Fnode::default() };
    (fnode.fragstat.nfiles, fnode.rstat.rfiles) = (n as i64, n as i64);
    (fnode.fragstat.mtime, fnode.rstat.rctime, fnode.fragstat.change_attr) = (t, t, n);
    let set = vec![(format!("file.{n}_head").into(), value.to_bytes())];
    let fnode = Box::new(fnode);
    let dir = DirFrag::default();
    let mut changes = vec![Change::Frag { dir, fresh: false, fnode, set, removed: vec![] }];
    if step == 0 {
        let ino = Ino((1 << 40) + n);
        changes.push(Change::Request { version: 2 * n, client: 4120, tid: 3 + n, ino });
    }
    Record { seq: 0, changes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_zeros() {
        for len in 0..600usize {
            for step in [1, 2, 3, 5, 200] {
                let bytes: Vec<u8> = (0..len).map(|i| u8::from(i % step == 0) * 7).collect();
                assert_eq!(stretch(&squeeze(&bytes)).unwrap(), bytes, "{len} {step}");
            }
        }
        assert!(stretch(&[5, 1]).is_err());
        let record = a_create(7, 0);
        assert_eq!(Record::from_payload(&record.to_payload()), Ok(record));
    }
}
