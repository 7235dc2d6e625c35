//! What hostile clients do: each scene one thing, as fast as it can.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use messages::{Command, Message, MonCommand, MonSubscribe, OsdOp, Subscription, op, req_flag};
use rados::{Cluster, Config, IoCtx};
use types::{EntityAddr, Epoch, Features, OsdId, Uuid};

use crate::raw::Raw;
use crate::{Result, Setting};

/// One thing that a client does, and what it may cost.
pub struct Scene {
    pub name: &'static str,
    /// The client's caps. `{pool}` is replaced by the pool's name.
    pub mon: &'static str,
    pub osd: &'static str,
    pub mgr: &'static str,
    /// By how much the memory of any one daemon may grow meanwhile, in MiB: what its options
    /// allow clients to hold, and what the daemon's own caches may take.
    pub grows_mib: u32,
}

const fn scene(name: &'static str, mon: &'static str, osd: &'static str, grows_mib: u32) -> Scene {
    Scene { name, mon, osd, mgr: "", grows_mib }
}

/// `osd_memory_target` of the OSDs here (1 GiB), less what an OSD takes that has nothing to do: 42 MiB.
const REQUESTS: u32 = 1024 - 42;

pub const ALL: &[Scene] = &[
    scene("future-maps", "allow r", "", 64),
    scene("future-maps-with-caps", "allow r", "allow rw pool={pool}", REQUESTS),
    scene("large-attributes", "allow r", "allow rw pool={pool}", REQUESTS),
    scene("large-omap", "allow r", "allow rw pool={pool}", REQUESTS),
    scene("many-attributes", "allow r", "allow rw pool={pool}", REQUESTS),
    scene("large-writes", "allow r", "allow rw pool={pool}", REQUESTS),
    scene("unread-answers", "allow r", "allow rw pool={pool}", 256),
    scene("stopped-in-a-message", "allow r", "allow rw pool={pool}", REQUESTS),
    // Each registration is a logged write: the store holds up to 128 MiB of those for its next
    // checkpoint, beside what it caches.
    scene("watches", "allow r", "allow rwx pool={pool}", 256),
    scene("notifies", "allow r", "allow rwx pool={pool}", 256),
    scene("refused-commands", "allow r", "", 128),
    scene("refused-osd-commands", "allow r", "allow r pool={pool}", 128),
    scene("log-texts", "allow rw", "", 128),
    scene("subscriptions", "allow r", "", 128),
    scene("whole-maps", "allow r", "", 128),
    scene("churn", "allow r", "allow r pool={pool}", 64),
    scene("half-open", "allow r", "", 64),
    scene("listings", "allow r", "allow rw pool={pool}", 256),
    scene("listings-of-large", "allow r", "allow rw pool={pool}", REQUESTS),
    scene("snapshots", "allow r", "allow rwx pool={pool}", 256),
    Scene { name: "manager-port", mon: "allow r", osd: "", mgr: "allow *", grows_mib: 128 },
];

/// Plays a scene until its time is over. Returns what was done, for people.
///
/// # Errors
/// When the client cannot begin; that it is refused or shut out later is no error.
pub async fn play(scene: &Scene, setting: Setting) -> Result<String> {
    let end = rt::now().mono_ns + setting.time.as_nanos() as u64;
    let stage = Stage { raw: Raw::connect(&setting).await?, setting, end };
    let done = match scene.name {
        "future-maps" | "future-maps-with-caps" => stage.future_maps().await,
        "large-attributes" => stage.writes(|_| vec![attribute(60 << 20)]).await,
        "large-omap" => stage.writes(|_| vec![omap(16_384, 1_100)]).await,
        "many-attributes" => stage.writes(|n| (0..64).map(|i| small(n, i)).collect()).await,
        "large-writes" => stage.writes(|_| vec![write(64 << 20)]).await,
        "unread-answers" => stage.unread().await,
        "stopped-in-a-message" => stage.stopped().await,
        "watches" => stage.watches().await,
        "notifies" => stage.notifies().await,
        "refused-commands" => stage.mon_commands("auth ls").await,
        "log-texts" => stage.mon_commands("log").await,
        "refused-osd-commands" => stage.osd_commands().await,
        "subscriptions" => stage.subscriptions().await,
        "whole-maps" => stage.whole_maps().await,
        "churn" => stage.churn().await,
        "half-open" => stage.half_open().await,
        "listings" => stage.listings().await,
        "listings-of-large" => stage.listings_of_large().await,
        "snapshots" => stage.snapshots().await,
        "manager-port" => stage.manager().await,
        other => return Err(format!("scene {other} is not written").into()),
    }?;
    let raw = &stage.raw;
    Ok(format!("{done} sent, {} answered, {} broken", raw.answers.get(), raw.closed.get()))
}

