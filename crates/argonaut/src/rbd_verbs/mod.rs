//! `argonaut rbd`: block device images on our own client library.

mod bench;
mod progress;
mod serve;
mod show;
mod spec;
pub(crate) mod tls;
mod transfer;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use rados::Cluster;
use rbd::{Create, Image, Mode, pool, trash};

use crate::client::{Connect, connect};
use progress::Progress;
use spec::Spec;

/// What new images are like.
#[derive(Args, Clone, Debug, Default)]
pub struct Shape {
    /// Bytes of its objects: a power of two from 4K to 32M.
    #[arg(long, value_parser = crate::size)]
    object_size: Option<u64>,
    /// Features, instead of the default ones: layering,exclusive-lock,object-map,...
    #[arg(long = "image-feature", value_delimiter = ',')]
    features: Vec<String>,
    /// Bytes of a stripe unit.
    #[arg(long, value_parser = crate::size)]
    stripe_unit: Option<u64>,
    /// Objects to stripe over.
    #[arg(long)]
    stripe_count: Option<u64>,
    /// The pool of its data.
    #[arg(long)]
    data_pool: Option<String>,
}

impl Shape {
    fn is_given(&self) -> bool {
        self.object_size.is_some()
            || !self.features.is_empty()
            || self.stripe_unit.is_some()
            || self.stripe_count.is_some()
            || self.data_pool.is_some()
    }

    async fn over(&self, cluster: &Cluster, mut base: Create) -> Result<Create> {
        if let Some(size) = self.object_size {
            if !size.is_power_of_two() {
                bail!("objects have a power of two of bytes, not {size}");
            }
            base.order = size.trailing_zeros() as u8;
        }
        if !self.features.is_empty() {
            base.features = 0;
            for name in &self.features {
                base.features |=
                    rbd::feature_bit(name).with_context(|| format!("no feature '{name}'"))?;
            }
        }
        base.stripe_unit = self.stripe_unit.unwrap_or(base.stripe_unit);
        base.stripe_count = self.stripe_count.unwrap_or(base.stripe_count);
        if let Some(name) = &self.data_pool {
            base.data_pool = Some(cluster.pool(name).await?.pool_id());
        }
        Ok(base)
    }
}

/// How answers look.
#[derive(Args, Clone, Copy, Debug)]
pub struct Look {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// `argonaut rbd` verbs. Images are named [POOL/[NAMESPACE/]]IMAGE[@SNAPSHOT]; the pool is
/// `rbd` where none is named.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Make an image.
    Create {
        /// The image.
        image: Spec,
        /// Bytes, for example 10G.
        #[arg(short, long, value_parser = crate::size)]
        size: u64,
        #[command(flatten)]
        shape: Shape,
    },
    /// List a pool's images.
    Ls {
        /// POOL or POOL/NAMESPACE.
        #[arg(default_value = "rbd")]
        pool: String,
        #[command(flatten)]
        look: Look,
    },
    /// Show what an image is like.
    Info {
        /// The image.
        image: Spec,
        #[command(flatten)]
        look: Look,
    },
    /// Show who uses an image, and who has its lock.
    Status {
        /// The image.
        image: Spec,
        #[command(flatten)]
        look: Look,
    },
    /// Show how much images and their snapshots use.
    Du {
        /// An image, or a pool.
        image: Spec,
        #[command(flatten)]
        look: Look,
    },
    /// Change an image's size.
    Resize {
        /// The image.
        image: Spec,
        /// Bytes.
        #[arg(short, long, value_parser = crate::size)]
        size: u64,
        /// What lies beyond the new end may be lost.
        #[arg(long)]
        allow_shrink: bool,
    },
    /// Give an image another name.
    #[command(visible_alias = "mv")]
    Rename {
        /// The image.
        image: Spec,
        /// Its new name.
        to: Spec,
    },
    /// Remove an image and its data.
    #[command(visible_alias = "remove")]
    Rm {
        /// The image.
        image: Spec,
    },
    /// Snapshots.
    #[command(subcommand)]
    Snap(SnapVerb),
    /// Make an image that begins as another's snapshot.
    Clone {
        /// IMAGE@SNAPSHOT.
        parent: Spec,
        /// The new image.
        image: Spec,
        /// 1: of a protected snapshot; 2: the parent lists its clones. By default what the
        /// cluster's clients know.
        #[arg(long)]
        clone_format: Option<u8>,
        #[command(flatten)]
        shape: Shape,
    },
    /// List a snapshot's clones.
    Children {
        /// IMAGE@SNAPSHOT.
        image: Spec,
    },
    /// Copy what a clone still shows of its parent, and end being its clone.
    Flatten {
        /// The image.
        image: Spec,
    },
    /// Write images into files; - is standard output.
    Export {
        /// IMAGE[@SNAPSHOT] FILE, or several images and a directory.
        #[arg(required = true, num_args = 2..)]
        args: Vec<String>,
        /// 1: the bytes; 2: with snapshots and metadata.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
        export_format: u8,
        /// Images that are exported at once.
        #[arg(long, default_value_t = 4)]
        parallel: usize,
    },
    /// Make an image of a file; - is standard input.
    Import {
        /// The file.
        file: PathBuf,
        /// The new image.
        image: Spec,
        /// As the file was exported.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
        export_format: u8,
        #[command(flatten)]
        shape: Shape,
    },
    /// Write what changed up to a snapshot, or up to now; - is standard output.
    ExportDiff {
        /// IMAGE[@SNAPSHOT].
        image: Spec,
        /// The file.
        file: PathBuf,
        /// Since this snapshot of the image.
        #[arg(long)]
        from_snap: Option<String>,
        /// Whole objects where they changed: faster with an object map.
        #[arg(long)]
        whole_object: bool,
    },
    /// Apply such a file to an image; - is standard input.
    ImportDiff {
        /// The file.
        file: PathBuf,
        /// The image.
        image: Spec,
    },
    /// List what changed.
    Diff {
        /// IMAGE[@SNAPSHOT].
        image: Spec,
        /// Since this snapshot of the image.
        #[arg(long)]
        from_snap: Option<String>,
        /// Whole objects where they changed.
        #[arg(long)]
        whole_object: bool,
        #[command(flatten)]
        look: Look,
    },
    /// Write or read an image for a while, and tell how fast.
    Bench {
        /// The image; what it holds is overwritten.
        image: Spec,
        /// write, read or readwrite.
        #[arg(long, default_value = "write")]
        io_type: bench::IoType,
        /// Bytes of an operation.
        #[arg(long, default_value = "4K", value_parser = crate::size)]
        io_size: u64,
        /// Operations in flight.
        #[arg(long, default_value_t = 16)]
        io_threads: usize,
        /// Bytes in all.
        #[arg(long, default_value = "256M", value_parser = crate::size)]
        io_total: u64,
        /// rand or seq.
        #[arg(long, default_value = "seq")]
        io_pattern: bench::Pattern,
    },
    /// Images that were thrown away.
    #[command(subcommand)]
    Trash(TrashVerb),
    /// Pools.
    #[command(subcommand)]
    Pool(PoolVerb),
    /// Serve images as network block devices.
    Serve(serve::Serve),
}

