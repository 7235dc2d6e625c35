//! The CRUSH map as the monitor uses it: where OSDs are, and putting new ones in place.

use std::collections::BTreeMap;

use bytes::Bytes;
use crush::CrushMap;
use messages::OsdBoot;
use types::OsdId;

/// Where an item is: CRUSH type to bucket name.
pub(crate) fn location(crush: &CrushMap, item: i32) -> BTreeMap<String, String> {
    crush.full_location(item)
}

/// An item's device class.
pub(crate) fn class_of(crush: &CrushMap, item: i32) -> Option<String> {
    crush.class_name_of(item).map(str::to_owned)
}

/// `root=default,host=a`, as the cluster log shows places.
pub(crate) fn place_text(crush: &CrushMap, osd: OsdId) -> String {
    let path = crush.full_location_ordered(osd.0).unwrap_or_default();
    let parts: Vec<String> = path.iter().rev().map(|(k, v)| format!("{k}={v}")).collect();
    parts.join(",")
}

/// The CRUSH map with a booting OSD in its place, where it is not there already.
///
/// # Errors
/// Why it cannot be placed, for the log.
pub(crate) fn create_or_move(crush: &CrushMap, boot: &OsdBoot) -> Result<Option<Bytes>, String> {
    let osd = boot.osd.0;
    let mut wanted = boot.location.clone();
    if wanted.is_empty() {
        let host = boot.metadata.get("hostname").map_or("localhost", String::as_str);
        let host = host.split('.').next().unwrap_or(host).to_owned();
        wanted.insert("host".to_owned(), host);
    }
    wanted.entry("root".to_owned()).or_insert_with(|| "default".to_owned());
    let mut map = crush.clone();
    let tib = 1u128 << 40;
    let weight =
        ((u128::from(boot.device_bytes) << 16) / tib).clamp(1, u128::from(u32::MAX)) as u32;
    let mut changed = map
        .create_or_move_item(osd, weight, &format!("osd.{osd}"), &wanted, true)
        .map_err(|e| e.to_string())?;
    if !boot.device_class.is_empty() && map.class_of(osd).is_none() {
        changed |= map.update_device_class(osd, &boot.device_class).map_err(|e| e.to_string())?;
    }
    use denc::Denc;
    Ok(changed.then(|| map.to_bytes()))
}

/// The OSDs that a rule can choose and their weights.
pub(crate) fn rule_weights(crush: &CrushMap, rule: u32) -> BTreeMap<OsdId, f64> {
    let mut out = BTreeMap::new();
    let Some(rule) = crush.rule(rule) else { return out };
    for step in &rule.steps {
        if step.known() != Some(crush::Op::Take) {
            continue;
        }
        let mut stack = vec![(step.arg1, 0)];
        while let Some((item, depth)) = stack.pop() {
            let Some(bucket) = crush.bucket(item) else { continue };
            if depth > crush::DEPTH_MAX {
                continue;
            }
            for (at, child) in bucket.items().iter().enumerate() {
                if *child >= 0 {
                    *out.entry(OsdId(*child)).or_default() +=
                        f64::from(bucket.item_weight(at)) / 65536.0;
                } else {
                    stack.push((*child, depth + 1));
                }
            }
        }
    }
    out
}
