//! Images and differences out of the cluster and into it.

use std::collections::VecDeque;
use std::io::{Read, Seek, SeekFrom, Write};

use bytes::Bytes;
use tokio::task::JoinHandle;

use crate::diff::Changed;
use crate::error::{Error, Result};
use crate::image::{Image, Mode};
use crate::io::is_zero;
use crate::pool::{self, Create};
use crate::stream::{self, Head, Record, Version};
use crate::{Layout, names};

/// Reads and writes of an export or import in flight at once.
pub const DEPTH: usize = 10;

/// Reads ranges with several in flight, and hands them on in order.
async fn read_in_order(
    image: &Image,
    snap: Option<u64>,
    mut ranges: impl Iterator<Item = Changed>,
    each: &mut dyn FnMut(Changed, Bytes) -> Result<()>,
) -> Result<()> {
    type Waiting = (Changed, Option<JoinHandle<Result<Bytes>>>);
    let mut waiting: VecDeque<Waiting> = VecDeque::new();
    loop {
        while waiting.len() < DEPTH {
            let Some(range) = ranges.next() else { break };
            let image = image.clone();
            let read = async move { image.read_at(snap, range.off, range.len).await };
            let task = range.exists.then(|| tokio::task::spawn_local(read));
            waiting.push_back((range, task));
        }
        let Some((range, task)) = waiting.pop_front() else { return Ok(()) };
        let data = match task {
            None => Bytes::new(),
            Some(task) => task.await.expect("a read does not panic")?,
        };
        each(range, data)?;
    }
}

/// The bytes of an image, or of a snapshot. A file gets holes where zeros are; a stream that
/// cannot seek all bytes.
///
/// # Errors
/// [`Error::Io`]; as [`Image::read_at`].
pub async fn export(
    image: &Image,
    snap: Option<u64>,
    mut out: impl Write + Seek,
    sparse: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let size = image.header().extent(snap)?.0;
    let step = image.layout().object_size().max(1 << 20);
    let ranges = (0..size.div_ceil(step)).map(|i| {
        let off = i * step;
        Changed { off, len: step.min(size - off), exists: true }
    });
    let mut ends_in_hole = false;
    read_in_order(image, snap, ranges, &mut |range, data| {
        ends_in_hole = sparse && is_zero(&data);
        if ends_in_hole {
            out.seek(SeekFrom::Start(range.off + range.len))?;
        } else {
            out.write_all(&data)?;
        }
        progress(range.off + range.len, size);
        Ok(())
    })
    .await?;
    if ends_in_hole {
        out.seek(SeekFrom::Start(size - 1))?;
        out.write_all(&[0])?;
    }
    out.flush()?;
    Ok(())
}

/// A difference, with its banner and end. `names` are those of the two snapshots.
async fn write_diff(
    image: &Image,
    from: Option<(u64, &str)>,
    to: Option<(u64, &str)>,
    version: Version,
    whole: bool,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let to_id = to.map(|(id, _)| id);
    let size = image.header().extent(to_id)?.0;
    let mut head = Vec::new();
    head.extend(if version == Version::V1 { stream::DIFF_V1 } else { stream::DIFF_V2 });
    if let Some((_, name)) = from {
        Record::From(name.to_owned()).put(version, &mut head);
    }
    if let Some((id, name)) = to {
        Record::To(name.to_owned()).put(version, &mut head);
        if version == Version::V2 {
            let header = image.header();
            let protected = header.snaps.iter().any(|s| s.id == id && s.is_protected());
            Record::Protected(protected).put(version, &mut head);
        }
    }
    Record::Size(size).put(version, &mut head);
    out.write_all(&head)?;
    let mut changes = Vec::new();
    // Pieces of at most an object, that a reader need not hold more.
    let step = image.layout().object_size();
    image
        .diff(from.map(|(id, _)| id), to_id, whole, &mut |c| {
            let mut at = 0;
            while at < c.len {
                let len = step.min(c.len - at);
                changes.push(Changed { off: c.off + at, len, exists: c.exists });
                at += len;
            }
            Ok(())
        })
        .await?;
    read_in_order(image, to_id, changes.into_iter(), &mut |range, data| {
        let Changed { off, len, .. } = range;
        let mut head = Vec::new();
        if range.exists && !is_zero(&data) {
            Record::Write { off, len }.put(version, &mut head);
            out.write_all(&head)?;
            out.write_all(&data)?;
        } else {
            Record::Zero { off, len }.put(version, &mut head);
            out.write_all(&head)?;
        }
        progress(off + len, size);
        Ok(())
    })
    .await?;
    out.write_all(b"e")?;
    progress(size, size);
    Ok(())
}