/// `argonaut rbd snap` verbs.
#[derive(Subcommand, Debug)]
pub enum SnapVerb {
    /// Make a snapshot.
    Create {
        /// IMAGE@SNAPSHOT.
        image: Spec,
    },
    /// List an image's snapshots.
    Ls {
        /// The image.
        image: Spec,
        /// Those too that wait for their clones.
        #[arg(short, long)]
        all: bool,
        #[command(flatten)]
        look: Look,
    },
    /// Remove a snapshot.
    #[command(visible_alias = "remove")]
    Rm {
        /// IMAGE@SNAPSHOT.
        image: Spec,
    },
    /// Remove all snapshots that are not protected.
    Purge {
        /// The image.
        image: Spec,
    },
    /// Give a snapshot another name.
    Rename {
        /// IMAGE@SNAPSHOT.
        image: Spec,
        /// Its new name.
        to: String,
    },
    /// Keep a snapshot from being removed, for clones.
    Protect {
        /// IMAGE@SNAPSHOT.
        image: Spec,
    },
    /// End that.
    Unprotect {
        /// IMAGE@SNAPSHOT.
        image: Spec,
    },
    /// Make the image what it was in a snapshot.
    #[command(visible_alias = "revert")]
    Rollback {
        /// IMAGE@SNAPSHOT.
        image: Spec,
    },
}

/// `argonaut rbd pool` verbs.
#[derive(Subcommand, Debug)]
pub enum PoolVerb {
    /// Make a pool ready for images.
    Init {
        /// The pool.
        pool: String,
        /// Though another application has it.
        #[arg(long)]
        force: bool,
    },
}

/// `argonaut rbd trash` verbs.
#[derive(Subcommand, Debug)]
pub enum TrashVerb {
    /// Throw an image away.
    Mv {
        /// The image.
        image: Spec,
        /// Seconds until it may be removed.
        #[arg(long, default_value_t = 0)]
        expires_in: u32,
    },
    /// List what was thrown away.
    Ls {
        /// POOL or POOL/NAMESPACE.
        #[arg(default_value = "rbd")]
        pool: String,
        #[command(flatten)]
        look: Look,
    },
    /// Take an image back.
    Restore {
        /// [POOL/[NAMESPACE/]]ID.
        id: Spec,
        /// Under this name instead of its old one.
        #[arg(long)]
        image: Option<String>,
    },
    /// Remove an image for good.
    Rm {
        /// [POOL/[NAMESPACE/]]ID.
        id: Spec,
        /// Also before its time.
        #[arg(long)]
        force: bool,
    },
}

