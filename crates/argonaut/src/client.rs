//! `argonaut rados`: the common verbs on our own client library, for machines without upstream's
//! packages, and how such clients connect.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Context, Result};
use bytes::Bytes;
use clap::{Args, Subcommand};
use rados::{Cluster, IoCtx, key_in};
use types::EntityName;

/// Bytes per operation of `put` and `get`.
const CHUNK: usize = 4 << 20;
/// Chunks of one `get` or `put` in flight.
const IN_FLIGHT: usize = 4;

/// Who connects, and where.
#[derive(Args, Clone, Debug)]
pub struct Connect {
    /// The cluster's ceph.conf.
    #[arg(short, long, env = "CEPH_CONF", default_value = "/etc/ceph/ceph.conf")]
    pub conf: PathBuf,
    /// Whose key is used.
    #[arg(short, long, default_value = "client.admin")]
    name: String,
    /// The keyring with it; by default the one ceph.conf names.
    #[arg(short, long)]
    keyring: Option<PathBuf>,
    /// Encrypt connections to OSDs too.
    #[arg(long)]
    secure: bool,
}

/// `argonaut rados` verbs.
#[derive(Subcommand, Debug)]
pub enum RadosVerb {
    /// List the pools.
    Lspools,
    /// List the objects of a pool.
    Ls,
    /// Store a file (- is standard input) as an object.
    Put {
        /// The object.
        object: String,
        /// The file.
        file: PathBuf,
    },
    /// Fetch an object into a file (- is standard output).
    Get {
        /// The object.
        object: String,
        /// The file.
        file: PathBuf,
    },
    /// Show an object's size and time.
    Stat {
        /// The object.
        object: String,
    },
    /// Remove objects.
    Rm {
        /// The objects.
        #[arg(required = true)]
        objects: Vec<String>,
    },
    /// Make an empty object; fails when it is there.
    Create {
        /// The object.
        object: String,
    },
    /// Append a file to an object.
    Append {
        /// The object.
        object: String,
        /// The file.
        file: PathBuf,
    },
    /// Cut or extend an object.
    Truncate {
        /// The object.
        object: String,
        /// The new size, in bytes.
        size: u64,
    },
    /// Set an attribute.
    Setxattr {
        /// The object.
        object: String,
        /// The attribute.
        name: String,
        /// Its value.
        value: String,
    },
    /// Print an attribute.
    Getxattr {
        /// The object.
        object: String,
        /// The attribute.
        name: String,
    },
    /// List the attributes.
    Listxattr {
        /// The object.
        object: String,
    },
    /// Set an omap pair.
    Setomapval {
        /// The object.
        object: String,
        /// The key.
        key: String,
        /// Its value.
        value: String,
    },
    /// Print the omap pairs.
    Listomapvals {
        /// The object.
        object: String,
    },
    /// Write objects for some seconds and tell how fast; they are removed afterwards.
    Bench {
        /// How long.
        seconds: u64,
        /// Which load.
        #[arg(default_value = "write", value_parser = ["write"])]
        load: String,
        /// Operations in flight.
        #[arg(short = 't', long, default_value_t = 16)]
        threads: usize,
        /// Bytes per object.
        #[arg(short = 'b', long, default_value = "4M", value_parser = crate::size)]
        bytes: u64,
    },
}

/// A session with the cluster.
///
/// # Errors
/// When the options do not allow it, or no monitor answers.
pub async fn connect(how: &Connect) -> Result<Cluster> {
    Ok(Cluster::connect(how.config()?).await?)
}

impl Connect {
    /// The session's settings.
    ///
    /// # Errors
    /// When files are missing or wrong, or there is no key.
    pub fn config(&self) -> Result<rados::Config> {
        let name: EntityName = self.name.parse().map_err(anyhow::Error::msg)?;
        let mut config = match &self.keyring {
            None => rados::Config::from_conf(&self.conf, &name)?,
            Some(path) => rados::Config {
                key: key_in(path, &name)?,
                ..rados::Config::from_conf(&self.conf, &name)?
            },
        };
        if self.secure {
            config.modes = rados::modes("secure");
        }
        Ok(config)
    }
}

/// `argonaut rados VERB`.
pub fn rados(
    how: &Connect,
    pool: Option<&str>,
    nspace: &str,
    verb: &RadosVerb,
) -> Result<ExitCode> {
    rt::run_local(async {
        let cluster = connect(how).await?;
        if let RadosVerb::Lspools = verb {
            let map = cluster.map();
            for id in map.pools.keys() {
                say!("{}", map.pool_name(*id).unwrap_or("?"));
            }
            return Ok(ExitCode::SUCCESS);
        }
        let pool = pool.context("name a pool: -p POOL")?;
        let io = cluster.pool(pool).await?.namespace(nspace.as_bytes().to_vec());
        run(&io, verb).await?;
        Ok(ExitCode::SUCCESS)
    })?
}

