//! `journal`: sets, clients, tags and when they go.

use denc::Denc;
use types::Errno;

use super::{Mem, Nothing, bytes};
use crate::STALE;
use crate::journal::{Client, Position, SetPosition, Tag};

const CLASS: &str = "journal";

fn journal() -> Mem {
    let mut o = Mem::new();
    o.run(CLASS, "create", &((24u8, 4u8), 5i64)).unwrap();
    o
}

fn position(tag_tid: u64) -> SetPosition {
    SetPosition { positions: vec![Position { object: 1, tag_tid, entry_tid: 1 }] }
}

fn tags(o: &mut Mem, client: &str, class: Option<u64>) -> Vec<u64> {
    let op = ((0u64, 100u64), (bytes(client), class));
    o.ask::<Vec<Tag>>(CLASS, "tag_list", &op).unwrap().iter().map(|t| t.tid).collect()
}

#[test]
fn header() {
    let mut o = journal();
    assert_eq!(o.run(CLASS, "create", &((24u8, 4u8), 5i64)), Err(Errno::EXIST));
    assert_eq!(o.ask::<u8>(CLASS, "get_order", &Nothing), Ok(24));
    assert_eq!(o.ask::<u8>(CLASS, "get_splay_width", &Nothing), Ok(4));
    assert_eq!(o.ask::<i64>(CLASS, "get_pool_id", &Nothing), Ok(5));
    assert_eq!(o.run(CLASS, "set_minimum_set", &1u64), Err(Errno::INVAL));
    o.run(CLASS, "set_active_set", &9u64).unwrap();
    o.run(CLASS, "set_active_set", &9u64).unwrap();
    assert_eq!(o.run(CLASS, "set_active_set", &8u64), Err(STALE));
    o.run(CLASS, "set_minimum_set", &7u64).unwrap();
    assert_eq!(o.run(CLASS, "set_minimum_set", &6u64), Err(STALE));
    assert_eq!(o.run(CLASS, "set_active_set", &6u64), Err(Errno::INVAL));
    assert_eq!(o.ask::<u64>(CLASS, "get_minimum_set", &Nothing), Ok(7));
    assert_eq!(o.ask::<u64>(CLASS, "get_active_set", &Nothing), Ok(9));
    assert_eq!(Mem::new().run(CLASS, "get_order", &Nothing), Err(Errno::NOENT));
    o.refuses_short_input(CLASS, &["create", "set_minimum_set", "client_register", "tag_create"]);
}

#[test]
fn clients() {
    let mut o = journal();
    assert_eq!(
        Mem::new().run(CLASS, "client_register", &(bytes("a"), bytes(""))),
        Err(Errno::NOENT)
    );
    o.run(CLASS, "client_register", &(bytes("a"), bytes("data"))).unwrap();
    let again = o.run(CLASS, "client_register", &(bytes("a"), bytes("data")));
    assert_eq!(again, Err(Errno::EXIST));
    o.run(CLASS, "client_update_data", &(bytes("a"), bytes("new"))).unwrap();
    o.run(CLASS, "client_update_state", &(bytes("a"), 1u8)).unwrap();
    let none = o.run(CLASS, "client_update_data", &(bytes("b"), bytes("new")));
    assert_eq!(none, Err(Errno::NOENT));
    let client: Client = o.ask(CLASS, "get_client", &bytes("a")).unwrap();
    assert_eq!((client.data, client.state), (bytes("new"), 1));
    let wide = SetPosition { positions: vec![Position::default(); 5] };
    assert_eq!(o.run(CLASS, "client_commit", &(bytes("a"), wide)), Err(Errno::INVAL));
    o.run(CLASS, "client_commit", &(bytes("a"), position(3))).unwrap();
    // The next one begins where the one furthest behind is.
    o.run(CLASS, "client_register", &(bytes("b"), bytes(""))).unwrap();
    let clients: Vec<Client> = o.ask(CLASS, "client_list", &(bytes(""), 10u64)).unwrap();
    assert_eq!(clients.len(), 2);
    assert_eq!(clients[1].commit, position(3));
    let clients: Vec<Client> = o.ask(CLASS, "client_list", &(bytes("a"), 10u64)).unwrap();
    assert_eq!(clients.len(), 1);
    o.run(CLASS, "client_unregister", &bytes("a")).unwrap();
    assert_eq!(o.run(CLASS, "client_unregister", &bytes("a")), Err(Errno::NOENT));
}

#[test]
fn tags_expire() {
    let mut o = journal();
    o.run(CLASS, "client_register", &(bytes("a"), bytes(""))).unwrap();
    let tag = |tid: u64, class: u64| ((tid, class), bytes("data"));
    assert_eq!(o.run(CLASS, "tag_create", &tag(1, u64::MAX)), Err(STALE));
    assert_eq!(o.run(CLASS, "tag_create", &tag(0, 0)), Err(Errno::INVAL));
    o.run(CLASS, "tag_create", &tag(0, u64::MAX)).unwrap();
    assert_eq!(o.run(CLASS, "tag_create", &tag(0, u64::MAX)), Err(Errno::EXIST));
    o.run(CLASS, "tag_create", &tag(1, u64::MAX)).unwrap();
    o.run(CLASS, "tag_create", &tag(2, 0)).unwrap();
    o.run(CLASS, "tag_create", &tag(3, 1)).unwrap();
    assert_eq!(o.ask::<u64>(CLASS, "get_next_tag_tid", &Nothing), Ok(4));
    assert_eq!(o.ask::<Tag>(CLASS, "get_tag", &1u64).unwrap().class, 1);
    assert_eq!(o.run(CLASS, "get_tag", &9u64), Err(Errno::NOENT));
    assert_eq!(tags(&mut o, "a", None), [0, 1, 2, 3]);
    assert_eq!(tags(&mut o, "a", Some(1)), [1, 3]);
    o.run(CLASS, "client_commit", &(bytes("a"), position(2))).unwrap();
    // Of class 0 the tag 2 is needed, of class 1 still the tag 1.
    assert_eq!(tags(&mut o, "a", None), [1, 2, 3]);
    o.run(CLASS, "tag_create", &tag(4, 0)).unwrap();
    assert_eq!(o.run(CLASS, "get_tag", &0u64), Err(Errno::NOENT));
    o.run(CLASS, "get_tag", &1u64).unwrap();
}

#[test]
fn appends_are_guarded() {
    let mut o = Mem::new();
    o.run(CLASS, "guard_append", &4u64).unwrap();
    assert!(!o.is_there);
    o.run(CLASS, "append", &(4u64, bytes("ab"))).unwrap();
    o.run(CLASS, "append", &(4u64, bytes("cd"))).unwrap();
    assert_eq!(&o.data[..], b"abcd");
    assert_eq!(o.run(CLASS, "append", &(4u64, bytes("e"))), Err(Errno::OVERFLOW));
    assert_eq!(o.call(CLASS, "guard_append", &4u64.to_bytes()), Err(Errno::OVERFLOW));
}
