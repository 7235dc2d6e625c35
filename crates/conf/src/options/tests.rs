//! The table is in order and fits, and the page for operators says what it says.

use super::*;
use crate::parse_size;

/// What `docs/ops/options.md` says, made of [`OPTIONS`].
fn page() -> String {
    let mut page = String::from(
        "# Options\n\n\
         Every option that daemons of ours obey, made from `conf/src/options.rs`. All of upstream's 2,294 are known: the others are read\n\
         by clients, or taken where their value fits and have no effect: `ceph config help NAME` says so, `ceph config show` and a daemon's log\n\
         too. What is no option is refused. *at once*: a change takes effect without a restart.\n\
         Set one by `ceph config set WHO NAME VALUE` (WHO: `global`, `mon`, `osd`, `osd.3`, `mds`, `client`, ...), in `ceph.conf`, or for one\n\
         process by `ceph tell DAEMON config set NAME VALUE`.\n",
    );
    let area = |name: &str| name.split('_').next().unwrap_or_default().to_owned();
    let mut last = String::new();
    for o in OPTIONS {
        if area(o.name) != last {
            last = area(o.name);
            page += &format!(
                "\n## {last}\n\n| option | type | default | at once | what it is |\n|---|---|---|---|---|\n"
            );
        }
        let default = if o.default.is_empty() { String::new() } else { format!("`{}`", o.default) };
        let about = o.about.replace('|', "\\|");
        let runtime = if o.runtime { "yes" } else { "" };
        page +=
            &format!("| `{}` | {} | {default} | {runtime} | {about} |\n", o.name, o.kind.name());
    }
    page
}

/// The page is what the table says. `ARGONAUT_WRITE_DOCS=1` writes it.
#[test]
fn page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ops/options.md");
    if std::env::var_os("ARGONAUT_WRITE_DOCS").is_some() {
        std::fs::write(path, page()).expect("the page can be written");
    }
    let is = std::fs::read_to_string(path).unwrap_or_default();
    assert!(is == page(), "run `ARGONAUT_WRITE_DOCS=1 cargo test -p conf page_is_up_to_date`");
}

#[test]
fn sorted_and_fitting() {
    assert!(OPTIONS.windows(2).all(|w| w[0].name < w[1].name), "binary search needs order");
    for spec in OPTIONS {
        spec.kind.check(spec.default).unwrap_or_else(|why| panic!("{}: {why}", spec.name));
    }
}

#[test]
fn sizes() {
    assert_eq!(parse_size("64K"), Some(65536));
    assert_eq!(parse_size("4GiB"), Some(4 << 30));
    assert_eq!(parse_size("99999999999P"), None);
    assert_eq!(parse_size("4X"), None);
    assert_eq!(parse_size(""), None);
}
