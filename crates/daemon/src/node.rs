//! A daemon that is a client of its own cluster: how its link to the monitors and the connections that
//! others make reach it, the monitors' settings, and how it begins anew.

use std::cell::{OnceCell, RefCell};
use std::os::unix::process::CommandExt;
use std::rc::{Rc, Weak};
use std::time::Duration;

use auth::SharedRotatingKeys;
use conf::Config;
use messages::{ConfigMsg, Envelope, Message};
use rados::{Cluster, LinkConfig, News};
use rt::{Messenger, NetEvent};

/// A daemon begins anew after this time, not at once: what is wrong with it may last.
const RESPAWN_PAUSE: Duration = Duration::from_millis(500);

/// A daemon that hears of the cluster and of its peers.
pub trait Node: 'static {
    /// Where [`join`] puts its cluster, before the first event.
    fn cluster_cell(&self) -> &OnceCell<Cluster>;
    /// The monitors opened a session or said something, or there is a newer map of OSDs.
    fn on_news(self: &Rc<Self>, news: News);
    /// An event of a connection that was made to this daemon.
    fn on_event(self: &Rc<Self>, event: NetEvent);
}

/// Has a daemon be a client of its cluster over its own messenger, and hear what others send. It
/// connects with [`Cluster::start`].
pub fn join<N: Node>(
    node: &Rc<N>,
    messenger: &Messenger,
    link: LinkConfig,
    keys: SharedRotatingKeys,
) {
    let to: Weak<N> = Rc::downgrade(node);
    let listener = move |news| {
        if let Some(node) = to.upgrade() {
            node.on_news(news);
        }
    };
    let cluster = Cluster::join(messenger.clone(), link, keys, listener);
    node.cluster_cell().set(cluster.clone()).ok();
    let to: Weak<N> = Rc::downgrade(node);
    messenger.set_handler(move |event| {
        let Some(node) = to.upgrade() else { return };
        if let Some(event) = cluster.on_event(event) {
            node.on_event(event);
        }
    });
}

/// Takes new values from the monitors' database; `false` when the message cannot be read. Options of
/// the manager's modules are not looked for among a daemon's.
pub fn take_settings(config: &RefCell<Config>, env: &Envelope) -> bool {
    let Ok(message) = ConfigMsg::decode(env) else { return false };
    let before: Vec<&str> = config.borrow().without_effect().collect();
    let mut unknown = config.borrow_mut().set_mon_layer(message.config);
    unknown.retain(|name| !name.starts_with("mgr/"));
    if !unknown.is_empty() {
        tracing::info!("unknown settings: {}", unknown.join(", "));
    }
    let now: Vec<&str> = config.borrow().without_effect().collect();
    let new: Vec<&str> = now.into_iter().filter(|name| !before.contains(name)).collect();
    if !new.is_empty() {
        tracing::info!("settings without effect here: {}", new.join(", "));
    }
    true
}

/// Begins anew in this process's place, with the same arguments and nothing that it knew. Returns at
/// once; the caller does nothing more meanwhile.
pub fn respawn(why: &str) {
    tracing::warn!("begins anew: {why}");
    tokio::task::spawn_local(async move {
        tokio::time::sleep(RESPAWN_PAUSE).await;
        let mut args = std::env::args_os();
        let name = args.next().unwrap_or_default();
        // The file that this process was started from, also where another has its name now.
        let mut again = std::process::Command::new("/proc/self/exe");
        let err = again.arg0(name).args(args).exec();
        tracing::error!("cannot begin anew: {err}");
        std::process::exit(1);
    });
}
