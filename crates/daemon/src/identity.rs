//! Who a daemon is to its peers, and who they are to it.

use types::{EntityId, EntityKind, Features};

/// What both sides may use.
pub const FEATURES: Features = Features(Features::REEF_WORD.0 | Features::CRUSH_MSR.0);
/// Kind and number as a ticket proves them: a daemon that has a number in its name by
/// that, all others by the global id. What a peer says of itself counts for nothing, and a name that
/// only looks like a number (`osd.01`) is none: -1.
#[must_use]
pub fn proven_id(identity: &auth::PeerIdentity) -> EntityId {
    let kind = identity.name.kind;
    let global = i64::try_from(identity.global_id).unwrap_or(-1);
    let num = match kind {
        EntityKind::OSD => {
            let id = &identity.name.id;
            let plain = |n: &i32| *n >= 0 && n.to_string() == *id;
            id.parse().ok().filter(plain).map_or(-1, i64::from)
        }
        _ => global,
    };
    EntityId::new(kind, num)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::EntityName;

    /// An OSD's number is its key's name in its plain form alone.
    #[test]
    fn only_plain_numbers_are_numbers() {
        for (name, num) in [
            ("1", 1),
            ("0", 0),
            ("12", 12),
            ("01", -1),
            ("+1", -1),
            ("-1", -1),
            ("1 ", -1),
            ("", -1),
            ("ANYTHING", -1),
            ("4294967297", -1),
        ] {
            let name = EntityName::new(EntityKind::OSD, name);
            let who = auth::PeerIdentity { name, global_id: 7, ..Default::default() };
            assert_eq!(proven_id(&who), EntityId::new(EntityKind::OSD, num), "{}", who.name);
        }
        let name = EntityName::new(EntityKind::CLIENT, "1");
        let who = auth::PeerIdentity { name, global_id: 7, ..Default::default() };
        assert_eq!(proven_id(&who), EntityId::new(EntityKind::CLIENT, 7));
    }
}