fn attribute(len: usize) -> OsdOp {
    let name = b"hostile";
    let mut op = OsdOp::new(op::SETXATTR, [&name[..], &vec![b'x'; len]].concat().into());
    op.put_u32(0, name.len() as u32);
    op.put_u32(4, len as u32);
    op
}

fn small(request: u64, i: u64) -> OsdOp {
    let name = format!("a{request:08}{i:03}");
    let mut op = OsdOp::new(op::SETXATTR, [name.as_bytes(), &[b'y'; 1000]].concat().into());
    op.put_u32(0, name.len() as u32);
    op.put_u32(4, 1000);
    op
}

fn omap(keys: u32, len: usize) -> OsdOp {
    let mut data = keys.to_le_bytes().to_vec();
    for key in 0..keys {
        let name = format!("k{key:09}");
        data.extend((name.len() as u32).to_le_bytes());
        data.extend(name.as_bytes());
        data.extend((len as u32).to_le_bytes());
        data.extend(vec![b'z'; len]);
    }
    OsdOp::new(op::OMAPSETVALS, data.into())
}

fn write(len: usize) -> OsdOp {
    OsdOp::extent(op::WRITEFULL, 0, len as u64, vec![b'w'; len].into())
}

/// What a client may have waiting here before it waits itself: the socket is the bound.
const BACKLOG: usize = 256 << 20;

struct Stage {
    raw: Rc<Raw>,
    setting: Setting,
    end: u64,
}

impl Stage {
    fn is_over(&self) -> bool {
        rt::now().mono_ns >= self.end
    }

