//! What Linux's client sends in another way than upstream's.

use super::*;

/// It names no pool when it makes a file: it leaves zeros where others do.
#[test]
fn files_are_made_without_a_pool() {
    let mut w = World::new();
    let open = |pool| OpenArgs { flags: 0o101, mode: 0o644, pool, ..OpenArgs::default() };
    let create = |pool| request(mds_op::CREATE, 1, "f", &Args::Open(open(pool)));
    let named = w.ask(&create(0)).expect("an answer");
    assert_eq!(named.result, Errno::INVAL.0, "pool 0 is none of the file system's");

    let features = Features(Features::ALL.0 & !Features::CREATEPOOLID.0);
    let linux = Peer { features, ..peer(CLIENT + 1) };
    w.conns += 1;
    let conn = w.conn();
    let hello = ClientSession {
        op: session_op::REQUEST_OPEN,
        detail: Some(Box::default()),
        ..ClientSession::default()
    };
    let hello = hello.envelope(features);
    w.call(|m, now, out| m.on_message(now, conn, &linux, hello, out));
    let stamp = UTime::from_nanos(w.now().wall_ns);
    let make = ClientRequest { stamp, ..create(0) }.envelope(features).with_tid(1);
    w.heard.clear();
    w.call(|m, now, out| m.on_message(now, conn, &linux, make, out));
    w.ticks(4);
    let is_it = |(_, e): &&(ConnId, Envelope)| e.kind == ClientReply::KIND && e.tid == 1;
    let (_, reply) = w.heard.iter().find(is_it).expect("an answer");
    assert_eq!(ClientReply::decode(reply).expect("an answer").result, 0);
}
