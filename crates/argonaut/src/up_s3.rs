//! The object gateway of a cluster that `argonaut up` makes, and its user `demo`.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use conf::key;
use daemon::{asok, read_conf, write_durably, write_secret};
use rgw_core::formats::UserId;
use rgw_core::users::NewUser;
use serde_json::json;
use types::EntityName;

use crate::layout::Layout;
use crate::{s3_verbs, supervise};

/// The gateway's name in the layout; to the cluster it is `client.rgw.a`.
pub const NAME: &str = "rgw.a";
/// Where the search for a free port begins: stock's default port.
const PORT: u16 = 7480;
/// How many ports are looked at.
const PORTS: u16 = 100;
/// The user that is made.
const DEMO: &str = "demo";
/// How long monitors and the gateway may take.
const START_MAX: Duration = Duration::from_secs(30);
/// How long a monitor may take to answer one command.
const ASOK_WAIT: Duration = Duration::from_secs(5);
/// The caps of a gateway's key, as stock's documentation gives them.
const CAPS: [&str; 6] = ["mon", "allow rw", "osd", "allow rwx", "mgr", "allow rw"];

/// Makes the gateway where there is none, waits until it serves, and makes the user `demo`.
///
/// # Errors
/// When no monitor answers, no port is free, or the gateway does not start.
pub fn make(layout: &Layout, addr: Option<Ipv4Addr>) -> Result<()> {
    let ready = layout.data(NAME).join("ready");
    if !ready.exists() {
        let data = layout.data(NAME);
        fs::create_dir_all(&data).with_context(|| data.display().to_string())?;
        write_secret(&data.join("keyring"), &keyring(layout)?)?;
        if read_conf(&layout.conf())?.section("client.rgw.a").next().is_none() {
            add_section(layout, addr)?;
        }
        // The zone is there before the gateway looks for it.
        demo(layout)?;
        write_durably(&ready, b"")?;
    }
    let at = endpoint(layout)?;
    // Somebody else may listen there, and the gateway end each time that it is started: it says its
    // pid once it listens.
    let serves = || layout.running(NAME).is_some() && TcpStream::connect(&at).is_ok();
    if !supervise::within(START_MAX, serves) {
        bail!("the gateway does not serve at {at}: why stands in its log: argonaut logs {NAME}");
    }
    Ok(())
}

/// Says how the gateway is used, where there is one.
///
/// # Errors
/// When the cluster cannot be asked for the user.
pub fn tell(layout: &Layout) -> Result<()> {
    if !layout.data(NAME).join("ready").exists() {
        return Ok(());
    }
    let (access, secret) = demo(layout)?;
    let at = endpoint(layout)?;
    say!("S3 at http://{at}, user {DEMO}:");
    say!("  export AWS_ACCESS_KEY_ID={access} AWS_SECRET_ACCESS_KEY={secret} AWS_REGION=default");
    say!("  aws --endpoint-url http://{at} s3 mb s3://test");
    say!(
        "  s3cmd --no-ssl --host={at} --host-bucket={at} --access_key={access} --secret_key={secret} ls"
    );
    Ok(())
}

/// Access key and secret of the user `demo`, who is made where there is none.
fn demo(layout: &Layout) -> Result<(String, String)> {
    let conf = layout.conf();
    rt::run_local(async move {
        let name = "client.admin".parse::<EntityName>().map_err(anyhow::Error::msg)?;
        let cluster = rados::Cluster::connect(rados::Config::from_conf(&conf, &name)?).await?;
        let gateway = s3_verbs::open(cluster).await?;
        let user = match gateway.user(DEMO).await? {
            Some(user) => user,
            None => {
                let id = UserId { id: DEMO.into(), ..UserId::default() };
                let display_name = "A user to try things with".into();
                gateway.make_user(NewUser { id, display_name, ..NewUser::default() }).await?
            }
        };
        let key = user.keys.s3.into_values().find(|key| key.is_active);
        let key = key.with_context(|| {
            format!("the user {DEMO} has no key: argonaut s3 key create {DEMO}")
        })?;
        Ok((key.id, key.key))
    })?
}

/// A key for the gateway, made by the monitors.
fn keyring(layout: &Layout) -> Result<String> {
    let command =
        json!({"prefix": "auth get-or-create", "entity": format!("client.{NAME}"), "caps": CAPS});
    let mut last = None;
    supervise::within(START_MAX, || {
        let mons = layout.daemons().unwrap_or_default().into_iter();
        for mon in mons.filter(|name| name.starts_with("mon.")) {
            match asok::ask(&layout.asok(&mon), &command.to_string(), ASOK_WAIT) {
                Ok(text) if text.contains("key = ") => last = Some(text),
                _ => {}
            }
        }
        last.is_some()
    });
    last.context("no monitor makes a key for the gateway; why stands in its log: argonaut logs")
}

fn add_section(layout: &Layout, addr: Option<Ipv4Addr>) -> Result<()> {
    let addr = addr.unwrap_or(Ipv4Addr::LOCALHOST);
    let mut ports = PORT..PORT + PORTS;
    let port = ports.find(|port| TcpListener::bind((addr, *port)).is_ok());
    let port = port.with_context(|| {
        format!("no free port for S3 at {addr} from {PORT} on: free one, or --no-s3")
    })?;
    let (path, dir) = (layout.conf(), layout.dir.display());
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let section = format!(
        "\
[client.{NAME}]
    keyring = {dir}/{NAME}/keyring
    log file = {dir}/log/{NAME}.log
    pid file = {dir}/run/{NAME}.pid
    rgw frontends = beast endpoint={addr}:{port}
"
    );
    write_durably(&path, format!("{}\n\n{section}", text.trim_end()).as_bytes())
}

/// Where the gateway listens, as `ceph.conf` says.
fn endpoint(layout: &Layout) -> Result<String> {
    let conf = read_conf(&layout.conf())?;
    let config = conf::Config::new(&conf, "client", NAME, "", 0);
    let fronts = crate::rgw_daemon::fronts(&config.get(key::RGW_FRONTENDS))?;
    let at = fronts.plain.first().context("the gateway has no plain end point (rgw_frontends)")?;
    Ok(at.to_string().replace("0.0.0.0", "127.0.0.1"))
}