/// Opens an image, works on it and closes it, whatever came of the work.
async fn with_image<T>(
    cluster: &Cluster,
    spec: &Spec,
    mode: Mode,
    work: impl AsyncFnOnce(&Image) -> Result<T>,
) -> Result<T> {
    let io = spec.io(cluster).await?;
    let image = Image::open(&io, &spec.image, mode).await?;
    let done = work(&image).await;
    let closed = image.close().await;
    let done = done?;
    closed?;
    Ok(done)
}

/// `argonaut rbd VERB`.
pub fn run(how: &Connect, verb: &Verb, quiet: bool) -> Result<ExitCode> {
    rt::run_local(async {
        let cluster = connect(how).await?;
        dispatch(&cluster, verb, quiet).await?;
        Ok(ExitCode::SUCCESS)
    })?
}

async fn dispatch(cluster: &Cluster, verb: &Verb, quiet: bool) -> Result<()> {
    match verb {
        Verb::Create { image, size, shape } => {
            let io = image.plain()?.io(cluster).await?;
            let wanted = shape.over(cluster, Create { size: *size, ..Create::default() }).await?;
            pool::create(&io, &image.image, &wanted).await?;
        }
        Verb::Ls { pool, look } => show::list(cluster, pool, look.json).await?,
        Verb::Info { image, look } => show::info(cluster, image, look.json).await?,
        Verb::Status { image, look } => show::status(cluster, image, look.json).await?,
        Verb::Du { image, look } => show::usage(cluster, image, look.json).await?,
        Verb::Resize { image, size, allow_shrink } => {
            with_image(cluster, image.plain()?, Mode::Write, async |i| {
                if *size < i.size() && !allow_shrink {
                    bail!("shrinking from {} bytes loses data: --allow-shrink", i.size());
                }
                let mut bar = Progress::new("Resizing image", quiet);
                Ok(i.resize(*size, &mut |done, all| bar.at(done, all)).await?)
            })
            .await?;
        }
        Verb::Rename { image, to } => {
            let io = image.plain()?.io(cluster).await?;
            if to.pool.is_some() && (&to.pool, &to.nspace) != (&image.pool, &image.nspace) {
                bail!("an image stays in its pool when it is renamed");
            }
            pool::rename(&io, &image.image, &to.plain()?.image).await?;
        }
        Verb::Rm { image } => {
            let io = image.plain()?.io(cluster).await?;
            let mut bar = Progress::new("Removing image", quiet);
            pool::remove(&io, &image.image, &mut |done, all| bar.at(done, all)).await?;
        }
        Verb::Snap(verb) => snap(cluster, verb, quiet).await?,
        Verb::Clone { parent, image, clone_format, shape } => {
            let kind = match clone_format {
                None => rbd::Kind::Auto,
                Some(1) => rbd::Kind::One,
                Some(2) => rbd::Kind::Two,
                Some(other) => bail!("there are clones of format 1 and 2, not {other}"),
            };
            let io = image.plain()?.io(cluster).await?;
            let snap = parent.snap()?;
            with_image(cluster, parent, Mode::Read, async |p| {
                let wanted = match shape.is_given() {
                    false => None,
                    true => {
                        let own = rbd::DEFAULT_FEATURES & p.header().features;
                        let order = p.layout().order();
                        let base = Create { order, features: own, ..Create::default() };
                        Some(shape.over(cluster, base).await?)
                    }
                };
                Ok(rbd::clone(p, snap, &io, &image.image, kind, wanted).await?)
            })
            .await?;
        }
        Verb::Children { image } => {
            let snap = image.snap()?;
            with_image(cluster, image, Mode::Read, async |i| {
                let id = i.header().snap(snap)?.id;
                for (pool, nspace, name) in i.child_names(id).await? {
                    say!("{}", spec::full_name(&pool, &nspace, &name));
                }
                Ok(())
            })
            .await?;
        }
        Verb::Flatten { image } => {
            with_image(cluster, image.plain()?, Mode::Write, async |i| {
                let mut bar = Progress::new("Image flatten", quiet);
                Ok(i.flatten(&mut |done, all| bar.at(done, all)).await?)
            })
            .await?;
        }
        Verb::Export { args, export_format, parallel } => {
            transfer::export(cluster, args, *export_format, *parallel, quiet).await?;
        }
        Verb::Import { file, image, export_format, shape } => {
            let wanted = shape.over(cluster, Create::default()).await?;
            transfer::import(cluster, file, image.plain()?, *export_format, wanted, quiet).await?;
        }
        Verb::ExportDiff { image, file, from_snap, whole_object } => {
            let from = from_snap.as_deref();
            transfer::export_diff(cluster, image, file, from, *whole_object, quiet).await?;
        }
        Verb::ImportDiff { file, image } => {
            transfer::import_diff(cluster, file, image.plain()?, quiet).await?;
        }
        Verb::Diff { image, from_snap, whole_object, look } => {
            show::diff(cluster, image, from_snap.as_deref(), *whole_object, look.json).await?;
        }
        Verb::Bench { image, io_type, io_size, io_threads, io_total, io_pattern } => {
            let wanted = bench::Wanted {
                io_type: *io_type,
                size: *io_size,
                threads: *io_threads,
                total: *io_total,
                pattern: *io_pattern,
            };
            let mode = if wanted.writes() { Mode::Write } else { Mode::Read };
            with_image(cluster, image.plain()?, mode, async |i| bench::run(i, &wanted).await)
                .await?;
        }
        Verb::Serve(wanted) => serve::run(cluster, wanted).await?,
        Verb::Pool(PoolVerb::Init { pool, force }) => {
            let io = cluster.pool(pool).await?;
            let command = serde_json::json!({
                "prefix": "osd pool application enable", "pool": pool, "app": "rbd",
                "yes_i_really_mean_it": force,
            });
            cluster.mon(&command.to_string()).await?;
            pool::validate(&io).await?;
        }
        Verb::Trash(verb) => trash_verb(cluster, verb, quiet).await?,
    }
    Ok(())
}

