//! Stock clients against our tickets.
//!
//! `ARGONAUT_PEER_EXEC` is a command that runs the command behind it with upstream's client
//! programs (`sudo chroot /roots/trixie`, or just `env`); it sees the directory named by
//! `ARGONAUT_PEER_DIR` at the same path. `ARGONAUT_PEER_KEYS` lists the kinds of keys that
//! the release knows, `aes` where it is not set. Without them the test says so and passes.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use auth::handshake::con_mode;
use auth::{
    CryptoKey, KeyKind, KeyServer, MonAuth, MonAuthSettings, PeerIdentity, ServerAuth, TicketPolicy,
};
use bytes::BufMut;
use denc::Features;
use env::{Now, Seeded};
use msgr::{Acceptor, ConMode, Connection, Event, Local, Policy};
use types::{EntityAddr, EntityKind, UTime};

#[allow(clippy::disallowed_methods)]
fn now() -> Now {
    let wall_ns =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    Now { mono_ns: wall_ns, wall_ns }
}

struct Door(MonAuth);

impl Acceptor for Door {
    fn auth(&self, _: EntityKind, _: SocketAddr) -> Box<dyn ServerAuth> {
        self.0.connection()
    }
    fn policy(&self, _: EntityKind) -> Policy {
        Policy::stateless_server()
    }
}

/// Takes a connection through its handshake; `None` when it is not completed.
fn welcome(
    mut stream: TcpStream,
    from: SocketAddr,
    local: &Arc<Local>,
    door: &Rc<Door>,
) -> Option<(PeerIdentity, ConMode)> {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut conn = Connection::accept(local.clone(), door.clone(), from);
    for _ in 0..200 {
        while conn.prepare().unwrap() {
            let mut slices = [IoSlice::new(&[]); 16];
            let n = conn.slices(&mut slices);
            let n = stream.write_vectored(&slices[..n]).ok()?;
            conn.advance(n);
        }
        match conn.poll(now()) {
            Ok(Some(Event::Ready { .. })) => {
                let peer = conn.peer();
                return Some((peer.identity.clone(), peer.con_mode));
            }
            Ok(Some(_)) => continue,
            Ok(None) => {}
            Err(fault) => {
                eprintln!("{fault}");
                return None;
            }
        }
        let mut raw = [0; 4096];
        let want = conn.read_buf().remaining_mut().min(raw.len());
        match stream.read(&mut raw[..want]) {
            Ok(0) => return None,
            Ok(n) => conn.read_buf().put_slice(&raw[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(e) => {
                eprintln!("{e}");
                return None;
            }
        }
    }
    None
}

/// Both kinds of keys, in both modes; a client whose connection breaks comes back with its
/// ticket and gets its number again.
#[test]
fn stock_clients() {
    let (Ok(exec), Ok(dir)) =
        (std::env::var("ARGONAUT_PEER_EXEC"), std::env::var("ARGONAUT_PEER_DIR"))
    else {
        eprintln!("skipped: ARGONAUT_PEER_EXEC runs no upstream client");
        return;
    };
    let kinds = std::env::var("ARGONAUT_PEER_KEYS").unwrap_or_else(|_| "aes".to_owned());
    for kind in kinds.split(',') {
        let kind = KeyKind::from_name(kind).expect("aes or aes256k");
        for (modes, mode) in [
            (vec![con_mode::CRC], ConMode::Crc),
            (vec![con_mode::SECURE, con_mode::CRC], ConMode::Secure),
        ] {
            let mut seed = Seeded(now().wall_ns);
            let rng = Arc::new(Mutex::new(seed.clone()));
            let auth = MonAuth::new(MonAuthSettings { modes, ..Default::default() }, rng);
            let key = CryptoKey::generate(kind, UTime::ZERO, &mut seed);
            let mut keys = KeyServer::default();
            let caps = [("mon".to_owned(), "allow *".to_owned())];
            keys.set("client.admin".parse().unwrap(), key.clone(), caps.into());
            let policy = TicketPolicy { service_cipher: kind, ..TicketPolicy::default() };
            let wall = UTime::from_nanos(now().wall_ns);
            let planned = keys.plan_rotation(wall, &policy, &mut seed).unwrap();
            keys.apply_rotation(&planned).unwrap();
            auth.set_keys(keys);
            auth.add_global_ids(4100..5000);

            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let addr = EntityAddr::msgr2(listener.local_addr().unwrap(), 0);
            let local = Arc::new(Local {
                kind: EntityKind::MON,
                num: 0,
                addrs: addr.into(),
                nonce: 0,
                features: Features::TENTACLE_WORD,
            });
            let door = Rc::new(Door(auth));

            let dir = Path::new(&dir).join(format!("argonaut-tickets-{}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            let keyring = dir.join("keyring");
            let text = format!("[client.admin]\n\tkey = {}\n", key.to_base64());
            std::fs::write(&keyring, text).unwrap();
            let mut words = exec.split_whitespace();
            let mut ceph = Command::new(words.next().unwrap())
                .args(words)
                .args(["ceph", "--conf", "/dev/null", "--connect-timeout", "20"])
                .args(["--mon-host", &format!("[{addr}]").replace("/0", "")])
                .args(["--keyring", &keyring.display().to_string(), "-s"])
                .stdin(Stdio::null())
                .spawn()
                .unwrap();
            let mut seen: Vec<PeerIdentity> = Vec::new();
            listener.set_nonblocking(true).unwrap();
            for _ in 0..400 {
                match listener.accept() {
                    Ok((stream, from)) => {
                        // A messenger that comes back without its owner asks for nothing.
                        let got = welcome(stream, from, &local, &door);
                        let Some((peer, got_mode)) = got else { continue };
                        assert_eq!(got_mode, mode);
                        assert_eq!(peer.name.to_string(), "client.admin");
                        seen.push(peer);
                        if seen.len() == 2 {
                            break;
                        }
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(50)),
                }
            }
            ceph.kill().ok();
            ceph.wait().ok();
            let _ = std::fs::remove_dir_all(&dir);
            assert_eq!(seen.len(), 2, "the client came back");
            assert_eq!(seen[0].global_id, seen[1].global_id);
            assert!(seen[1].global_id_proven);
        }
    }
}