fn printable(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

async fn run(io: &IoCtx, verb: &RadosVerb) -> Result<()> {
    match verb {
        RadosVerb::Lspools => unreachable!("handled by the caller"),
        RadosVerb::Ls => {
            for object in io.list().await? {
                say!("{}", printable(&object.name));
            }
        }
        RadosVerb::Put { object, file } => put(io, object, file).await?,
        RadosVerb::Get { object, file } => get(io, object, file).await?,
        RadosVerb::Stat { object } => {
            let stat = io.stat(object.as_bytes()).await?;
            say!("{object} mtime {}, size {}", stat.mtime, stat.size);
        }
        RadosVerb::Rm { objects } => {
            for object in objects {
                io.remove(object.as_bytes()).await?;
            }
        }
        RadosVerb::Create { object } => io.create(object.as_bytes(), true).await?,
        RadosVerb::Append { object, file } => {
            let mut data = Vec::new();
            open(file)?.read_to_end(&mut data)?;
            io.append(object.as_bytes(), data.into()).await?;
        }
        RadosVerb::Truncate { object, size } => io.truncate(object.as_bytes(), *size).await?,
        RadosVerb::Setxattr { object, name, value } => {
            io.set_xattr(object.as_bytes(), name, value.as_bytes()).await?;
        }
        RadosVerb::Getxattr { object, name } => {
            say!("{}", printable(&io.get_xattr(object.as_bytes(), name).await?));
        }
        RadosVerb::Listxattr { object } => {
            for name in io.get_xattrs(object.as_bytes()).await?.keys() {
                say!("{}", printable(name));
            }
        }
        RadosVerb::Setomapval { object, key, value } => {
            let pair =
                (Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(value.as_bytes()));
            io.set_omap(object.as_bytes(), [pair].into()).await?;
        }
        RadosVerb::Listomapvals { object } => {
            let mut after = Vec::new();
            loop {
                let (pairs, more) = io.get_omap(object.as_bytes(), &after, 1000).await?;
                for (key, value) in &pairs {
                    say!("{} {}", printable(key), printable(value));
                }
                match pairs.keys().next_back() {
                    Some(last) if more => after = last.to_vec(),
                    _ => break,
                }
            }
        }
        RadosVerb::Bench { seconds, threads, bytes, .. } => {
            bench(io, *seconds, *threads, *bytes).await?
        }
    }
    Ok(())
}

/// A file to read; `-` is standard input.
pub fn open(path: &Path) -> Result<Box<dyn Read>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(std::io::stdin()));
    }
    Ok(Box::new(std::fs::File::open(path).with_context(|| path.display().to_string())?))
}

/// The first chunk replaces the object; the others follow, some in flight at once.
async fn put(io: &IoCtx, object: &str, file: &Path) -> Result<()> {
    let mut input = open(file)?;
    let (mut off, mut waiting) = (0u64, std::collections::VecDeque::new());
    loop {
        let mut chunk = Vec::with_capacity(CHUNK);
        input.by_ref().take(CHUNK as u64).read_to_end(&mut chunk)?;
        let len = chunk.len();
        if off == 0 {
            io.write_full(object.as_bytes(), chunk.into()).await?;
        } else if len > 0 {
            let (io, object) = (io.clone(), object.to_owned());
            let write = async move { io.write(object.as_bytes(), off, chunk.into()).await };
            waiting.push_back(tokio::task::spawn_local(write));
        }
        if waiting.len() >= IN_FLIGHT
            && let Some(oldest) = waiting.pop_front()
        {
            oldest.await??;
        }
        off += len as u64;
        if len < CHUNK {
            break;
        }
    }
    for write in waiting {
        write.await??;
    }
    Ok(())
}

async fn get(io: &IoCtx, object: &str, file: &Path) -> Result<()> {
    let size = io.stat(object.as_bytes()).await?.size;
    let mut output: Box<dyn Write> = if file.as_os_str() == "-" {
        Box::new(crate::say::out())
    } else {
        Box::new(crate::target::output(file)?)
    };
    let (mut off, mut waiting) = (0u64, std::collections::VecDeque::new());
    while off < size || !waiting.is_empty() {
        while off < size && waiting.len() < IN_FLIGHT {
            let (io, object, at) = (io.clone(), object.to_owned(), off);
            waiting.push_back(tokio::task::spawn_local(async move {
                io.read(object.as_bytes(), at, CHUNK as u64).await
            }));
            off += CHUNK as u64;
        }
        if let Some(oldest) = waiting.pop_front() {
            output.write_all(&oldest.await??)?;
        }
    }
    output.flush()?;
    Ok(())
}

async fn bench(io: &IoCtx, seconds: u64, threads: usize, bytes: u64) -> Result<()> {
    let data = Bytes::from(vec![0xa5; usize::try_from(bytes)?]);
    let start = rt::now();
    let end_ms = start.mono_ms() + seconds * 1000;
    let prefix = format!("argonaut-bench-{}", std::process::id());
    let done = Rc::new(std::cell::RefCell::new((Vec::<u64>::new(), Vec::<String>::new())));
    let mut tasks = Vec::new();
    for thread in 0..threads.max(1) {
        let (io, data, done, prefix) = (io.clone(), data.clone(), done.clone(), prefix.clone());
        tasks.push(tokio::task::spawn_local(async move {
            for n in 0.. {
                let before = rt::now();
                if before.mono_ms() >= end_ms {
                    break;
                }
                let name = format!("{prefix}-{thread}-{n}");
                io.write_full(name.as_bytes(), data.clone()).await?;
                let mut done = done.borrow_mut();
                done.0.push(rt::now().mono_ns - before.mono_ns);
                done.1.push(name);
            }
            Ok::<_, rados::Error>(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    let took = (rt::now().mono_ns - start.mono_ns) as f64 / 1e9;
    let (mut latencies, names) = done.take();
    latencies.sort_unstable();
    let at = |part: f64| {
        latencies.get((latencies.len() as f64 * part) as usize).map_or(0.0, |ns| *ns as f64 / 1e6)
    };
    let count = latencies.len() as f64;
    say!("operations   {count}");
    say!("per second   {:.0}", count / took);
    say!("MiB/s        {:.1}", count * bytes as f64 / took / f64::from(1 << 20));
    say!("latency ms   p50 {:.2}  p99 {:.2}  max {:.2}", at(0.5), at(0.99), at(1.0 - 1e-9));
    for name in names {
        io.remove(name.as_bytes()).await?;
    }
    Ok(())
}