    /// Lets the messenger write, and waits while more than [`BACKLOG`] waits here.
    async fn pause(&self) {
        tokio::task::yield_now().await;
        while self.raw.backlog() > BACKLOG && !self.is_over() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn rest(&self) {
        while !self.is_over() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn honest(&self) -> Result<IoCtx> {
        let config = Config::from_conf(&self.setting.conf, &self.setting.entity)?;
        Ok(Cluster::connect(config).await?.pool(&self.setting.pool).await?)
    }

    /// Requests that name a map that will never be.
    async fn future_maps(&self) -> Result<u64> {
        let pool = self.raw.pool(&self.setting.pool)?;
        let mut sent = 0;
        while !self.is_over() {
            let name = format!("future-{sent}");
            let mut request = self.raw.request(pool, &name, req_flag::WRITE, vec![write(1 << 20)]);
            request.epoch = Epoch(1_000_000);
            sent += u64::from(self.raw.submit(&request));
            self.pause().await;
        }
        Ok(sent)
    }

    /// Writes of one kind, to 16 objects.
    async fn writes(&self, ops: impl Fn(u64) -> Vec<OsdOp>) -> Result<u64> {
        let pool = self.raw.pool(&self.setting.pool)?;
        let mut sent = 0;
        while !self.is_over() {
            let name = format!("large-{}", sent % 16);
            let request = self.raw.request(pool, &name, req_flag::WRITE, ops(sent));
            sent += u64::from(self.raw.submit(&request));
            self.pause().await;
        }
        Ok(sent)
    }

    /// Asks for 4 MiB over and over on three connections, and reads none of it.
    async fn unread(&self) -> Result<u64> {
        let io = self.honest().await?;
        io.write_full(b"unread", Bytes::from(vec![1; 4 << 20])).await?;
        let pool = self.raw.pool(&self.setting.pool)?;
        self.raw.reads.set(false);
        let mut sent = 0;
        for connection in 0..3 {
            let read = OsdOp::extent(op::READ, 0, 4 << 20, Bytes::new());
            let request = self.raw.request(pool, "unread", req_flag::READ, vec![read]);
            if connection > 0 {
                for osd in 0..3 {
                    self.raw.dial(OsdId(osd));
                }
            }
            for _ in 0..400 {
                sent += u64::from(self.raw.submit(&request));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        self.rest().await;
        Ok(sent)
    }

    /// Forty connections, each in the middle of a message of 80 MiB when the process stops.
    async fn stopped(&self) -> Result<u64> {
        let pool = self.raw.pool(&self.setting.pool)?;
        let request = self.raw.request(pool, "stopped", req_flag::WRITE, vec![write(80 << 20)]);
        let mut sent = 0;
        for _ in 0..40 {
            for osd in 0..3 {
                self.raw.dial(OsdId(osd));
            }
            sent += u64::from(self.raw.submit(&request));
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        // The thread that would write them sleeps until the scene is over.
        while !self.is_over() {
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(sent)
    }

    async fn watches(&self) -> Result<u64> {
        let io = self.honest().await?;
        io.create(b"watched", false).await?;
        let pool = self.raw.pool(&self.setting.pool)?;
        let mut sent = 0;
        while !self.is_over() {
            let mut watch = OsdOp::new(op::WATCH, Bytes::new());
            watch.put_u64(0, sent + 1);
            watch.raw[16] = 3;
            watch.put_u32(21, 600);
            let request = self.raw.request(pool, "watched", req_flag::WRITE, vec![watch]);
            sent += u64::from(self.raw.submit(&request));
            if sent.is_multiple_of(64) {
                self.pause().await;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        Ok(sent)
    }

    /// Notifies of 1 MiB that nobody acknowledges, waiting for ten minutes each.
    async fn notifies(&self) -> Result<u64> {
        let io = self.honest().await?;
        io.create(b"notified", false).await?;
        let watch = io.watch(b"notified", Duration::from_secs(600)).await?;
        let pool = self.raw.pool(&self.setting.pool)?;
        let mut payload = 1u32.to_le_bytes().to_vec();
        payload.extend(600u32.to_le_bytes());
        payload.extend((1u32 << 20).to_le_bytes());
        payload.extend(vec![b'n'; 1 << 20]);
        let payload = Bytes::from(payload);
        let mut sent = 0;
        while !self.is_over() {
            let mut notify = OsdOp::new(op::NOTIFY, payload.clone());
            notify.put_u64(0, sent + 1);
            let request = self.raw.request(pool, "notified", req_flag::READ, vec![notify]);
            sent += u64::from(self.raw.submit(&request));
            self.pause().await;
        }
        drop(watch);
        Ok(sent)
    }

    /// Commands of 900 KB, whether they are refused or not.
    async fn mon_commands(&self, prefix: &str) -> Result<u64> {
        let text = "y".repeat(900_000);
        let json = match prefix {
            "log" => format!(r#"{{"prefix":"log","level":"info","logtext":["{text}"]}}"#),
            _ => format!(r#"{{"prefix":"{prefix}","x":"{text}"}}"#),
        };
        let mut sent = 0u64;
        while !self.is_over() {
            let command = MonCommand {
                fsid: Uuid::default(),
                cmd: vec![json.clone().into()],
                ..MonCommand::default()
            };
            self.raw.to_mon(command.envelope(Features::PACIFIC_WORD).with_tid(1000 + sent));
            sent += 1;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(sent)
    }

    async fn osd_commands(&self) -> Result<u64> {
        let json = format!(r#"{{"prefix":"config show","x":"{}"}}"#, "y".repeat(900_000));
        let mut sent = 0u64;
        while !self.is_over() {
            let command = Command {
                fsid: Uuid::default(),
                cmd: vec![json.clone().into()],
                ..Command::default()
            };
            self.raw.to_osd(OsdId((sent % 3) as i32), command.envelope(Features::PACIFIC_WORD));
            sent += 1;
            self.pause().await;
        }
        Ok(sent)
    }

    /// Subscriptions to ever other names.
    async fn subscriptions(&self) -> Result<u64> {
        let mut sent = 0u64;
        while !self.is_over() {
            let what: BTreeMap<String, Subscription> = (0..1000)
                .map(|i| (format!("kv:{sent}/{i}/{}", "n".repeat(200)), Subscription::default()))
                .collect();
            let ask = MonSubscribe { what, hostname: "h".repeat(60_000) };
            self.raw.to_mon(ask.envelope(Features::PACIFIC_WORD));
            sent += 1;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(sent)
    }

    /// Asks for the first map again and again: all of them are sent each time.
    async fn whole_maps(&self) -> Result<u64> {
        let mut sent = 0u64;
        while !self.is_over() {
            let what = ["osdmap", "monmap", "mgrmap", "fsmap", "config"].map(|name| {
                (name.to_owned(), Subscription { start: 0, ..Subscription::default() })
            });
            let ask = MonSubscribe { what: what.into(), hostname: String::new() };
            self.raw.to_mon(ask.envelope(Features::PACIFIC_WORD));
            sent += 1;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(sent)
    }

    /// Connections that are opened and given up as soon as they are.
    async fn churn(&self) -> Result<u64> {
        let mut sent = 0u64;
        while !self.is_over() {
            for osd in 0..3 {
                let conn = self.raw.dial(OsdId(osd));
                if sent.is_multiple_of(2) {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                self.raw.messenger.close(conn);
                sent += 1;
            }
        }
        Ok(sent)
    }

    /// 3,000 sockets in a burst, each with the banner and no more.
    async fn half_open(&self) -> Result<u64> {
        let config = Config::from_conf(&self.setting.conf, &self.setting.entity)?;
        let addrs: Vec<SocketAddr> =
            config.mons.iter().filter_map(|a: &EntityAddr| a.sock).collect();
        let mut open = Vec::new();
        for n in 0..3_000 {
            let Ok(socket) = TcpStream::connect(addrs[n % addrs.len()]) else { continue };
            let banner = b"ceph v2\n\x10\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
            std::io::Write::write_all(&mut &socket, banner).ok();
            open.push(socket);
        }
        self.rest().await;
        Ok(open.len() as u64)
    }

    /// Lists a namespace of its own: what other scenes left in the pool is not looked at.
    async fn listings(&self) -> Result<u64> {
        let io = self.honest().await?.namespace("listed");
        let mut made = tokio::task::JoinSet::new();
        for n in 0..2_000 {
            let io = io.clone();
            let name = format!("listed-{n}-{}", "l".repeat(900));
            made.spawn_local(async move { io.create(name.as_bytes(), false).await });
        }
        while let Some(one) = made.join_next().await {
            one??;
        }
        self.list(&io).await
    }

    /// Lists objects with attributes of 60 MiB each: their metadata is read for each listing.
    async fn listings_of_large(&self) -> Result<u64> {
        let io = self.honest().await?.namespace("large");
        let value = vec![b'x'; 60 << 20];
        for n in 0..3 {
            io.set_xattr(format!("listed-{n}").as_bytes(), "hostile", &value).await?;
        }
        self.list(&io).await
    }

    async fn list(&self, io: &IoCtx) -> Result<u64> {
        let mut sent = 0;
        while !self.is_over() {
            io.list().await?;
            sent += 1;
        }
        Ok(sent)
    }

    /// Snapshots of its own, each kept by an object that is written after.
    async fn snapshots(&self) -> Result<u64> {
        let io = self.honest().await?;
        let mut context = rados::SnapContext::default();
        let mut sent = 0;
        while !self.is_over() {
            let snap = io.create_own_snap().await?;
            context.seq = snap;
            context.snaps.insert(0, snap);
            let io = io.with_snaps(context.clone());
            io.write_full(b"snapped", Bytes::from(vec![1; 64 << 10])).await?;
            sent += 1;
        }
        Ok(sent)
    }

    async fn manager(&self) -> Result<u64> {
        let config = Config::from_conf(&self.setting.conf, &self.setting.entity)?;
        let cluster = Cluster::connect(config).await?;
        let mut sent = 0;
        while !self.is_over() {
            for prefix in ["auth get", "config-key dump", "osd tree", "pg dump"] {
                let json = format!(r#"{{"prefix":"{prefix}","entity":"client.admin"}}"#);
                cluster.mon_command(&json, Bytes::from(vec![0; 1 << 20])).await.ok();
                sent += 1;
            }
        }
        Ok(sent)
    }
}
