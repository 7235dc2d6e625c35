//! What a gateway does by itself: deleting tails, applying lifecycle rules.

use rgw_proto::body::lifecycle::parse;

use super::memory::{Memory, now};
use super::*;
use crate::formats::Lifecycle;
use crate::formats::{AclPolicy, UserId, UserInfo};
use crate::gc::QUEUES;
use crate::lifecycle::{Clock, LISTS, Passed};
use crate::meta::Attrs;

async fn collect(gateway: &Gateway<Memory>) -> u64 {
    let mut count = 0;
    for n in 0..QUEUES {
        count += gateway.collect_queue(n).await.unwrap();
    }
    count
}

/// A tail outlives its head by the time that readers need, then goes; one with two owners goes with the second.
#[test]
fn tails_go_when_their_time_has_come() {
    for with_queues in [false, true] {
        now(async {
            let memory = Memory::new();
            let gateway = gateway(memory.clone());
            if with_queues {
                gateway.make_queues().await.unwrap();
                gateway.make_queues().await.unwrap();
            }
            let bucket = made(&gateway).await.unwrap();
            put(&gateway, &bucket, "k", &data(9 * MIB, 1)).await.unwrap();
            let from = gateway.object(&bucket, "k", None, true).await.unwrap().unwrap();
            let key = RawKey { name: "copy".into(), ..RawKey::default() };
            let mtime = crate::objects::Objects::now(&gateway.objects);
            gateway
                .copy(&bucket, &from, &bucket, key, attrs("e"), mtime, "default-placement")
                .await
                .unwrap();
            // Upstream gives a reference up by the attribute's bytes, with the NUL at their end.
            let copied = gateway.object(&bucket, "copy", None, true).await.unwrap().unwrap();
            let tag = copied.attrs["tail_tag"].clone();
            assert_eq!(tag.last(), Some(&0));
            for at in gateway.tail_places(&bucket, copied.manifest.as_ref().unwrap()) {
                memory.change("data", &at.name, |tail| {
                    let refs = &tail.attrs[&b"refcount"[..]];
                    assert!(refs.windows(tag.len()).any(|some| some == tag), "{refs:?}");
                });
            }
            remove(&gateway, &bucket, "k").await.unwrap();
            assert_eq!(collect(&gateway).await, 0, "it is not time yet");
            // A stored target has its name twice; upstream goes by the second.
            let queued = memory.stored("log").concat();
            let name = b"_shadow_.";
            let times = queued.windows(name.len()).filter(|w| w == name).count();
            assert!(times >= 2 * 2, "two tails, each named twice: {times}");
            memory.pass(3 * 3_600);
            assert_eq!(collect(&gateway).await, 1);
            let copy = get(&gateway, &bucket, "copy", None).await.unwrap();
            assert_eq!(copy, Some(data(9 * MIB, 1)), "the copy owns the tail too");
            remove(&gateway, &bucket, "copy").await.unwrap();
            memory.pass(3 * 3_600);
            assert_eq!(collect(&gateway).await, 1);
            assert_eq!(memory.names("data"), [""; 0]);
            assert_eq!(collect(&gateway).await, 0);
        });
    }
}

async fn set_rules(gateway: &Gateway<Memory>, bucket: &BucketAt, rule: &str) -> BucketAt {
    let xml = format!(
        "<LifecycleConfiguration><Rule><ID>r</ID><Status>Enabled</Status>{rule}</Rule></LifecycleConfiguration>"
    );
    let bytes = Lifecycle(parse(xml.as_bytes()).unwrap()).to_bytes();
    let set = |now: &mut BucketAt| {
        now.attrs.insert("lc".into(), bytes.clone());
        Ok(())
    };
    gateway.change_bucket(&bucket.info.bucket, set).await.unwrap();
    gateway.note_lifecycle(bucket).await.unwrap();
    gateway.bucket("", "bkt").await.unwrap()
}

async fn pass(gateway: &Gateway<Memory>) -> Passed {
    let mut out = Passed::default();
    for n in 0..LISTS {
        let one = gateway.lifecycle_pass(n, Clock { day_s: 86_400 }).await.unwrap();
        out.removed += one.removed;
        out.moved += one.moved;
        out.aborted += one.aborted;
        out.failed += one.failed;
    }
    out
}

