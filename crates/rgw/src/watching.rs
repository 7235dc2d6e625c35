//! Watches of the objects by which gateways and radosgw-admin tell of changes: only while all hold, metadata is kept.

use std::rc::Rc;
use std::time::Duration;

use rados::WatchEvent;
use rgw_core::cache::NOTIFY_OBJECTS;
use rgw_core::objects::{Objects, Place, PoolUse, Step, Vector};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::server::Server;

/// Between two looks at a watch, and before one that was lost is tried anew.
const LOOK: Duration = Duration::from_secs(1);
/// How long a watch may be unconfirmed: half of the OSD's patience (`osd_client_watch_timeout`, 30 s).
const UNCONFIRMED_MAX: Duration = Duration::from_secs(15);

/// Begins to watch; each task ends its watch when the gateway stops, so that nobody waits for its answers then.
pub fn start(server: &Rc<Server>, stop: &watch::Receiver<bool>) -> Vec<JoinHandle<()>> {
    let begin = |n| {
        let (server, mut stop) = (server.clone(), stop.clone());
        tokio::task::spawn_local(async move {
            loop {
                if let Err(error) = hold(&server, n, &mut stop).await {
                    tracing::warn!("notify.{n} is not watched, nothing is cached: {error}");
                }
                server.gateway.cache.lost(n);
                tokio::select! {
                    () = tokio::time::sleep(LOOK) => {}
                    _ = stop.wait_for(|stop| *stop) => return,
                }
            }
        })
    };
    (0..NOTIFY_OBJECTS).map(begin).collect()
}

/// Watches until the watch is lost, or the gateway stops.
async fn hold(server: &Server, n: u32, stop: &mut watch::Receiver<bool>) -> Result<(), String> {
    let gateway = &server.gateway;
    let at = Place::new(&gateway.zone.control, format!("notify.{n}"));
    let what = |errno: types::Errno| format!("errno {}", -errno.0);
    if gateway.objects.pool_id(&at.pool).is_none() {
        gateway.objects.make_pool(&at.pool, PoolUse::Meta).await.map_err(what)?;
    }
    let make = Vector::write().step(Step::Create(false));
    gateway.objects.operate(&at, make).await.map_err(what)?;
    let io = gateway.objects.io(&at).await.map_err(what)?;
    let object = at.name.as_bytes();
    let mut watch = io.watch(object, Duration::ZERO).await.map_err(|e| e.to_string())?;
    loop {
        if watch.unconfirmed_for() > UNCONFIRMED_MAX {
            gateway.cache.lost(n);
        } else {
            gateway.cache.hears(n, gateway.objects.now());
        }
        let event = tokio::select! {
            event = watch.next() => event,
            () = tokio::time::sleep(LOOK) => continue,
            _ = stop.wait_for(|stop| *stop) => {
                return watch.unwatch().await.map_err(|e| e.to_string());
            }
        };
        match event {
            Some(WatchEvent::Notify(said)) => {
                let (root, now) = (&gateway.zone.domain_root, gateway.objects.now());
                if let Err(error) = gateway.cache.told(&said.payload, root, now) {
                    tracing::warn!(
                        "a change that client.{} tells of cannot be read: {error}",
                        said.notifier
                    );
                }
                // Only now the teller goes on.
                if let Err(error) = said.ack(&io, object, bytes::Bytes::new()).await {
                    tracing::debug!("notify.{n}: {error}");
                }
            }
            Some(WatchEvent::Lost(error)) => return Err(error.to_string()),
            _ => return Err("its OSD gave it up".into()),
        }
    }
}
