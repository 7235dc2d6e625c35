//! Images and differences to files and from them.

use std::cell::RefCell;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use rados::Cluster;
use rbd::{Create, Mode, export};

use super::progress::Progress;
use super::spec::Spec;
use super::with_image;

fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Standard output: what is skipped is written as zeros by the caller.
struct Stdout(crate::say::Out);

impl Write for Stdout {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        self.0.write(data)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Seek for Stdout {
    fn seek(&mut self, _: SeekFrom) -> std::io::Result<u64> {
        Err(std::io::ErrorKind::NotSeekable.into())
    }
}

/// A new file; like the peer's tool it replaces none.
fn create(path: &Path) -> Result<File> {
    File::options()
        .write(true)
        .create_new(true)
        .open(path)
        .with_context(|| path.display().to_string())
}

async fn export_one(
    cluster: &Cluster,
    spec: &Spec,
    file: &Path,
    format: u8,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    with_image(cluster, spec, Mode::Read, async |image| {
        let snap = match &spec.snap {
            None => None,
            Some(name) => Some(image.header().snap(name)?.id),
        };
        if format == 2 {
            if snap.is_some() {
                bail!("a snapshot alone is exported in format 1");
            }
            if is_dash(file) {
                export::export_v2(image, &mut crate::say::out(), progress).await?;
            } else {
                export::export_v2(image, &mut create(file)?, progress).await?;
            }
        } else if is_dash(file) {
            export::export(image, snap, Stdout(crate::say::out()), false, progress).await?;
        } else {
            export::export(image, snap, create(file)?, true, progress).await?;
        }
        Ok(())
    })
    .await
}

/// One image into a file, or several into a directory, some at once.
pub async fn export(
    cluster: &Cluster,
    args: &[String],
    format: u8,
    parallel: usize,
    quiet: bool,
) -> Result<()> {
    let (target, images) = args.split_last().context("name an image and a file")?;
    let target = PathBuf::from(target);
    let specs: Vec<Spec> = images.iter().map(|i| i.parse().expect("any text is a name")).collect();
    let quiet = quiet || is_dash(&target);
    if let ([spec], false) = (&specs[..], target.is_dir()) {
        let mut bar = Progress::new("Exporting image", quiet);
        return export_one(cluster, spec, &target, format, &mut |d, a| bar.at(d, a)).await;
    }
    if !target.is_dir() {
        bail!("{} is no directory: several images go into one", target.display());
    }
    let name = format!("Exporting {} images", specs.len());
    let bar = Rc::new(RefCell::new(Progress::new(&name, quiet)));
    // Bytes done and in all, for each image.
    let sums = Rc::new(RefCell::new(vec![(0u64, 0u64); specs.len()]));
    let queue = Rc::new(RefCell::new(specs.into_iter().enumerate().collect::<Vec<_>>()));
    queue.borrow_mut().reverse();
    let mut tasks = Vec::new();
    for _ in 0..parallel.max(1) {
        let (cluster, target, queue) = (cluster.clone(), target.clone(), queue.clone());
        let (bar, sums) = (bar.clone(), sums.clone());
        tasks.push(tokio::task::spawn_local(async move {
            loop {
                let Some((i, spec)) = queue.borrow_mut().pop() else { return Ok(()) };
                let snap = spec.snap.as_ref().map_or(String::new(), |s| format!("@{s}"));
                let file = target.join(format!("{}{snap}", spec.image));
                let mut progress = |done, all| {
                    let mut sums = sums.borrow_mut();
                    sums[i] = (done, all);
                    // An image that has not begun counts as the largest so far.
                    let largest = sums.iter().map(|s| s.1).max().unwrap_or(1);
                    let done: u64 = sums.iter().map(|s| s.0).sum();
                    let all = sums.iter().map(|s| if s.1 == 0 { largest } else { s.1 }).sum();
                    bar.borrow_mut().at(done, all);
                };
                export_one(&cluster, &spec, &file, format, &mut progress)
                    .await
                    .with_context(|| spec.image.clone())?;
            }
        }));
    }
    let mut failed: Option<anyhow::Error> = None;
    for task in tasks {
        if let Err(err) = task.await? {
            tell!("argonaut: {}", crate::say::Why(&err));
            failed = failed.or(Some(err));
        }
    }
    match failed {
        None => Ok(()),
        Some(_) => bail!("not all images were exported"),
    }
}

fn open(file: &Path) -> Result<(Box<dyn Read>, Option<u64>)> {
    if is_dash(file) {
        return Ok((Box::new(std::io::stdin()), None));
    }
    let mut opened = File::open(file).with_context(|| file.display().to_string())?;
    // A block device has its size at its end, a pipe has none.
    let size = opened.seek(SeekFrom::End(0)).ok();
    if size.is_some() {
        opened.rewind()?;
    }
    Ok((Box::new(opened), size))
}

pub async fn import(
    cluster: &Cluster,
    file: &Path,
    image: &Spec,
    format: u8,
    wanted: Create,
    quiet: bool,
) -> Result<()> {
    let io = image.io(cluster).await?;
    let (mut input, size) = open(file)?;
    let mut bar = Progress::new("Importing image", quiet);
    let mut progress = |done, all| bar.at(done, all);
    if format == 2 {
        export::import_v2(&io, &image.image, wanted, &mut input, &mut progress).await?;
    } else {
        export::import(&io, &image.image, wanted, size, &mut input, &mut progress).await?;
    }
    Ok(())
}

pub async fn export_diff(
    cluster: &Cluster,
    spec: &Spec,
    file: &Path,
    from: Option<&str>,
    whole: bool,
    quiet: bool,
) -> Result<()> {
    let mut out: Box<dyn Write> = match is_dash(file) {
        true => Box::new(crate::say::out()),
        false => Box::new(create(file)?),
    };
    let mut bar = Progress::new("Exporting image", quiet || is_dash(file));
    let to = spec.snap.as_deref();
    with_image(cluster, spec, Mode::Read, async |image| {
        let mut progress = |done, all| bar.at(done, all);
        Ok(export::export_diff(image, from, to, whole, &mut out, &mut progress).await?)
    })
    .await
}

pub async fn import_diff(cluster: &Cluster, file: &Path, spec: &Spec, quiet: bool) -> Result<()> {
    let (mut input, _) = open(file)?;
    let mut bar = Progress::new("Importing image diff", quiet);
    with_image(cluster, spec, Mode::Write, async |image| {
        let mut progress = |done, all| bar.at(done, all);
        Ok(export::import_diff(image, &mut input, &mut progress).await?)
    })
    .await
}
