//! A legitimate but limited client of a file system that costs as much as it can, and an honest one
//! beside it. `cargo xtask hostile files` runs them against a cluster and watches its daemons.
//!
//! ```text
//! hostile_files list                              scenes: name, MiB by which a daemon may grow
//! hostile_files play SCENE CONF ENTITY DIR SECS   one scene, below a directory
//! hostile_files make CONF ENTITY DIR              makes a directory
//! hostile_files honest CONF ENTITY DIR SECS       "ENDED_S MICROSECONDS" per operation
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program of tests")]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use fs::{File, Fs, Options};
use fsc::{Ask, open_flag, path_of};
use messages::fs::{Args, FileLock, mds_op};
use rados::Config;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// `mds_cache_memory_limit` of the servers here, in MiB.
const CACHE: u32 = 192;
/// What waits of one client, its answers, and what its requests have written to the journal.
const REQUESTS: u32 = 160;

/// Scenes, and by how much one daemon may grow meanwhile.
const ALL: &[(&str, u32)] = &[
    ("creates", CACHE + REQUESTS),
    ("open-files", CACHE + REQUESTS),
    ("attributes", CACHE + REQUESTS),
    ("locks", REQUESTS),
    ("waiting-locks", REQUESTS),
    ("listings", CACHE + REQUESTS),
    ("missing-names", CACHE + REQUESTS),
    ("snapshots", CACHE + REQUESTS),
    ("renames", CACHE + REQUESTS),
    ("removals", CACHE + REQUESTS),
    ("mounts", REQUESTS),
];

/// Things that one client does at once.
const IN_FLIGHT: usize = 64;
/// Requests that wait for one lock.
const WAITING: u64 = 20_000;

struct Stage {
    conf: std::path::PathBuf,
    entity: types::EntityName,
    dir: String,
    end: u64,
    done: Cell<u64>,
    refused: Cell<u64>,
}

impl Stage {
    fn of(words: &[String]) -> Result<Rc<Self>> {
        let [conf, entity, dir, secs] = words else {
            return Err("wanted: CONF ENTITY DIR SECS".into());
        };
        let time = Duration::from_secs(secs.parse()?);
        Ok(Rc::new(Self {
            conf: conf.into(),
            entity: entity.parse()?,
            dir: dir.clone(),
            end: rt::now().mono_ns + time.as_nanos() as u64,
            done: Cell::new(0),
            refused: Cell::new(0),
        }))
    }

    fn is_over(&self) -> bool {
        rt::now().mono_ns >= self.end
    }

    async fn mount(&self) -> Result<Fs> {
        let config = Config::from_conf(&self.conf, &self.entity)?;
        Ok(Fs::mount(config, Options { root: self.dir.clone(), ..Options::default() }).await?)
    }

    /// Counts an end: a server may refuse.
    fn note<T>(&self, done: fs::Result<T>) -> Option<T> {
        let count = if done.is_ok() { &self.done } else { &self.refused };
        count.set(count.get() + 1);
        done.ok()
    }

    /// A new file that is open.
    async fn create(&self, fs: &Fs, path: &str) -> Option<File> {
        self.note(create(fs, path).await)
    }

    async fn make(&self, fs: &Fs, path: &str) {
        if let Some(file) = self.create(fs, path).await {
            file.close().await.ok();
        }
    }

    async fn lock(&self, fs: &Fs, at: &Locked, start: u64, wait: bool) {
        let lock = FileLock { start, length: 1, owner: 1 << 63 | 1, pid: 1, kind: 2, client: 0 };
        let args = Args::FileLock { rule: 1, wait, lock };
        let ask = Ask::new(mds_op::SETFILELOCK, path_of(at.0, b""), args);
        self.note(fs.ask("locked", ask).await);
    }
}

/// The file with locks.
struct Locked(types::Ino);

async fn create(fs: &Fs, path: &str) -> fs::Result<File> {
    fs.open(path, open_flag::CREAT | open_flag::RDWR, 0o644).await
}

/// A name as long as names may be.
fn long(n: u64) -> String {
    format!("{n:0>255}")
}

/// What all of a scene's workers share.
struct Shared {
    fs: Fs,
    locked: Locked,
    open: RefCell<Vec<File>>,
    next: Cell<u64>,
}