/// What changed between two snapshots, or up to now, as a stream of version 1.
///
/// # Errors
/// [`Error::NoSnap`]; as [`export`].
pub async fn export_diff(
    image: &Image,
    from: Option<&str>,
    to: Option<&str>,
    whole: bool,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let id = |name: Option<&str>| -> Result<Option<u64>> {
        name.map(|name| Ok(image.header().snap(name)?.id)).transpose()
    };
    let from = id(from)?.zip(from);
    let to = id(to)?.zip(to);
    write_diff(image, from, to, Version::V1, whole, out, progress).await?;
    out.flush()?;
    Ok(())
}

/// An image with its snapshots and metadata, version 2.
///
/// # Errors
/// As [`export`].
pub async fn export_v2(
    image: &Image,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let header = image.header().clone();
    let layout = image.layout();
    let mut head = stream::IMAGE_V2.to_vec();
    Head::Order(u64::from(layout.order())).put(&mut head);
    Head::Features(header.features).put(&mut head);
    Head::StripeUnit(layout.stripe_unit()).put(&mut head);
    Head::StripeCount(layout.stripe_count()).put(&mut head);
    for (key, value) in image.metadata().await? {
        Head::Meta(key.to_vec(), value.to_vec()).put(&mut head);
    }
    Head::End.put(&mut head);
    head.extend(stream::IMAGE_DIFFS_V2);
    let snaps: Vec<(u64, String)> =
        header.snaps.iter().filter(|s| s.is_users()).map(|s| (s.id, s.name.clone())).collect();
    head.extend((snaps.len() as u64 + 1).to_le_bytes());
    out.write_all(&head)?;
    let total = snaps.len() as u64 + 1;
    let mut from: Option<(u64, &str)> = None;
    let ends = snaps.iter().map(|(id, name)| Some((*id, name.as_str()))).chain([None]);
    for (i, to) in ends.enumerate() {
        let size = header.size.max(1);
        let mut part = |done: u64, _: u64| {
            progress(i as u64 * size + done.min(size), total * size);
        };
        write_diff(image, from, to, Version::V2, false, out, &mut part).await?;
        from = to;
    }
    out.flush()?;
    Ok(())
}

/// Writes with several in flight.
struct Writes {
    image: Image,
    waiting: VecDeque<JoinHandle<Result<()>>>,
}

impl Writes {
    fn new(image: &Image) -> Self {
        Self { image: image.clone(), waiting: VecDeque::new() }
    }

    async fn push(&mut self, work: impl Future<Output = Result<()>> + 'static) -> Result<()> {
        if self.waiting.len() >= DEPTH
            && let Some(oldest) = self.waiting.pop_front()
        {
            oldest.await.expect("a write does not panic")?;
        }
        self.waiting.push_back(tokio::task::spawn_local(work));
        Ok(())
    }

    async fn write(&mut self, off: u64, data: Bytes) -> Result<()> {
        let image = self.image.clone();
        self.push(async move { image.write(off, data).await }).await
    }

    async fn zero(&mut self, off: u64, len: u64) -> Result<()> {
        let image = self.image.clone();
        self.push(async move { image.discard(off, len).await }).await
    }

    async fn finish(&mut self) -> Result<()> {
        for task in self.waiting.drain(..) {
            task.await.expect("a write does not panic")?;
        }
        Ok(())
    }
}

/// Makes an image of the bytes that `input` gives. Without a size known beforehand (a pipe)
/// the image grows with it.
///
/// # Errors
/// As [`pool::create`] and [`Image::write`]; the image is removed then.
pub async fn import(
    io: &rados::IoCtx,
    name: &str,
    wanted: Create,
    size: Option<u64>,
    input: &mut dyn Read,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let create = Create { size: size.unwrap_or(0), ..wanted };
    pool::create(io, name, &create).await?;
    let image = Image::open(io, name, Mode::Write).await?;
    let done = import_into(&image, size, input, progress).await;
    let closed = image.close().await;
    if done.is_err() {
        pool::remove(io, name, &mut |_, _| {}).await.ok();
    }
    done.and(closed)
}

