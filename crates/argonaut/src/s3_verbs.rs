//! `argonaut s3`: users, keys and buckets of the object gateway, for people without radosgw-admin. What is written is
//! what radosgw-admin would write: both may be used on the same users.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use rados::Cluster;
use rgw::OnRados;
use rgw_core::formats::{AccessKey, Owner, UserId, UserInfo};
use rgw_core::gateway::Gateway;
use rgw_core::users::NewUser;
use serde_json::json;

use crate::client::{Connect, connect};

/// What is to be done.
#[derive(Subcommand)]
pub enum Verb {
    /// Make, list and remove users.
    User {
        #[command(subcommand)]
        verb: UserVerb,
    },
    /// Access keys of users.
    Key {
        #[command(subcommand)]
        verb: KeyVerb,
    },
    /// List buckets and what they hold.
    Bucket {
        #[command(subcommand)]
        verb: BucketVerb,
    },
}

/// Of users.
#[derive(Subcommand)]
pub enum UserVerb {
    /// Make a user with one key, and print both.
    Create {
        /// The user's id: ID, or TENANT$ID.
        uid: String,
        /// For people [default: the id].
        #[arg(long)]
        display_name: Option<String>,
        /// Email address.
        #[arg(long, default_value = "")]
        email: String,
        /// The access key; else one is made up.
        #[arg(long)]
        access_key: Option<String>,
        /// The secret; else one is made up. On a command line others of this machine may see it.
        #[arg(long)]
        secret_key: Option<String>,
    },
    /// Print the ids of all users.
    List,
    /// Print a user, with keys.
    Info {
        /// The user's id.
        uid: String,
    },
    /// Remove a user who has no buckets.
    Rm {
        /// The user's id.
        uid: String,
    },
}

/// Of keys.
#[derive(Subcommand)]
pub enum KeyVerb {
    /// Give a user one more key, and print it.
    Create {
        /// The user's id.
        uid: String,
    },
    /// Take a key from a user.
    Rm {
        /// The user's id.
        uid: String,
        /// The access key.
        access_key: String,
    },
}

/// Of buckets.
#[derive(Subcommand)]
pub enum BucketVerb {
    /// Print the buckets of a user, or of all, with what they hold.
    List {
        /// Only this user's.
        #[arg(long)]
        uid: Option<String>,
    },
}

/// Does it.
///
/// # Errors
/// What the cluster refuses, in words.
pub fn run(how: &Connect, verb: Verb) -> Result<ExitCode> {
    rt::run_local(async move {
        let cluster = connect(how).await?;
        let gateway = open(cluster.clone()).await?;
        match verb {
            Verb::User { verb } => user(&cluster, &gateway, verb).await?,
            Verb::Key { verb } => key(&gateway, verb).await?,
            Verb::Bucket { verb: BucketVerb::List { uid } } => {
                let uids = match uid {
                    Some(uid) => BTreeSet::from([uid]),
                    None => uids(&cluster, &gateway).await?,
                };
                for uid in uids {
                    buckets(&gateway, &uid).await?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    })?
}

/// The gateway of the cluster's zone, which is made where there is none.
///
/// # Errors
/// Of RADOS.
pub async fn open(cluster: Cluster) -> Result<Gateway<OnRados>> {
    let objects = OnRados::new(cluster);
    rgw_core::realm::make_default(&objects).await.context("making the zone")?;
    Ok(Gateway::open(objects, "").await?)
}

/// Reads `[TENANT$]ID`.
fn user_id(text: &str) -> UserId {
    let (tenant, id) = text.split_once('$').unwrap_or(("", text));
    UserId { tenant: tenant.into(), id: id.into(), ns: String::new() }
}

fn print(user: &UserInfo) {
    let key = |key: &AccessKey| json!({"user": user.id.text(), "access_key": key.id, "secret_key": key.key, "active": key.is_active});
    let keys: Vec<_> = user.keys.s3.values().map(key).collect();
    let user = json!({
        "user_id": user.id.text(),
        "display_name": user.display_name,
        "email": user.email,
        "suspended": u8::from(user.limits.is_suspended),
        "max_buckets": user.limits.buckets_max,
        "keys": keys,
    });
    say!("{}", serde_json::to_string_pretty(&user).expect("it is a tree of text"));
}

async fn user(cluster: &Cluster, gateway: &Gateway<OnRados>, verb: UserVerb) -> Result<()> {
    match verb {
        UserVerb::Create { uid, display_name, email, access_key, secret_key } => {
            let id = user_id(&uid);
            let display_name = display_name.unwrap_or_else(|| id.id.clone());
            let new = NewUser { id, display_name, email, key: (access_key, secret_key) };
            print(&gateway.make_user(new).await?);
        }
        UserVerb::List => {
            for uid in uids(cluster, gateway).await? {
                say!("{uid}");
            }
        }
        UserVerb::Info { uid } => match gateway.user(&uid).await? {
            Some(user) => print(&user),
            None => bail!("no user {uid}: `argonaut s3 user list` prints those that are there"),
        },
        UserVerb::Rm { uid } => gateway.remove_user(&uid).await?,
    }
    Ok(())
}

async fn key(gateway: &Gateway<OnRados>, verb: KeyVerb) -> Result<()> {
    match verb {
        KeyVerb::Create { uid } => {
            let key = gateway.add_key(&uid, None, None).await?;
            let key = json!({"user": uid, "access_key": key.id, "secret_key": key.key});
            say!("{}", serde_json::to_string_pretty(&key).expect("it is a tree of text"));
        }
        KeyVerb::Rm { uid, access_key } => gateway.remove_key(&uid, &access_key).await?,
    }
    Ok(())
}

/// Ids of all users, in order.
async fn uids(cluster: &Cluster, gateway: &Gateway<OnRados>) -> Result<BTreeSet<String>> {
    let pool = &gateway.zone.users.uid;
    let io = cluster.pool(&pool.name).await?.namespace(pool.ns.clone().into_bytes());
    let names = io.list().await?.into_iter();
    let names = names.filter_map(|found| String::from_utf8(found.name.to_vec()).ok());
    Ok(names.filter(|name| !name.ends_with(".buckets")).collect())
}

async fn buckets(gateway: &Gateway<OnRados>, uid: &str) -> Result<()> {
    let id = user_id(uid);
    for (name, _) in gateway.buckets_of(&Owner::User(id.clone())).await? {
        let bucket = gateway.bucket(&id.tenant, &name).await?;
        let usage = gateway.usage(&bucket).await?;
        say!("{name}  {uid}  {} objects  {} bytes", usage.objects, usage.bytes);
    }
    Ok(())
}
