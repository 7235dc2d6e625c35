//! The central settings: sections, masks, and what applies to whom.

use std::collections::BTreeMap;

use denc::{DecodeError, Denc, Reader, Writer};
use types::{EntityKind, EntityName};

/// Every setting, by section then option name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigDb {
    /// Keyed by the section as the user wrote it: `global`, `osd`, `osd.1`, `osd/host:a`.
    pub sections: BTreeMap<String, ConfigSection>,
    /// Changes so far.
    pub version: u64,
}

impl Denc for ConfigDb {
    fn encode(&self, w: &mut Writer) {
        self.sections.encode(w);
        w.u64(self.version);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { sections: Denc::decode(r)?, version: r.u64()? })
    }
}

/// One section's options.
pub type ConfigSection = BTreeMap<String, String>;

/// A restriction behind a section's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigMask {
    /// `class:ssd`.
    pub device_class: Option<String>,
    /// `host:a`, `rack:b`: a CRUSH bucket the daemon is in.
    pub location: Option<(String, String)>,
}

/// Where a daemon is, for masks.
#[derive(Clone, Debug, Default)]
pub struct ConfigPlace {
    /// Its device class.
    pub device_class: String,
    /// CRUSH type to bucket name, with `host`.
    pub location: BTreeMap<String, String>,
}

/// Splits `osd/class:ssd` into section and mask.
///
/// # Errors
/// A sentence for the user.
pub fn parse_who(who: &str) -> Result<(String, ConfigMask), String> {
    let mut parts = who.split('/');
    let first = parts.next().unwrap_or_default();
    let (mut section, mut mask) = (String::new(), ConfigMask::default());
    let mut take = |part: &str| -> Result<(), String> {
        match part.split_once(':') {
            Some(("class", class)) => mask.device_class = Some(class.to_owned()),
            Some((kind, name)) => mask.location = Some((kind.to_owned(), name.to_owned())),
            None => {
                let kind = part.split('.').next().unwrap_or_default();
                let known = part == "global" || EntityKind::from_name(kind).is_some();
                if !known {
                    return Err(format!("unrecognized config target '{who}'"));
                }
                section = part.to_owned();
            }
        }
        Ok(())
    };
    take(first)?;
    for part in parts {
        take(part)?;
    }
    if section.is_empty() {
        section = "global".to_owned();
    }
    Ok((section, mask))
}

impl ConfigMask {
    fn holds(&self, place: &ConfigPlace) -> bool {
        self.device_class.as_ref().is_none_or(|c| *c == place.device_class)
            && self.location.as_ref().is_none_or(|(k, v)| place.location.get(k) == Some(v))
    }

    /// More precise masks win over less precise ones.
    fn precision(&self) -> u8 {
        u8::from(self.location.is_some()) * 2 + u8::from(self.device_class.is_some())
    }
}

impl ConfigDb {
    /// Sets or removes one option; whether anything changed.
    pub fn set(&mut self, who: &str, name: &str, value: Option<&str>) -> bool {
        let name = normalize(name);
        let changed = match value {
            Some(value) => {
                let section = self.sections.entry(who.to_owned()).or_default();
                section.insert(name, value.to_owned()).as_deref() != Some(value)
            }
            None => {
                let Some(section) = self.sections.get_mut(who) else { return false };
                let changed = section.remove(&name).is_some();
                if section.is_empty() {
                    self.sections.remove(who);
                }
                changed
            }
        };
        self.version += u64::from(changed);
        changed
    }

    /// What applies to an entity: option to (value, section it comes from). Later wins:
    /// global, type, each dotted prefix of the name (`client.rgw`, `client.rgw.a`), masks
    /// after plain sections of the same rank.
    #[must_use]
    pub fn effective(
        &self,
        entity: &EntityName,
        place: &ConfigPlace,
    ) -> BTreeMap<String, (String, String)> {
        let mut ranked: Vec<(usize, u8, &String)> = Vec::new();
        let full = entity.to_string();
        for who in self.sections.keys() {
            let Ok((section, mask)) = parse_who(who) else { continue };
            if !mask.holds(place) {
                continue;
            }
            let rank = if section == "global" {
                0
            } else if section == full || full.starts_with(&format!("{section}.")) {
                section.len()
            } else {
                continue;
            };
            ranked.push((rank, mask.precision(), who));
        }
        ranked.sort();
        let mut out = BTreeMap::new();
        for (_, _, who) in ranked {
            for (name, value) in &self.sections[who] {
                out.insert(name.clone(), (value.clone(), who.clone()));
            }
        }
        out
    }

    /// The value of `name` for `entity`, where set.
    #[must_use]
    pub fn get(&self, entity: &EntityName, name: &str) -> Option<String> {
        let name = normalize(name);
        self.effective(entity, &ConfigPlace::default()).remove(&name).map(|(value, _)| value)
    }
}

/// Option names with spaces or dashes are the same as with underscores.
#[must_use]
pub fn normalize(name: &str) -> String {
    name.trim().chars().map(|c| if c == ' ' || c == '-' { '_' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The closest section wins, and masks apply where they hold.
    #[test]
    fn closest_wins() {
        let mut db = ConfigDb::default();
        assert!(db.set("global", "debug ms", Some("0")));
        assert!(db.set("osd", "debug_ms", Some("1")));
        assert!(db.set("osd.3", "debug_ms", Some("3")));
        assert!(db.set("osd/class:ssd", "debug_ms", Some("2")));
        assert!(!db.set("osd.3", "debug_ms", Some("3")));
        let osd = |id: &str| EntityName::new(EntityKind::OSD, id);
        assert_eq!(db.get(&osd("3"), "debug_ms").unwrap(), "3");
        assert_eq!(db.get(&osd("33"), "debug_ms").unwrap(), "1");
        assert_eq!(db.get(&EntityName::new(EntityKind::CLIENT, "a"), "debug_ms").unwrap(), "0");
        let place = ConfigPlace { device_class: "ssd".into(), location: BTreeMap::new() };
        assert_eq!(db.effective(&osd("33"), &place)["debug_ms"].0, "2");
        assert!(parse_who("nonsense").is_err());
        assert!(db.set("osd.3", "debug_ms", None));
        assert_eq!(db.get(&osd("3"), "debug_ms").unwrap(), "1");
    }
}