#[test]
fn objects_expire_by_prefix_and_age() {
    now(async {
        let memory = Memory::new();
        let gateway = gateway(memory.clone());
        let bucket = made(&gateway).await.unwrap();
        for name in ["old/a", "old/b", "other"] {
            put(&gateway, &bucket, name, b"x").await.unwrap();
        }
        let rule = "<Prefix>old/</Prefix><Expiration><Days>2</Days></Expiration>";
        let bucket = set_rules(&gateway, &bucket, rule).await;
        assert_eq!(pass(&gateway).await, Passed::default(), "none is old");
        memory.pass(86_400);
        assert_eq!(pass(&gateway).await, Passed::default(), "none is two days old");
        put(&gateway, &bucket, "old/b", b"new").await.unwrap();
        memory.pass(2 * 86_400);
        assert_eq!(pass(&gateway).await, Passed { removed: 1, ..Passed::default() });
        assert_eq!(listed(&gateway, &bucket).await.unwrap(), ["old/b", "other"]);
        assert_eq!(pass(&gateway).await, Passed::default(), "once a day");
        gateway.forget_lifecycle(&bucket).await.unwrap();
        memory.pass(10 * 86_400);
        assert_eq!(pass(&gateway).await, Passed::default());
    });
}

#[test]
fn noncurrent_versions_and_lone_markers_go() {
    now(async {
        let memory = Memory::new();
        let gateway = gateway(memory.clone());
        let bucket = versioned(&gateway).await.unwrap();
        for n in 0..4u8 {
            put(&gateway, &bucket, "k", &[n]).await.unwrap();
            memory.pass(10);
        }
        let owner = Some(("main".to_owned(), String::new()));
        put(&gateway, &bucket, "gone", b"x").await.unwrap();
        gateway.link_version(&bucket, "gone", &gateway.new_version(), owner).await.unwrap();
        let rule = "<Prefix/><NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays>\
            <NewerNoncurrentVersions>1</NewerNoncurrentVersions></NoncurrentVersionExpiration>\
            <Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>";
        let bucket = set_rules(&gateway, &bucket, rule).await;
        memory.pass(2 * 86_400);
        // Of k one noncurrent version stays, beside the current one; gone keeps its one version, too.
        assert_eq!(pass(&gateway).await.removed, 2);
        let rule = rule.replace("<NewerNoncurrentVersions>1</NewerNoncurrentVersions>", "");
        let bucket = set_rules(&gateway, &bucket, &rule).await;
        memory.pass(86_400);
        assert_eq!(pass(&gateway).await.removed, 2);
        memory.pass(86_400);
        assert_eq!(pass(&gateway).await.removed, 1, "the marker is alone now");
        assert_eq!(listed(&gateway, &bucket).await.unwrap(), ["k"]);
        let query = Query { max: 10, versions: true, ..Query::default() };
        assert_eq!(gateway.list(&bucket, &query).await.unwrap().entries.len(), 1);
    });
}

#[test]
fn uploads_are_aborted_and_objects_moved() {
    now(async {
        let memory = Memory::new();
        let gateway = gateway(memory.clone());
        let bucket = made(&gateway).await.unwrap();
        upload(&gateway, &bucket, &[b"part"]).await.unwrap();
        put(&gateway, &bucket, "k", &data(5 * MIB, 3)).await.unwrap();
        let rule = "<Prefix/><AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation>\
            </AbortIncompleteMultipartUpload><Transition><Days>1</Days><StorageClass>COLD</StorageClass></Transition>";
        let bucket = set_rules(&gateway, &bucket, rule).await;
        memory.pass(3 * 86_400);
        assert_eq!(pass(&gateway).await, Passed { moved: 1, aborted: 1, ..Passed::default() });
        assert_eq!(memory.names("cold").len(), 2, "all of its data: {:?}", memory.names("cold"));
        assert_eq!(get(&gateway, &bucket, "k", None).await.unwrap(), Some(data(5 * MIB, 3)));
        memory.pass(86_400);
        assert_eq!(pass(&gateway).await, Passed::default(), "it is there already");
    });
}