async fn snap(cluster: &Cluster, verb: &SnapVerb, quiet: bool) -> Result<()> {
    match verb {
        SnapVerb::Create { image } => {
            let name = image.snap()?;
            with_image(cluster, image, Mode::Write, async |i| {
                i.create_snap(name).await?;
                Ok(())
            })
            .await
        }
        SnapVerb::Ls { image, all, look } => {
            show::snapshots(cluster, image.plain()?, *all, look.json).await
        }
        SnapVerb::Rm { image } => {
            let name = image.snap()?;
            with_image(cluster, image, Mode::Write, async |i| Ok(i.remove_snap(name).await?)).await
        }
        SnapVerb::Purge { image } => {
            with_image(cluster, image.plain()?, Mode::Write, async |i| {
                let snaps = i.header().snaps.clone();
                let snaps: Vec<_> = snaps.iter().filter(|s| s.is_users()).collect();
                let mut bar = Progress::new("Removing all snapshots", quiet);
                let mut kept = Vec::new();
                for (done, snap) in snaps.iter().enumerate() {
                    if snap.is_protected() {
                        kept.push(snap.name.clone());
                    } else {
                        i.remove_snap(&snap.name).await?;
                    }
                    bar.at(done as u64 + 1, snaps.len() as u64);
                }
                if !kept.is_empty() {
                    bail!("protected snapshots are kept: {}", kept.join(", "));
                }
                Ok(())
            })
            .await
        }
        SnapVerb::Rename { image, to } => {
            let name = image.snap()?;
            with_image(cluster, image, Mode::Write, async |i| Ok(i.rename_snap(name, to).await?))
                .await
        }
        SnapVerb::Protect { image } => {
            let name = image.snap()?;
            with_image(cluster, image, Mode::Write, async |i| Ok(i.protect_snap(name).await?)).await
        }
        SnapVerb::Unprotect { image } => {
            let name = image.snap()?;
            with_image(cluster, image, Mode::Write, async |i| Ok(i.unprotect_snap(name).await?))
                .await
        }
        SnapVerb::Rollback { image } => {
            let name = image.snap()?;
            with_image(cluster, image, Mode::Write, async |i| {
                let mut bar = Progress::new("Rolling back to snapshot", quiet);
                Ok(i.rollback(name, &mut |done, all| bar.at(done, all)).await?)
            })
            .await
        }
    }
}

async fn trash_verb(cluster: &Cluster, verb: &TrashVerb, quiet: bool) -> Result<()> {
    match verb {
        TrashVerb::Mv { image, expires_in } => {
            let io = image.plain()?.io(cluster).await?;
            trash::put(&io, &image.image, *expires_in).await?;
        }
        TrashVerb::Ls { pool, look } => show::trash(cluster, pool, look.json).await?,
        TrashVerb::Restore { id, image } => {
            let io = id.plain()?.io(cluster).await?;
            trash::restore(&io, &id.image, image.as_deref()).await?;
        }
        TrashVerb::Rm { id, force } => {
            let io = id.plain()?.io(cluster).await?;
            let mut bar = Progress::new("Removing image", quiet);
            trash::remove(&io, &id.image, *force, &mut |done, all| bar.at(done, all)).await?;
        }
    }
    Ok(())
}
