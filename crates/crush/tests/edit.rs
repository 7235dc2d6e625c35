//! Editing a hierarchy as operators do.

use crush::{CrushMap, ErrorKind, Location, Spread, fixed_weight, parse_location};

fn at(words: &str) -> Location {
    parse_location(&words.split(' ').collect::<Vec<_>>()).unwrap()
}

fn weight(map: &CrushMap, name: &str) -> u32 {
    map.bucket(map.names().id(name).unwrap()).unwrap().weight()
}

/// OSDs report in, hosts are made, moved and taken out; each bucket weighs what is in it.
#[test]
fn a_cluster_grows() {
    let mut map = CrushMap::build_initial(1);
    let one = fixed_weight(1.0).unwrap();
    for osd in 0..6 {
        let loc = at(&format!("host=h{} root=default", osd / 2));
        let name = format!("osd.{osd}");
        assert!(map.create_or_move_item(osd, one, &name, &loc, true).unwrap());
        assert!(!map.create_or_move_item(osd, one, &name, &loc, true).unwrap());
    }
    assert_eq!(weight(&map, "default"), 6 * one);
    assert_eq!(map.full_location(3), at("host=h1 root=default"));
    assert_eq!(map.do_rule(0, 1, 3, &[0x10000; 6], Some(1)).len(), 3);

    map.add_named_bucket("r1", "rack").unwrap();
    let r1 = map.names().id("r1").unwrap();
    map.move_bucket(r1, &at("root=default")).unwrap();
    let h0 = map.names().id("h0").unwrap();
    map.move_bucket(h0, &at("rack=r1")).unwrap();
    assert_eq!(weight(&map, "r1"), 2 * one);
    assert_eq!(weight(&map, "default"), 6 * one);
    assert_eq!(
        map.full_location_ordered(0).unwrap(),
        [("host", "h0"), ("rack", "r1"), ("root", "default")]
    );
    assert_eq!(map.clone().move_bucket(r1, &at("host=h0")).unwrap_err().errno(), 40);

    map.adjust_item_weight(0, 3 * one, true).unwrap();
    assert_eq!(weight(&map, "default"), 8 * one);
    map.adjust_subtree_weight(r1, one / 2, true).unwrap();
    assert_eq!(weight(&map, "r1"), one);

    assert_eq!(map.remove_item(h0, false).unwrap_err().kind, ErrorKind::NotEmpty);
    map.remove_item(0, false).unwrap();
    map.remove_item(1, false).unwrap();
    map.remove_item(h0, false).unwrap();
    assert_eq!(map.remove_item(h0, false).unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(weight(&map, "default"), 4 * one);
    let root = map.names().id("default").unwrap();
    assert!(map.remove_item(root, false).is_err());
}

/// Shadow trees follow devices' classes; their ids stay, and so do rules that take them.
#[test]
fn classes_have_shadows() {
    let mut map = CrushMap::build_initial(1);
    for osd in 0..4 {
        let loc = at(&format!("host=h{} root=default", osd / 2));
        map.insert_item(osd, 0x10000, &format!("osd.{osd}"), &loc, true).unwrap();
        let class = if osd % 2 == 0 { "ssd" } else { "hdd" };
        assert!(map.update_device_class(osd, class).unwrap());
    }
    assert_eq!(map.update_device_class(0, "hdd").unwrap_err().kind, ErrorKind::Busy);
    let shadow = map.names().id("default~ssd").unwrap();
    assert_eq!(map.leaves(shadow).into_iter().collect::<Vec<_>>(), [0, 2]);
    let rule = map.add_replicated_rule("fast", "default", "host", "ssd").unwrap();
    let mut up = map.do_rule(rule, 5, 3, &[0x10000; 4], None);
    up.sort_unstable();
    assert_eq!(up, [0, 2]);
    assert_eq!(map.remove_class("ssd").unwrap_err().kind, ErrorKind::Busy);

    map.remove_device_class(2).unwrap();
    assert_eq!(map.names().id("default~ssd"), Some(shadow));
    assert_eq!(map.do_rule(rule, 5, 3, &[0x10000; 4], None), [0]);
    map.rename_class("ssd", "nvme").unwrap();
    assert_eq!(map.names().id("default~nvme"), Some(shadow));
    map.remove_rule(rule).unwrap();
    map.remove_class("nvme").unwrap();
    assert_eq!(map.names().id("default~nvme"), None);

    let spread = Spread { root: "default", failure_domain: "host", failure_domains: 2, class: "" };
    let rule = map.add_erasure_rule("wide", spread, 2).unwrap();
    let up = map.do_rule(rule, 9, 4, &[0x10000; 4], None);
    assert_eq!(up.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
    map.rename_rule("wide", "wider").unwrap();
    assert_eq!(map.rule_names().id("wider"), Some(rule as i32));
}

/// Weight sets follow the items.
#[test]
fn weight_sets_add_up() {
    let mut map = CrushMap::build_initial(1);
    assert!(map.create_choose_args(-1, 1));
    for osd in 0..4 {
        let loc = at(&format!("host=h{} root=default", osd / 2));
        map.insert_item(osd, 0x10000, &format!("osd.{osd}"), &loc, true).unwrap();
    }
    map.choose_args_adjust_item_weight(-1, 0, &[0x8000]).unwrap();
    let set = &map.choose_args()[&-1];
    assert_eq!(set.get(-1).unwrap().weight_set(), [[0x18000, 0x20000]]);
    map.remove_item(1, false).unwrap();
    let set = &map.choose_args()[&-1];
    assert_eq!(set.get(-1).unwrap().weight_set(), [[0x8000, 0x20000]]);
}