/// A zone is there after a first start, and after one that another died in the middle of.
#[test]
fn zones_are_made_whole() {
    for n in 1.. {
        let memory = Memory::new();
        let died = now(async {
            let doomed = memory.another();
            doomed.dies_before(n);
            let _ = crate::realm::make_default(&doomed).await;
            let next = memory.another();
            crate::realm::make_default(&next).await.unwrap();
            let gateway = Gateway::open(next, "").await.unwrap();
            assert_eq!(gateway.group.zones.len(), 1);
            assert_eq!(gateway.group.zones[0], gateway.zone.id);
            doomed.is_dead()
        });
        if !died {
            break;
        }
    }
}

#[test]
fn users_and_keys() {
    use crate::users::NewUser;
    use rgw_proto::Code;
    now(async {
        let gateway = gateway(Memory::new());
        let new = NewUser { id: user(), email: "A@b".into(), ..NewUser::default() };
        let made = gateway.make_user(new.clone()).await.unwrap();
        let first = made.keys.s3.keys().next().unwrap().clone();
        assert_eq!(gateway.user_by_key(&first).await.unwrap().0, made);
        assert_eq!(gateway.make_user(new.clone()).await.unwrap_err().code, Code::UserAlreadyExists);
        let id = UserId { id: "other".into(), ..UserId::default() };
        let other = NewUser { id, ..new };
        assert_eq!(gateway.make_user(other).await.unwrap_err().code, Code::EmailExists);
        let new = NewUser { id: user(), ..NewUser::default() };
        assert_eq!(gateway.make_user(new).await.unwrap_err().code, Code::UserAlreadyExists);
        let key = gateway.add_key("main", Some("KEY".into()), None).await.unwrap();
        assert_eq!(gateway.user_by_key("KEY").await.unwrap().0.keys.s3["KEY"], key);
        let again = gateway.add_key("main", Some("KEY".into()), None).await;
        assert_eq!(again.unwrap_err().code, Code::KeyExists);
        let change = |user: &mut UserInfo, _: &mut Attrs| {
            user.email = "c@d".into();
            user.keys.s3.get_mut("KEY").unwrap().is_active = false;
            Ok(())
        };
        gateway.alter_user("main", change).await.unwrap();
        let id = UserId { id: "other".into(), ..UserId::default() };
        let freed = NewUser { id, email: "a@B".into(), ..NewUser::default() };
        gateway.make_user(freed).await.unwrap();
        let taken = |user: &mut UserInfo, _: &mut Attrs| {
            user.email = "A@b".into();
            Ok(())
        };
        assert_eq!(gateway.alter_user("main", taken).await.unwrap_err().code, Code::EmailExists);
        gateway.remove_key("main", "KEY").await.unwrap();
        assert_eq!(gateway.user_by_key("KEY").await.unwrap_err().code, Code::InvalidAccessKeyId);
        super::made(&gateway).await.unwrap();
        assert_eq!(gateway.remove_user("main").await.unwrap_err().code, Code::BucketNotEmpty);
        let bucket = gateway.bucket("", "bkt").await.unwrap();
        gateway.remove_bucket(&bucket).await.unwrap();
        gateway.remove_user("main").await.unwrap();
        assert!(gateway.user("main").await.unwrap().is_none());
        assert_eq!(gateway.user_by_key(&first).await.unwrap_err().code, Code::InvalidAccessKeyId);
    });
}