/// One thing that a scene does, the `n`th time.
async fn act(scene: &str, stage: &Stage, shared: &Shared, n: u64) -> Result<()> {
    let fs = &shared.fs;
    match scene {
        "creates" => stage.make(fs, &long(n)).await,
        "open-files" => {
            // Never closed, so each has caps.
            let file = stage.create(fs, &long(n)).await;
            shared.open.borrow_mut().extend(file);
        }
        "attributes" => {
            let path = format!("a{n}");
            stage.make(fs, &path).await;
            stage.note(fs.set_xattr(&path, "user.x", &[b'x'; 60 << 10], None).await);
        }
        "locks" | "waiting-locks" => stage.lock(fs, &shared.locked, 2 * n + 2, false).await,
        "listings" => {
            stage.note(fs.read_dir("/").await);
        }
        "missing-names" => {
            stage.note(fs.lstat(long(n)).await);
        }
        "snapshots" => {
            let dir = format!("s{n}");
            stage.note(fs.mkdir(&dir, 0o755).await);
            stage.note(fs.mkdir(format!("{dir}/.snap/one"), 0o755).await);
            stage.note(fs.mkdir(format!(".snap/n{n}"), 0o755).await);
        }
        "renames" => {
            let (a, b) = (format!("a{}", n % 64), format!("b{}", n % 64));
            stage.note(fs.mkdir(&a, 0o755).await);
            stage.note(fs.rename(&a, &b).await);
            stage.note(fs.rename(format!("b{}", n % 7), format!("b{}/x", n % 5)).await);
            stage.note(fs.rmdir(&b).await);
        }
        "removals" => {
            let name = long(n);
            if let Some(file) = stage.create(fs, &name).await {
                stage.note(file.write(0, &[b'x'; 4096]).await);
                // Removed while it is open.
                stage.note(fs.unlink(&name).await);
                file.close().await.ok();
            }
        }
        "mounts" => {
            // Left without a word: its server finds out.
            match stage.mount().await {
                Ok(_) => stage.done.set(stage.done.get() + 1),
                Err(_) => stage.refused.set(stage.refused.get() + 1),
            }
        }
        other => return Err(format!("scene {other} is not written").into()),
    }
    Ok(())
}

async fn play(scene: String, mut stage: Rc<Stage>) -> Result<String> {
    // Each scene has a directory of its own, so that it lists what it made.
    let whole = stage.mount().await?;
    whole.mkdir(&scene, 0o755).await?;
    whole.unmount().await?;
    if let Some(stage) = Rc::get_mut(&mut stage) {
        stage.dir += &format!("/{scene}");
    }
    let fs = stage.mount().await?;
    let locked = Locked(create(&fs, "locked").await?.ino());
    let shared = Rc::new(Shared { fs, locked, open: RefCell::default(), next: Cell::new(0) });
    let other = stage.mount().await?;
    match scene.as_str() {
        "listings" => {
            for n in 0..2000 {
                stage.make(&other, &long(n)).await;
            }
        }
        "waiting-locks" => {
            // All wait for that byte, and its holder makes changes beside it.
            stage.lock(&shared.fs, &shared.locked, 0, false).await;
            for _ in 0..WAITING {
                let (stage, shared, other) = (stage.clone(), shared.clone(), other.clone());
                tokio::task::spawn_local(async move {
                    stage.lock(&other, &shared.locked, 0, true).await;
                });
            }
        }
        _ => {}
    }
    let mut workers = Vec::new();
    for _ in 0..IN_FLIGHT {
        let (scene, stage, shared) = (scene.clone(), stage.clone(), shared.clone());
        workers.push(tokio::task::spawn_local(async move {
            while !stage.is_over() {
                let n = shared.next.replace(shared.next.get() + 1);
                if let Err(err) = act(&scene, &stage, &shared, n).await {
                    return Err(err.to_string());
                }
            }
            Ok(())
        }));
    }
    for worker in workers {
        worker.await??;
    }
    // The scenes after this one do not wait for its caps.
    shared.fs.unmount().await.ok();
    other.unmount().await.ok();
    Ok(format!("{} done, {} refused", stage.done.get(), stage.refused.get()))
}

/// Makes, writes, reads, looks at and removes files, and measures each.
async fn honest(stage: Rc<Stage>) -> Result<()> {
    let fs = stage.mount().await?;
    let mut lines = String::new();
    let mut note = |began: u64| {
        let now = rt::now();
        lines += &format!("{:.3} {}\n", now.wall_ns as f64 / 1e9, (now.mono_ns - began) / 1000);
        now.mono_ns
    };
    let mut n = 0u32;
    while !stage.is_over() {
        n += 1;
        let (name, data) = (format!("h{}", n % 64), vec![n as u8; 4096]);
        let at = rt::now().mono_ns;
        let file = create(&fs, &name).await?;
        let at = note(at);
        file.write(0, &data).await?;
        file.fsync().await?;
        let at = note(at);
        assert!(file.read(0, 4096).await? == data, "what was written is read");
        file.close().await?;
        let at = note(at);
        assert_eq!(fs.stat(&name).await?.size.size, 4096);
        let at = note(at);
        fs.unlink(&name).await?;
        note(at);
    }
    fs.unmount().await?;
    print!("{lines}");
    Ok(())
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("list") => {
            for (name, grows) in ALL {
                println!("{name}\t{grows}");
            }
            Ok(())
        }
        Some("play") if words.len() == 6 => {
            let stage = Stage::of(&words[2..])?;
            println!("{}", rt::run_local(play(words[1].clone(), stage))??);
            Ok(())
        }
        Some("make") if words.len() == 4 => {
            let config = Config::from_conf(std::path::Path::new(&words[1]), &words[2].parse()?)?;
            let dir = words[3].clone();
            Ok(rt::run_local(async move {
                let fs = Fs::mount(config, Options::default()).await?;
                fs.mkdir(&dir, 0o777).await?;
                fs.unmount().await
            })??)
        }
        Some("honest") => rt::run_local(honest(Stage::of(&words[1..])?))?,
        _ => Err("wanted: list, make, play or honest".into()),
    }
}
