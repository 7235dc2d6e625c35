//! Where the log is: on the store's own device, on another one, or nowhere.
//!
//! On another device the log has a header of one block, so that no other store's log is
//! taken for it and nobody else's data is written over. Without a log what was acknowledged
//! since the last checkpoint is lost when the process ends without closing the store: what
//! is left is the state at that checkpoint.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use denc::{DecodeError, Denc, Reader, Writer};
use env::Disk;
use types::{OsdId, Uuid};

use crate::buf::AlignedBuf;
use crate::file::FileDisk;
use crate::header::Header;
use crate::log::Ring;
use crate::onode::BLOCK;
use crate::space::read_past_caches;
use crate::superblock::{LOG_OFF, Superblock};
use crate::{MkfsOptions, StoreError};

type Result<T> = std::result::Result<T, StoreError>;

/// Where a store keeps its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogPlacement {
    /// On the store's device.
    #[default]
    Device,
    /// On a device or file of its own.
    Own,
    /// In memory: unsafe. What was acknowledged since the last checkpoint is lost when the
    /// process is.
    Memory,
}

impl LogPlacement {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Device => 0,
            Self::Own => 1,
            Self::Memory => 2,
        }
    }

    pub(crate) fn from_number(n: u8) -> Option<Self> {
        [Self::Device, Self::Own, Self::Memory].into_iter().find(|p| p.number() == n)
    }

    /// As options and reports name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Own => "own device",
            Self::Memory => "memory",
        }
    }
}

/// The log's place, open.
#[derive(Clone)]
pub(crate) enum LogDisk {
    /// The store's.
    Shared(Arc<dyn Disk>),
    Own(Arc<dyn Disk>),
    Memory,
}

impl LogDisk {
    /// Where it can be read; `None` where it cannot.
    pub fn disk(&self) -> Option<&Arc<dyn Disk>> {
        match self {
            Self::Shared(disk) | Self::Own(disk) => Some(disk),
            Self::Memory => None,
        }
    }
}

/// `ARGOJRNL`
const HEADER: Header = Header { name: "the log's header", magic: 0x4c4e_524a_4f47_5241, format: 1 };

/// The first block of a log on a device of its own.
struct LogHeader {
    fsid: Uuid,
    osd: OsdId,
    osd_uuid: Uuid,
    salt: u64,
    log_len: u64,
}

impl Denc for LogHeader {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            self.fsid.encode(w);
            self.osd.encode(w);
            self.osd_uuid.encode(w);
            w.u64(self.salt);
            w.u64(self.log_len);
        });
    }
    fn decode(r: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        r.framed("log header", 1, |r, _| {
            Ok(Self {
                fsid: Denc::decode(r)?,
                osd: Denc::decode(r)?,
                osd_uuid: Denc::decode(r)?,
                salt: r.u64()?,
                log_len: r.u64()?,
            })
        })
    }
}

impl LogHeader {
    fn write(&self, disk: &dyn Disk) -> Result<()> {
        let buf = HEADER.seal(&self.to_bytes());
        // The first group of an older log in the ring, if any, goes.
        let nothing = AlignedBuf::zeroed(BLOCK as usize);
        disk.commit(&[(0, &buf), (BLOCK, &nothing)]).map_err(StoreError::io("making the log"))
    }

    fn read(disk: &dyn Disk) -> Result<Option<Self>> {
        let mut raw = [0; BLOCK as usize];
        if disk.size() < BLOCK {
            return Ok(None);
        }
        read_past_caches(disk, 0, &mut raw).map_err(StoreError::io("reading the log's header"))?;
        let Some(body) = HEADER.unseal(&raw)? else { return Ok(None) };
        Self::from_bytes(body).map(Some).map_err(|e| HEADER.broken(&e.to_string()))
    }
}

/// The path of a log on a device of its own, when no other is told: beside the block file.
pub(crate) fn beside(block: &Path) -> PathBuf {
    block.with_file_name("journal")
}

/// Makes the file or checks the device for a log; it holds no other store's.
pub(crate) fn create(path: &Path, options: &MkfsOptions) -> Result<Arc<dyn Disk>> {
    FileDisk::create(path, options.log_bytes.next_multiple_of(BLOCK) + BLOCK)?;
    let disk = FileDisk::open(path)?;
    if Superblock::is_present(&disk) {
        return Err(StoreError::Format(format!("{}: holds a store", path.display())));
    }
    // A damaged header is nobody's, and a log without its store neither: only one that
    // another OSD still needs is kept.
    if let Ok(Some(h)) = LogHeader::read(&disk)
        && (h.fsid, h.osd) != (options.fsid, options.osd)
    {
        return Err(StoreError::Format(format!(
            "{}: holds the log of osd.{} of cluster {}",
            path.display(),
            h.osd.0,
            h.fsid
        )));
    }
    Ok(Arc::new(disk))
}

/// Prepares the log of a new store.
pub(crate) fn make(log: Option<&dyn Disk>, disk: &dyn Disk, sb: &Superblock) -> Result<()> {
    match (sb.placement, log) {
        (LogPlacement::Own, Some(log)) => {
            if log.size() < BLOCK + sb.log_len {
                return Err(StoreError::Format(format!(
                    "the log's device has {} bytes, {} are asked for",
                    log.size(),
                    BLOCK + sb.log_len
                )));
            }
            let (fsid, osd, osd_uuid) = (sb.fsid, sb.osd, sb.osd_uuid);
            LogHeader { fsid, osd, osd_uuid, salt: sb.salt, log_len: sb.log_len }.write(log)
        }
        (LogPlacement::Own, None) => Err(StoreError::Invalid("a log of its own has a device")),
        // The first group of an older store in the ring, if any, goes.
        (LogPlacement::Device, _) => disk
            .commit(&[(LOG_OFF, &AlignedBuf::zeroed(BLOCK as usize))])
            .map_err(StoreError::io("clearing the log")),
        (LogPlacement::Memory, _) => Ok(()),
    }
}

/// The log of a store that is being opened, and its ring for the next mount.
pub(crate) fn find(
    disk: &Arc<dyn Disk>,
    log: Option<Arc<dyn Disk>>,
    sb: &Superblock,
) -> Result<(LogDisk, Ring)> {
    let ring = |off| Ring { off, len: sb.log_len, salt: sb.salt, mount: sb.mount + 1 };
    match (sb.placement, log) {
        (LogPlacement::Device, _) => Ok((LogDisk::Shared(disk.clone()), ring(LOG_OFF))),
        (LogPlacement::Memory, _) => Ok((LogDisk::Memory, ring(0))),
        (LogPlacement::Own, None) => {
            Err(StoreError::Format("the store's log is on a device of its own".into()))
        }
        (LogPlacement::Own, Some(log)) => {
            let Some(h) = LogHeader::read(&*log)? else {
                return Err(StoreError::Format("the log's device holds no log".into()));
            };
            if (h.salt, h.osd_uuid) != (sb.salt, sb.osd_uuid) {
                return Err(StoreError::Format(format!(
                    "the log is that of osd.{} of cluster {}, another store's",
                    h.osd.0, h.fsid
                )));
            }
            if h.log_len != sb.log_len || log.size() < BLOCK + sb.log_len {
                return Err(StoreError::Format("the log's device is too small".into()));
            }
            Ok((LogDisk::Own(log), ring(BLOCK)))
        }
    }
}
