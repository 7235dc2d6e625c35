//! Modules of the manager that are clients of the cluster themselves: they run beside the
//! monitor that leads, on a thread of their own, so that their work never holds it up.
//!
//! A module answers commands and keeps what it must remember in the cluster's own objects.

mod tasks;

use bytes::Bytes;
pub use cli::Args;
use tokio::sync::{mpsc, oneshot};

/// What a command is answered with: an errno, negative, or 0; a line for people; output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// 0, or a negative errno.
    pub r: i32,
    /// For people.
    pub rs: String,
    /// For programs.
    pub out: Bytes,
}

impl Answer {
    fn out(text: String) -> Self {
        Self { out: text.into(), ..Self::default() }
    }

    fn err(errno: i32, rs: impl Into<String>) -> Self {
        Self { r: -errno, rs: rs.into(), ..Self::default() }
    }
}

type Ask = (Args, oneshot::Sender<Answer>);

/// The modules at work; they end with it.
#[derive(Clone, Debug)]
pub struct Modules(mpsc::UnboundedSender<Ask>);

impl Modules {
    /// Begins, as a client with this configuration.
    ///
    /// # Errors
    /// When there can be no further thread.
    pub fn start(config: rados::Config) -> std::io::Result<Self> {
        let (ask, asked) = mpsc::unbounded_channel();
        std::thread::Builder::new().name("mgr-modules".into()).spawn(move || {
            if let Err(err) = rt::run_local(run(config, asked)) {
                tracing::error!("the manager's modules: {err}");
            }
        })?;
        Ok(Self(ask))
    }

    /// The answer to a command that a module has.
    pub async fn command(&self, args: Args) -> Answer {
        let gone = || Answer::err(11, "the manager's modules are not running, try again");
        let (answer, answered) = oneshot::channel();
        if self.0.send((args, answer)).is_err() {
            return gone();
        }
        answered.await.unwrap_or_else(|_| gone())
    }
}

/// A cluster that just came up may need a while: this long between two tries, in seconds.
const RETRY_SECS: u64 = 3;

async fn run(config: rados::Config, mut asked: mpsc::UnboundedReceiver<Ask>) {
    let cluster = loop {
        match rados::Cluster::connect(config.clone()).await {
            Ok(cluster) => break cluster,
            Err(err) => tracing::warn!("the manager's modules cannot connect: {err}"),
        }
        if asked.is_closed() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_secs(RETRY_SECS)).await;
    };
    let tasks = tasks::Tasks::start(cluster);
    while let Some((args, answer)) = asked.recv().await {
        let tasks = tasks.clone();
        tokio::task::spawn_local(async move {
            answer.send(tasks.command(&args).await).ok();
        });
    }
}