/// An account, its users by name, and what leads to it.
#[test]
fn accounts_and_their_users() {
    use crate::accounts::Kind;
    use crate::formats::AccountInfo;
    use rgw_proto::Code;
    now(async {
        let gateway = gateway(Memory::new());
        let id = "RGW00000000000000001";
        let new = |name: &str, id: &str| AccountInfo {
            id: id.into(),
            name: name.into(),
            email: format!("{name}@x"),
            ..gateway.new_account()
        };
        let made = gateway.make_account(new("shop", id)).await.unwrap();
        assert_eq!(gateway.account_by_name("", "shop").await.unwrap().as_deref(), Some(id));
        for (account, want) in [
            (new("shop", "RGW00000000000000002"), Code::AccountAlreadyExists),
            (new("other", id), Code::AccountAlreadyExists),
            (new("other", "7"), Code::InvalidArgument),
        ] {
            assert_eq!(gateway.make_account(account).await.unwrap_err().code, want);
        }
        let one = |uid: &str, name: &str| {
            let mut user = UserInfo { display_name: name.into(), ..gateway.new_user() };
            (user.id.id, user.account_id) = (uid.into(), id.into());
            user
        };
        gateway.add_user(one("u1", "Ann")).await.unwrap();
        let taken = gateway.add_user(one("u2", "ANN")).await;
        assert_eq!(taken.unwrap_err().code, Code::EntityAlreadyExists);
        assert!(gateway.user("u2").await.unwrap().is_none());
        assert_eq!(gateway.member(id, Kind::Users, "ann").await.unwrap().unwrap().id, "u1");
        let rename = |user: &mut UserInfo, _: &mut Attrs| {
            user.display_name = "Bea".into();
            Ok(())
        };
        gateway.alter_user("u1", rename).await.unwrap();
        let names = gateway.members(id, Kind::Users, "", "", 10).await.unwrap().0;
        assert_eq!(names.iter().map(|m| m.name.as_str()).collect::<Vec<_>>(), ["Bea"]);
        assert_eq!(gateway.remove_account(id).await.unwrap_err().code, Code::BucketNotEmpty);
        gateway.remove_user("u1").await.unwrap();
        let change = |account: &mut AccountInfo| {
            account.name = "store".into();
            account.users_roles_groups_max[0] = -1;
            Ok(())
        };
        let changed = gateway.alter_account(id, change).await.unwrap();
        assert_eq!(changed.email, made.email);
        assert_eq!(gateway.account_by_name("", "shop").await.unwrap(), None);
        let refused = gateway.add_user(one("u3", "Cem")).await;
        assert_eq!(refused.unwrap_err().code, Code::LimitExceeded);
        gateway.remove_account(id).await.unwrap();
        assert_eq!(gateway.account_by_name("", "store").await.unwrap(), None);
        assert_eq!(gateway.remove_account(id).await.unwrap_err().code, Code::NoSuchKey);
    });
}

/// A bucket that is given away is its new owner's, in lists, in its own record and in its list of access.
#[test]
fn buckets_are_given_away() {
    use crate::formats::Owner;
    now(async {
        let gateway = gateway(Memory::new());
        let bucket = super::made(&gateway).await.unwrap();
        let other = Owner::User(UserId { id: "other".into(), ..UserId::default() });
        gateway.give_bucket(&bucket, &other, "Other").await.unwrap();
        let main = Owner::User(user());
        assert!(gateway.buckets_of(&main).await.unwrap().is_empty());
        assert_eq!(gateway.buckets_of(&other).await.unwrap().len(), 1);
        let now = gateway.bucket("", "bkt").await.unwrap();
        assert_eq!(now.info.owner, other);
        let acl = AclPolicy::decode(&mut types::Reader::shared(&now.attrs["acl"])).unwrap();
        assert_eq!((acl.owner.id.as_str(), acl.list.users["other"]), ("other", 15));
        assert!(!acl.list.users.contains_key("main"));
        gateway.unlink_bucket(&now, &other).await.unwrap();
        assert!(gateway.buckets_of(&other).await.unwrap().is_empty());
        assert!(!gateway.entry_point("", "bkt").await.unwrap().0.is_linked);
    });
}

