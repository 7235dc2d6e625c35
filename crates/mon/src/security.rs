//! Options that promise security: each is obeyed, or refused where it is set. None is taken
//! and forgotten.
//!
//! Obeyed: `auth_*_required` (daemons at their start), `ms_mon_service_mode` and
//! `ms_mon_cluster_mode` (monitors, at once), `ms_service_mode` (OSDs and the manager's role, at
//! their start), `ms_cluster_mode`, and of clients `ms_client_mode` and `ms_mon_client_mode`.
//! Always so, whatever is set: signed messages and version 2 of cephx.

use conf::key;

const METHODS: [&str; 5] = [
    key::AUTH_CLIENT_REQUIRED.name(),
    key::AUTH_CLUSTER_REQUIRED.name(),
    key::AUTH_SERVICE_REQUIRED.name(),
    "auth_supported",
    "auth_methods",
];

/// Of connections; not `ms_osd_compress_mode`, which promises nothing.
const MODES: [&str; 6] = [
    key::MS_CLIENT_MODE.name(),
    key::MS_CLUSTER_MODE.name(),
    key::MS_MON_CLIENT_MODE.name(),
    key::MS_MON_CLUSTER_MODE.name(),
    key::MS_MON_SERVICE_MODE.name(),
    key::MS_SERVICE_MODE.name(),
];

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', ',', ';', '\t']).filter(|w| !w.is_empty())
}

/// Why a value of an option cannot be promised; `None`: it is obeyed, or promises nothing.
#[must_use]
pub fn refusal(name: &str, value: &str) -> Option<String> {
    let only = |known: [&str; 2]| {
        let unknown = words(value).find(|w| !known.contains(w));
        match unknown {
            Some(word) => Some(format!("'{word}' is not known: {} and {} are", known[0], known[1])),
            None if words(value).next().is_none() => Some(String::from("it names nothing")),
            None => None,
        }
    };
    if name == "auth_supported" {
        return Some(String::from(
            "is not supported: set auth_cluster_required, auth_service_required and \
             auth_client_required",
        ));
    }
    if METHODS.contains(&name) {
        return only(["cephx", "none"]);
    }
    if MODES.contains(&name) {
        return only(["crc", "secure"]);
    }
    if name.starts_with("cephx_") && name.ends_with("require_version") {
        let fits = matches!(value.trim(), "1" | "2");
        return (!fits).then(|| String::from("versions 1 and 2 are known, and 2 is required"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::refusal;

    #[test]
    fn obeyed_or_refused() {
        for (name, value, taken) in [
            ("auth_cluster_required", "cephx", true),
            ("auth_cluster_required", "none", true),
            ("auth_service_required", "gss", false),
            ("auth_client_required", "cephx, none", true),
            ("auth_client_required", "cephx gss", false),
            ("auth_supported", "cephx", false),
            ("ms_mon_service_mode", "secure", true),
            ("ms_mon_service_mode", "secure crc", true),
            ("ms_mon_service_mode", "prefer-secure", false),
            ("ms_cluster_mode", "", false),
            ("cephx_service_require_version", "2", true),
            ("cephx_require_version", "3", false),
            ("ms_osd_compress_mode", "force", true),
            ("osd_scrub_sleep", "x", true),
        ] {
            assert_eq!(refusal(name, value).is_none(), taken, "{name} = {value}");
        }
    }
}
