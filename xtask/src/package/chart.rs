//! The chart in `packaging/helm`.

use std::process::Command;

use anyhow::{Result, bail};

use crate::report::LeftOut;
use crate::sh;

const CHART: &str = "packaging/helm/argonaut-external";

/// Values that both consumers need.
const VALUES: &[&str] = &[
    "fsid=5a3e91c4-7c0b-4d0e-9b53-0d2a5c1f7e11",
    "monitors[0].name=a,monitors[0].address=192.0.2.10:3300",
    "monitors[1].name=b,monitors[1].address=192.0.2.11:3300",
    "rbd.pool=kube,cephfs.name=cephfs,metrics.addresses={192.0.2.10}",
    "users.rbdProvisioner.key=k1,users.rbdNode.key=k2",
    "users.cephfsProvisioner.key=k3,users.cephfsNode.key=k4",
    "users.healthchecker.key=k5",
];

/// What each consumer is given: kinds and names, and words of it.
const RENDERED: &[(&str, &[&str], &[&str])] = &[
    (
        "csi",
        &[
            "ConfigMap/ceph-config",
            "ConfigMap/ceph-csi-config",
            "Endpoints/argonaut-metrics",
            "Secret/argonaut-csi-cephfs-node",
            "Secret/argonaut-csi-cephfs-provisioner",
            "Secret/argonaut-csi-rbd-node",
            "Secret/argonaut-csi-rbd-provisioner",
            "Service/argonaut-metrics",
            "StorageClass/argonaut-cephfs",
            "StorageClass/argonaut-rbd",
        ],
        &[
            r#"[{"clusterID": "5a3e91c4-7c0b-4d0e-9b53-0d2a5c1f7e11", "monitors": ["192.0.2.10:3300", "192.0.2.11:3300"]}]"#,
            "mon host = 192.0.2.10:3300,192.0.2.11:3300",
            "provisioner: rbd.csi.ceph.com",
        ],
    ),
    (
        "rook",
        &[
            "CephCluster/storage",
            "ConfigMap/rook-ceph-mon-endpoints",
            "Secret/rook-ceph-mon",
            "Secret/rook-csi-cephfs-node",
            "Secret/rook-csi-cephfs-provisioner",
            "Secret/rook-csi-rbd-node",
            "Secret/rook-csi-rbd-provisioner",
            "StorageClass/argonaut-cephfs",
            "StorageClass/argonaut-rbd",
        ],
        &[
            "data: a=192.0.2.10:3300,b=192.0.2.11:3300",
            r#"maxMonId: "1""#,
            "provisioner: rook-ceph.cephfs.csi.ceph.com",
            "clusterID: \"storage\"",
        ],
    ),
];

fn helm(words: &[&str], values: &[&str]) -> Command {
    let mut helm = Command::new("helm");
    helm.current_dir(sh::repo()).args(words).arg(CHART);
    for value in values {
        helm.args(["--set", value]);
    }
    helm
}

/// Renders the chart for both consumers, and without what it needs.
///
/// # Errors
/// What is missing or too much; [`LeftOut`] without `helm`.
pub fn check() -> Result<()> {
    if Command::new("helm").arg("version").output().is_err() {
        return Err(LeftOut("there is no program helm".to_owned()).into());
    }
    sh::output(&mut helm(&["lint", "--strict"], VALUES))?;
    for (consumer, things, words) in RENDERED {
        let consumer = format!("consumer={consumer}");
        let values = [VALUES, &[consumer.as_str()]].concat();
        let mut command = helm(&["template", "--namespace", "storage", "argonaut"], &values);
        let text = sh::output(&mut command)?;
        let found = listed(&text);
        if found != *things {
            bail!("{consumer}: {found:?} instead of {things:?}");
        }
        if let Some(word) = words.iter().find(|word| !text.contains(**word)) {
            bail!("{consumer}: {word:?} is missing\n{text}");
        }
    }
    for at in 0..VALUES.len() - 1 {
        let mut values = VALUES.to_vec();
        let without = values.remove(at);
        let only_asked = without.starts_with("rbd.pool");
        let second = without.starts_with("monitors[1]");
        let refused = !helm(&["template", "argonaut"], &values).output()?.status.success();
        if refused == (only_asked || second) {
            bail!("without {without} it is refused: {refused}");
        }
    }
    Ok(())
}

/// `Kind/name` of every document, sorted.
fn listed(text: &str) -> Vec<String> {
    let value = |part: &str, key: &str| {
        let line = part.lines().find_map(|line| line.strip_prefix(key).map(str::trim));
        line.unwrap_or_default().trim_matches('"').to_owned()
    };
    let mut found: Vec<String> = text
        .split("\n---")
        .filter(|part| part.contains("\nkind: ") || part.starts_with("kind: "))
        .map(|part| format!("{}/{}", value(part, "kind: "), value(part, "  name: ")))
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_listed() {
        let text = "---\n# Source\napiVersion: v1\nkind: Secret\nmetadata:\n  name: b\n---\n\n---\nkind: \
                    ConfigMap\nmetadata:\n  name: a\n";
        assert_eq!(listed(text), ["ConfigMap/a", "Secret/b"]);
    }
}
