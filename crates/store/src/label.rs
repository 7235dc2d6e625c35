//! What stands on a device beside the store, for tools that know nothing but the device: names and
//! values in text, as upstream's labels have them (`osd_key`, `created_at`, ...).
//!
//! One block at 4 KiB and the same at 68 KiB, behind the superblocks. Whoever writes it writes one
//! copy and then the other, so one of them is whole; of two the newer counts.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use denc::{DecodeError, Denc, Reader, Writer};
use env::Disk;
use types::{OsdId, Uuid};

use crate::StoreError;
use crate::buf::AlignedBuf;
use crate::header::Header;
use crate::onode::BLOCK;
use crate::superblock::Superblock;

/// `ARGOLABL`
const HEADER: Header = Header { name: "label", magic: 0x4c42_414c_4f47_5241, format: 1 };
const PLACES: [u64; 2] = [BLOCK, (64 << 10) + BLOCK];
/// Bytes of all names and values.
const BYTES_MAX: usize = 3500;

/// Names and values beside a store.
pub type Label = BTreeMap<String, String>;

struct Copy {
    generation: u64,
    values: Label,
}

impl Denc for Copy {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            w.u64(self.generation);
            self.values.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("label", 1, |r, _| Ok(Self { generation: r.u64()?, values: Denc::decode(r)? }))
    }
}

/// Whose store a device holds, and what its label says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peeked {
    /// The cluster.
    pub fsid: Uuid,
    /// The OSD.
    pub osd: OsdId,
    /// Its incarnation.
    pub osd_uuid: Uuid,
    /// Bytes of the device that are used.
    pub size: u64,
    /// Empty where nobody wrote one.
    pub label: Label,
}

/// A device that is only looked at, whoever has it open.
struct Looked(File, u64);

impl Disk for Looked {
    fn size(&self) -> u64 {
        self.1
    }
    fn read(&self, off: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buf, off)
    }
    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

fn copy_at(file: &File, place: u64) -> Result<Option<Copy>, StoreError> {
    let mut raw = [0; BLOCK as usize];
    file.read_exact_at(&mut raw, place).map_err(StoreError::io("reading the label"))?;
    let Some(body) = HEADER.unseal(&raw)? else { return Ok(None) };
    Copy::from_bytes(body).map(Some).map_err(|e| HEADER.broken(&e.to_string()))
}

/// The newer of the two copies; a damaged one does not count where the other is whole.
fn newest(file: &File) -> Result<Option<Copy>, StoreError> {
    let [a, b] = PLACES.map(|place| copy_at(file, place));
    match (a, b) {
        (Ok(a), Ok(b)) => Ok(a.into_iter().chain(b).max_by_key(|copy| copy.generation)),
        (Ok(Some(one)), Err(_)) | (Err(_), Ok(Some(one))) => Ok(Some(one)),
        (Err(err), _) | (_, Err(err)) => Err(err),
    }
}

/// Looks at the store on a device or in a file, also while an OSD runs on it.
///
/// # Errors
/// [`StoreError::Format`] where there is no store; [`StoreError::Io`].
pub fn peek(path: &Path) -> Result<Peeked, StoreError> {
    let what = "opening the block file";
    let file = File::open(path).map_err(StoreError::io(what))?;
    let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0));
    let size = end.map_err(|e| StoreError::io(what)(e.into()))?;
    let looked = Looked(file, size);
    if size < (64 << 10) + 2 * BLOCK {
        return Err(StoreError::Format("not an object store: no superblock".to_owned()));
    }
    let Superblock { fsid, osd, osd_uuid, size, .. } = Superblock::read(&looked)?;
    let label = newest(&looked.0)?.map(|copy| copy.values).unwrap_or_default();
    Ok(Peeked { fsid, osd, osd_uuid, size, label })
}

/// Writes the label of a store: all of it. The caller sees to it that nobody else writes it meanwhile.
///
/// # Errors
/// [`StoreError::Format`] where there is no store, or more than 3,500 bytes; [`StoreError::Io`].
pub fn write_label(path: &Path, values: &Label) -> Result<(), StoreError> {
    peek(path)?;
    let bytes: usize = values.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
    if bytes > BYTES_MAX {
        return Err(StoreError::Format(format!("a label has {BYTES_MAX} bytes at most")));
    }
    let what = "writing the label";
    let file = File::options().read(true).write(true).open(path).map_err(StoreError::io(what))?;
    let generation = newest(&file).ok().flatten().map_or(0, |copy| copy.generation) + 1;
    let block: AlignedBuf = HEADER.seal(&Copy { generation, values: values.clone() }.to_bytes());
    let mut places = PLACES;
    // A damaged or older copy first.
    places.sort_by_key(|place| copy_at(&file, *place).ok().flatten().map(|copy| copy.generation));
    for place in places {
        file.write_all_at(&block, place).map_err(StoreError::io(what))?;
        file.sync_all().map_err(StoreError::io(what))?;
    }
    Ok(())
}

/// Takes away what a label on a device's earlier store said.
pub(crate) fn clear(disk: &dyn Disk) -> Result<(), StoreError> {
    let zeros = AlignedBuf::zeroed(BLOCK as usize);
    let writes = PLACES.map(|place| (place, &zeros[..]));
    disk.commit(&writes).map_err(StoreError::io("clearing the label"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MkfsOptions, OpenOptions, Store};

    fn made(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("argonaut-{name}-{}", std::process::id()));
        std::fs::remove_file(&path).ok();
        let uuid = Uuid::from_random([7; 16]);
        let options = MkfsOptions {
            osd: OsdId(3),
            osd_uuid: uuid,
            size: 64 << 20,
            log_bytes: 4 << 20,
            ..MkfsOptions::default()
        };
        Store::mkfs(&path, &options).unwrap();
        path
    }

    #[test]
    fn a_label_is_read_beside_a_store_that_is_open() {
        let path = made("label");
        assert!(peek(&path).unwrap().label.is_empty());
        let label = Label::from([("osd_key".to_owned(), "AQ==".to_owned())]);
        write_label(&path, &label).unwrap();
        let store = Store::open(&path, OpenOptions::default()).unwrap();
        let peeked = peek(&path).unwrap();
        drop(store);
        std::fs::remove_file(&path).unwrap();
        assert_eq!((peeked.osd, peeked.size, peeked.label), (OsdId(3), 64 << 20, label));
    }

    #[test]
    fn one_whole_copy_is_enough_and_the_newer_one_counts() {
        let path = made("label-copies");
        let label = |value: &str| Label::from([("a".to_owned(), value.to_owned())]);
        write_label(&path, &label("1")).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut old = [0; BLOCK as usize];
        file.read_exact_at(&mut old, PLACES[0]).unwrap();
        write_label(&path, &label("2")).unwrap();
        file.write_all_at(&old, PLACES[0]).unwrap();
        assert_eq!(peek(&path).unwrap().label, label("2"), "the other is older");
        file.write_all_at(&[1], PLACES[0] + 100).unwrap();
        assert_eq!(peek(&path).unwrap().label, label("2"), "the other is torn");
        file.write_all_at(&[1], PLACES[1] + 100).unwrap();
        assert!(peek(&path).is_err(), "both are torn");
        let big = Label::from([("a".to_owned(), "x".repeat(BYTES_MAX))]);
        assert!(matches!(write_label(&path, &big), Err(StoreError::Format(_))));
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        assert!(matches!(peek(&path), Err(StoreError::Format(_))));
        std::fs::remove_file(&path).unwrap();
    }
}