async fn import_into(
    image: &Image,
    size: Option<u64>,
    input: &mut dyn Read,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let step = image.layout().object_size();
    let mut writes = Writes::new(image);
    let mut at = 0;
    loop {
        let want = size.map_or(step, |size| step.min(size - at));
        let mut data = Vec::with_capacity(want as usize);
        input.take(want).read_to_end(&mut data)?;
        if data.is_empty() {
            break;
        }
        let len = data.len() as u64;
        if size.is_none() && at + len > image.size() {
            // Twice as large each time: growing costs a few calls.
            let grown = (at + len).max(image.size().saturating_mul(2));
            image.resize(grown, &mut |_, _| {}).await?;
        }
        if !is_zero(&data) {
            writes.write(at, data.into()).await?;
        }
        at += len;
        progress(at, size.unwrap_or(at));
    }
    writes.finish().await?;
    match size {
        Some(size) if at < size => {
            Err(Error::Stream(format!("{at} bytes of {size} came before its end")))
        }
        None if image.size() != at => image.resize(at, &mut |_, _| {}).await,
        _ => Ok(()),
    }
}

/// Applies a difference to an image.
///
/// # Errors
/// [`Error::NoSnap`] when it goes from a snapshot that the image does not have,
/// [`Error::Exists`] when it has the one it goes to; [`Error::Stream`].
pub async fn import_diff(
    image: &Image,
    input: &mut dyn Read,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let version = stream::read_banner(&mut &mut *input)?;
    apply_diff(image, version, input, progress).await
}

async fn apply_diff(
    image: &Image,
    version: Version,
    input: &mut dyn Read,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let mut input = input;
    let mut writes = Writes::new(image);
    let (mut to, mut protect) = (None, false);
    loop {
        match stream::read_record(&mut input, version)? {
            Record::From(name) => {
                image.header().snap(&name)?;
            }
            Record::To(name) => {
                if image.header().snap(&name).is_ok() {
                    return Err(Error::Exists(name));
                }
                to = Some(name);
            }
            Record::Protected(yes) => protect = yes,
            Record::Size(size) => {
                writes.finish().await?;
                if size != image.size() {
                    image.resize(size, &mut |_, _| {}).await?;
                }
            }
            Record::Write { off, len } => {
                let mut data = vec![0; len as usize];
                input.read_exact(&mut data)?;
                writes.write(off, data.into()).await?;
                progress(off + len, image.size());
            }
            Record::Zero { off, len } => {
                // A difference may speak of what was cut off.
                let len = len.min(image.size().saturating_sub(off));
                if len > 0 {
                    writes.zero(off, len).await?;
                }
                progress(off + len, image.size());
            }
            Record::Unknown(tag) => tracing::warn!("a record of the unknown kind {tag:#x}"),
            Record::End => break,
        }
    }
    writes.finish().await?;
    if let Some(name) = to {
        image.create_snap(&name).await?;
        if protect {
            image.protect_snap(&name).await?;
        }
    }
    Ok(())
}

/// Makes an image with snapshots and metadata of a stream of version 2. What `wanted` says of
/// features and data pool counts; order and striping are the stream's.
///
/// # Errors
/// As [`import`].
pub async fn import_v2(
    io: &rados::IoCtx,
    name: &str,
    wanted: Create,
    input: &mut dyn Read,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let mut input = input;
    stream::expect(&mut input, stream::IMAGE_V2)?;
    let mut create = Create { size: 0, ..wanted };
    let mut metadata = Vec::new();
    loop {
        match stream::read_head(&mut input)? {
            Head::Order(order) => create.order = u8::try_from(order).unwrap_or(u8::MAX),
            Head::Features(features) => {
                create.features = features & names::DEFAULT_FEATURES;
            }
            Head::StripeUnit(unit) => create.stripe_unit = unit,
            Head::StripeCount(count) => create.stripe_count = count,
            Head::Meta(key, value) => metadata.push((Bytes::from(key), Bytes::from(value))),
            Head::Unknown(tag) => tracing::warn!("a record of the unknown kind {tag:#x}"),
            Head::End => break,
        }
    }
    Layout::new(create.order, create.stripe_unit, create.stripe_count)?;
    stream::expect(&mut input, stream::IMAGE_DIFFS_V2)?;
    let diffs = stream::read_u64(&mut input)?;
    pool::create(io, name, &create).await?;
    let image = Image::open(io, name, Mode::Write).await?;
    let mut done = match metadata.is_empty() {
        true => Ok(()),
        false => image.set_metadata(metadata).await,
    };
    for _ in 0..diffs {
        if done.is_err() {
            break;
        }
        done = import_diff(&image, input, progress).await;
    }
    let closed = image.close().await;
    done.and(closed)
}
