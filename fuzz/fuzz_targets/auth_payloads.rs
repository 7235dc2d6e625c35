//! cephx: every payload decoder, and the three machines that a stranger's bytes reach: a
//! monitor's and a service's side of a handshake, and ticket requests by message.
#![no_main]
use std::sync::{Arc, LazyLock, Mutex, RwLock};

use auth::{
    CryptoKey, KeyKind, KeyServer, MonAuth, MonAuthSettings, PeerIdentity, RotatingKeys,
    ServerAuth, ServiceAuth, ServiceAuthSettings, SharedRotatingKeys, proto,
};
use denc::{Denc, Reader};
use env::{Now, Seeded};
use types::{EntityAddr, EntityKind, UTime};

fn one<T: Denc>(data: &[u8]) {
    if let Ok(value) = T::from_bytes(data) {
        let _ = value.to_bytes();
    }
}

fn decode(data: &[u8]) {
    const KINDS: &[fn(&[u8])] = &[
        one::<proto::ServerChallenge>,
        one::<proto::TicketBlob>,
        one::<proto::TicketInfo>,
        one::<proto::ServiceTicket>,
        one::<proto::ServiceTicketRequest>,
        one::<proto::AuthorizeChallenge>,
        one::<proto::ExpiringKey>,
        one::<proto::RotatingSecrets>,
        one::<proto::CapsInfo>,
        one::<proto::AuthTicket>,
        one::<proto::Authenticate>,
        one::<proto::Authorize>,
        one::<proto::AuthorizeReply>,
        one::<proto::AuthorizerHead>,
        one::<proto::ResponseHeader>,
        one::<CryptoKey>,
        one::<auth::EntityAuth>,
        one::<KeyServer>,
        one::<auth::Keyring>,
    ];
    if let Some((which, data)) = data.split_first() {
        KINDS[usize::from(*which) % KINDS.len()](data);
    }
}

const NOW: Now = Now { mono_ns: 1_000_000_000, wall_ns: 1_700_000_001_000_000_000 };

/// A monitor that knows one client, and a service's rotating keys.
static CLUSTER: LazyLock<(MonAuth, SharedRotatingKeys)> = LazyLock::new(|| {
    let mut seed = Seeded(9);
    let key = CryptoKey::generate(KeyKind::AES, UTime::ZERO, &mut seed);
    let settings = MonAuthSettings { mon_key: Some(key.clone()), ..Default::default() };
    let mut keys = KeyServer::default();
    keys.set("client.admin".parse().expect("a name"), key, Default::default());
    let now = UTime::from_nanos(NOW.wall_ns);
    let planned = keys.plan_rotation(now, &settings.policy, &mut seed).expect("there are none");
    keys.apply_rotation(&planned).expect("just made");
    let secrets = keys.rotating(EntityKind::OSD).expect("just made").clone();
    let mon = MonAuth::new(settings, Arc::new(Mutex::new(Seeded(1))));
    mon.set_keys(keys);
    mon.add_global_ids(4100..u64::MAX);
    (mon, Arc::new(RwLock::new(RotatingKeys::from(secrets))))
});

/// An AUTH_REQUEST and AUTH_REQUEST_MOREs, cut out of the bytes: u16 length each.
fn shake(server: &mut dyn ServerAuth, data: &[u8]) {
    let addr = EntityAddr::default();
    let mut r = Reader::new(data);
    let Ok(head) = r.u8() else { return };
    let method = u32::from(head & 3);
    let modes = [u32::from(head >> 2 & 3), u32::from(head >> 4 & 3)];
    let mut next = |first: bool, server: &mut dyn ServerAuth| {
        let len = r.u16().ok().map(usize::from).filter(|n| *n <= r.left());
        let payload = len.and_then(|n| r.take("payload", n).ok()).unwrap_or_default();
        if first {
            let _ = server.request(NOW, EntityKind::CLIENT, &addr, method, &modes, payload);
        } else {
            let _ = server.more(NOW, payload);
        }
    };
    next(true, server);
    for _ in 0..3 {
        next(false, server);
    }
    let _ = server.refusal();
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((which, data)) = data.split_first() else { return };
    let (mon, rotating) = &*CLUSTER;
    match which % 4 {
        0 => decode(data),
        1 => shake(&mut *mon.connection(), data),
        2 => {
            let settings = ServiceAuthSettings::cephx(EntityKind::OSD);
            let random = Arc::new(Mutex::new(Seeded(3)));
            shake(&mut ServiceAuth::new(settings, rotating.clone(), random), data);
        }
        _ => {
            let name = "client.admin".parse().expect("a name");
            let peer = PeerIdentity { name, global_id: 4100, ..PeerIdentity::default() };
            let _ = mon.on_mauth(NOW, &peer, data);
        }
    }
});
