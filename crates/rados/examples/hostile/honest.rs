//! The honest client: small writes and reads, four in flight, each measured.

use bytes::Bytes;
use rados::{Cluster, Config};

use crate::{Result, Setting};

const IN_FLIGHT: usize = 4;
const OBJECT_BYTES: usize = 4096;

/// Writes an object and reads it, in turn, until the time is over.
///
/// # Errors
/// Any error that an operation ends with: no hostile neighbour may cause one.
pub async fn run(setting: Setting) -> Result<()> {
    let config = Config::from_conf(&setting.conf, &setting.entity)?;
    let io = Cluster::connect(config).await?.pool(&setting.pool).await?;
    let end = rt::now().mono_ns + setting.time.as_nanos() as u64;
    let mut workers = Vec::new();
    for worker in 0..IN_FLIGHT {
        let io = io.clone();
        workers.push(tokio::task::spawn_local(async move {
            let mut measured = Vec::new();
            let mut n = 0u32;
            while rt::now().mono_ns < end {
                n += 1;
                let name = format!("honest-{worker}-{}", n % 64);
                let data = Bytes::from(vec![n as u8; OBJECT_BYTES]);
                let begin = rt::now().mono_ns;
                io.write_full(name.as_bytes(), data.clone()).await?;
                let written = rt::now();
                measured.push((written.wall_ns, written.mono_ns - begin));
                let got = io.read(name.as_bytes(), 0, OBJECT_BYTES as u64).await?;
                assert!(got == data, "what was written is read");
                let read = rt::now();
                measured.push((read.wall_ns, read.mono_ns - written.mono_ns));
            }
            Ok::<_, rados::Error>(measured)
        }));
    }
    let mut lines = String::new();
    for worker in workers {
        for (wall_ns, took_ns) in worker.await?? {
            lines += &format!("{:.3} {}\n", wall_ns as f64 / 1e9, took_ns / 1000);
        }
    }
    print!("{lines}");
    Ok(())
}