/// A role, by name in its account or tenant, with tags that changes keep.
#[test]
fn roles_are_found_by_name() {
    use crate::formats::Role;
    use crate::roles::Realm;
    use rgw_proto::Code;
    now(async {
        let gateway = gateway(Memory::new());
        let id = "RGW00000000000000001";
        let account = crate::formats::AccountInfo { id: id.into(), ..gateway.new_account() };
        gateway.make_account(account).await.unwrap();
        let tags = [("k".to_owned(), "v".to_owned())];
        for account in ["", id] {
            let realm = Realm { account, tenant: "" };
            let role = Role {
                name: "Reader".into(),
                path: "/app/".into(),
                account_id: account.into(),
                ..Role::default()
            };
            let made = gateway.make_role(role.clone(), &tags, 1).await.unwrap();
            let again = gateway.make_role(role, &[], 1).await;
            assert_eq!(again.unwrap_err().code, Code::EntityAlreadyExists);
            assert_eq!(gateway.role_by_name(realm, "Reader").await.unwrap(), Some(made.clone()));
            let other = gateway.role_by_name(realm, "READER").await.unwrap();
            assert_eq!(other.is_some(), !account.is_empty(), "accounts do not tell cases apart");
            let change = |role: &mut Role, _: &mut Vec<(String, String)>| {
                role.policies.insert("P".into(), "{}".into());
                Ok(())
            };
            gateway.alter_role(&made.id, change).await.unwrap();
            assert_eq!(gateway.role_tags(&made.id).await.unwrap(), tags);
            let listed = |path| gateway.roles(realm, path, "", 10);
            assert_eq!(listed("/app/").await.unwrap().0.len(), 1);
            assert!(listed("/none/").await.unwrap().0.is_empty());
            let now = gateway.role(&made.id).await.unwrap().unwrap();
            assert_eq!(gateway.remove_role(&now).await.unwrap_err().code, Code::DeleteConflict);
            let change = |role: &mut Role, _: &mut Vec<(String, String)>| {
                role.policies.clear();
                Ok(())
            };
            let now = gateway.alter_role(&made.id, change).await.unwrap();
            gateway.remove_role(&now).await.unwrap();
            assert_eq!(gateway.role_by_name(realm, "Reader").await.unwrap(), None);
            assert!(listed("").await.unwrap().0.is_empty());
        }
        let two = |name: &str| Role {
            name: name.into(),
            account_id: id.into(),
            path: "/".into(),
            ..Role::default()
        };
        gateway.make_role(two("a"), &[], 1).await.unwrap();
        assert_eq!(
            gateway.make_role(two("b"), &[], 1).await.unwrap_err().code,
            Code::LimitExceeded
        );
        let realm = Realm { account: id, tenant: "" };
        assert_eq!(gateway.role_by_name(realm, "b").await.unwrap(), None);
    });
}

/// An object goes when its own time has come, and only then; a later time, another object of the name, and a lock hold.
#[test]
fn objects_end() {
    use crate::expiry::{DELETE_AT, HINTS, encode};
    now(async {
        let memory = Memory::new();
        let gateway = gateway(memory.clone());
        let bucket = made(&gateway).await.unwrap();
        let begin = i64::from(gateway.now().sec);
        let pass = async || {
            let mut count = 0;
            for n in 0..HINTS {
                count += gateway.end_objects(n).await.unwrap();
            }
            count
        };
        let end = async |name: &str, at: i64, more: Option<&str>| {
            let key = RawKey { name: name.into(), ..RawKey::default() };
            gateway.note_end(&bucket, &key, at).await.unwrap();
            let object = gateway.object(&bucket, name, None, false).await.unwrap().unwrap();
            let mut set: Attrs = [(DELETE_AT.to_owned(), encode(at))].into();
            set.extend(more.map(|name| (name.to_owned(), Bytes::from_static(b"x"))));
            gateway.change_attrs(&bucket, &object, set, &[]).await.unwrap();
        };
        for name in ["ends", "later", "again", "locked", "stays"] {
            put(&gateway, &bucket, name, b"x").await.unwrap();
        }
        end("ends", begin + 100, None).await;
        end("later", begin + 100, None).await;
        end("later", begin + 1_000, None).await;
        end("again", begin + 100, None).await;
        put(&gateway, &bucket, "again", b"new").await.unwrap();
        end("locked", begin + 100, Some("object-retention")).await;
        assert_eq!(pass().await, 0, "it is not time yet");
        memory.pass(200);
        assert_eq!(pass().await, 1);
        let left = async |name: &str| get(&gateway, &bucket, name, None).await.unwrap().is_some();
        assert!(!left("ends").await, "its time has come");
        for name in ["later", "again", "locked", "stays"] {
            assert!(left(name).await, "{name}");
        }
        assert_eq!(pass().await, 0, "hints that were followed are gone");
        memory.pass(1_000);
        assert_eq!(pass().await, 1);
        assert!(!left("later").await);
        let held = gateway.usage(&bucket).await.unwrap();
        assert_eq!(held.objects, 3, "the index knows");
    });
}
