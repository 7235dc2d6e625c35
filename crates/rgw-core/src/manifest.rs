//! Which bytes of an object are in which RADOS object.

use crate::formats::{Manifest, ManifestRule, ObjectName};
use crate::names::RawKey;

/// A run of an object's bytes in one RADOS object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stripe {
    /// First byte in the object.
    pub(crate) offset: u64,
    /// How many bytes.
    pub(crate) len: u64,
    /// Marker of the bucket that the name begins with, and the name; `None` for the head.
    pub(crate) tail: Option<(String, RawKey)>,
    /// First byte in the RADOS object.
    pub(crate) at: u64,
}

impl Manifest {
    /// All runs, in order.
    pub(crate) fn stripes(&self) -> Vec<Stripe> {
        let mut out = Vec::new();
        if self.is_explicit {
            for (offset, part) in &self.parts {
                let same = part.at == self.head;
                let key = RawKey {
                    name: part.at.name.clone(),
                    instance: part.at.instance.clone(),
                    ns: part.at.ns.clone(),
                };
                let tail = (!same).then(|| (part.at.bucket.marker.clone(), key));
                out.push(Stripe { offset: *offset, len: part.size, tail, at: part.offset });
            }
            return out;
        }
        if self.head_size > 0 {
            let len = self.head_size.min(self.size);
            out.push(Stripe { offset: 0, len, tail: None, at: 0 });
        }
        let starts: Vec<u64> = self.rules.keys().copied().skip(1).chain([self.size]).collect();
        for ((start, rule), end) in self.rules.iter().zip(starts) {
            let first = rule.start.max(*start);
            if rule.part_size == 0 {
                self.run(rule, rule.start_part, first, end.min(self.size), &mut out);
                continue;
            }
            let mut part = rule.start_part;
            let mut at = first;
            while at < end {
                let until = at.saturating_add(rule.part_size).min(end);
                self.run(rule, part, at, until, &mut out);
                at = until;
                part += 1;
            }
        }
        out
    }

    /// The runs of one part, or of a whole tail.
    fn run(&self, rule: &ManifestRule, part: u32, from: u64, to: u64, out: &mut Vec<Stripe>) {
        let stripe_max = rule.stripe_max.max(1);
        let first = u64::from(part == 0 && self.head_size_max > 0);
        let mut at = from;
        let mut n = first;
        while at < to {
            let len = stripe_max.min(to - at);
            let tail = Some((self.tail_marker().to_owned(), self.tail_key(rule, part, n)));
            out.push(Stripe { offset: at, len, tail, at: 0 });
            at += len;
            n += 1;
        }
    }

    pub(crate) fn tail_marker(&self) -> &str {
        &self.tail_bucket.as_ref().unwrap_or(&self.head.bucket).marker
    }

    fn tail_key(&self, rule: &ManifestRule, part: u32, stripe: u64) -> RawKey {
        let prefix = if rule.prefix.is_empty() { &self.prefix } else { &rule.prefix };
        let (name, ns) = match (part, stripe) {
            (0, n) => (format!("{prefix}{n}"), "shadow"),
            (part, 0) => (format!("{prefix}.{part}"), "multipart"),
            (part, n) => (format!("{prefix}.{part}_{n}"), "shadow"),
        };
        let instance = self.tail_instance.as_ref().unwrap_or(&self.head.instance).clone();
        RawKey { name, instance, ns: ns.into() }
    }

    /// The manifest of an upload's part: nothing in the head, stripes of `stripe` bytes.
    #[must_use]
    pub fn of_part(
        head: ObjectName,
        part: u32,
        size: u64,
        stripe: u64,
        prefix: &str,
        placement: &str,
    ) -> Self {
        let mut out = Self::of_put(head, size, 0, stripe, prefix.into(), placement);
        let rule = ManifestRule { start_part: part, stripe_max: stripe, ..ManifestRule::default() };
        out.rules = [(0, rule)].into();
        out
    }

    /// The manifest of an upload: parts by number, size and prefix, in their order.
    #[must_use]
    pub fn of_parts(
        head: ObjectName,
        parts: &[(u32, u64, String)],
        stripe: u64,
        prefix: &str,
        placement: &str,
    ) -> Self {
        let size = parts.iter().map(|p| p.1).sum();
        let mut out = Self::of_put(head, size, 0, stripe, prefix.into(), placement);
        out.rules.clear();
        let mut at = 0;
        let mut last: Option<(ManifestRule, u32)> = None;
        for (number, size, own) in parts {
            let own = if own == prefix { String::new() } else { own.clone() };
            let goes_on = last.as_ref().is_some_and(|(rule, next)| {
                rule.part_size == *size && rule.prefix == own && next == number
            });
            if *size > 0 && !goes_on {
                let rule = ManifestRule {
                    start_part: *number,
                    start: at,
                    part_size: *size,
                    stripe_max: stripe,
                    prefix: own,
                };
                out.rules.insert(at, rule.clone());
                last = Some((rule, *number));
            }
            if let Some((_, next)) = &mut last {
                *next = number + 1;
            }
            at += size;
        }
        out
    }

    /// Adds a part behind all others; nothing where it is empty. Parts of one size whose numbers follow are one rule.
    ///
    /// Source: `RGWObjManifest::append`.
    pub fn append_part(&mut self, number: u32, size: u64, stripe: u64, prefix: &str) {
        if size == 0 {
            return;
        }
        let (begins, own) = (self.size, if prefix == self.prefix { "" } else { prefix });
        self.size += size;
        // The last part's size was left open, as of an object of one part.
        self.rules.retain(|start, rule| rule.part_size > 0 || *start < begins);
        if let Some(mut last) = self.rules.last_entry() {
            let start = *last.key();
            let rule = last.get_mut();
            if rule.part_size == 0 {
                rule.part_size = begins - start;
            }
            let follows = u64::from(rule.start_part) + (begins - start) / rule.part_size;
            if (rule.part_size, rule.stripe_max, rule.prefix.as_str()) == (size, stripe, own)
                && follows == u64::from(number)
            {
                return;
            }
        }
        let rule = ManifestRule {
            start_part: number,
            start: begins,
            part_size: size,
            stripe_max: stripe,
            prefix: own.to_owned(),
        };
        self.rules.insert(begins, rule);
    }

    /// First byte and length of an upload's parts by number.
    #[must_use]
    pub fn part_bounds(&self) -> Vec<(u32, u64, u64)> {
        let mut out = Vec::new();
        let ends: Vec<u64> = self.rules.keys().copied().skip(1).chain([self.size]).collect();
        for ((start, rule), end) in self.rules.iter().zip(ends) {
            if rule.part_size == 0 {
                continue;
            }
            let (mut at, mut part) = (*start, rule.start_part);
            while at < end {
                let len = rule.part_size.min(end - at);
                out.push((part, at, len));
                at += len;
                part += 1;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::Bucket;

    const MIB: u64 = 1 << 20;

    fn head() -> ObjectName {
        let bucket = Bucket { marker: "m".into(), ..Bucket::default() };
        ObjectName { bucket, name: "k".into(), ..ObjectName::default() }
    }

    fn names(manifest: &Manifest) -> Vec<(u64, u64, String)> {
        let name = |s: &Stripe| s.tail.as_ref().map_or("head".into(), |(_, key)| key.oid());
        manifest.stripes().iter().map(|s| (s.offset, s.len, name(s))).collect()
    }

    #[test]
    fn a_put_has_head_and_tail() {
        let m = Manifest::of_put(head(), 9 * MIB, 4 * MIB, 4 * MIB, ".r_".into(), "p");
        let want = [
            (0, 4 * MIB, "head".to_owned()),
            (4 * MIB, 4 * MIB, "_shadow_.r_1".to_owned()),
            (8 * MIB, MIB, "_shadow_.r_2".to_owned()),
        ];
        assert_eq!(names(&m), want);
    }

    /// Rules as stock has them of the same appends: 3, 3, 3 bytes; none, then 1; 6, 5, 1.
    #[test]
    fn appended_parts() {
        let of = |sizes: &[u64]| {
            let mut m = Manifest::of_part(head(), 1, sizes[0], 4 * MIB, "k.r_", "p");
            for (n, size) in sizes.iter().enumerate().skip(1) {
                m.append_part(n as u32 + 1, *size, 4 * MIB, "k.r_");
            }
            assert_eq!(m.size, sizes.iter().sum::<u64>());
            let rules = m.rules.iter().map(|(at, r)| (*at, r.start_part, r.start, r.part_size));
            (rules.collect::<Vec<_>>(), names(&m))
        };
        assert_eq!(of(&[3]).0, [(0, 1, 0, 0)]);
        let (rules, names) = of(&[3, 3, 3]);
        assert_eq!(rules, [(0, 1, 0, 3)]);
        let want =
            [(0, 3, "_multipart_k.r_.1"), (3, 3, "_multipart_k.r_.2"), (6, 3, "_multipart_k.r_.3")];
        assert_eq!(names, want.map(|(at, len, name)| (at, len, name.to_owned())));
        let (rules, names) = of(&[0, 1]);
        assert_eq!(
            (rules, names),
            (vec![(0, 2, 0, 1)], vec![(0, 1, "_multipart_k.r_.2".to_owned())])
        );
        assert_eq!(of(&[6, 5, 1, 0]).0, [(0, 1, 0, 6), (6, 2, 6, 5), (11, 3, 11, 1)]);
        // The fourth part's number does not follow: the third one was empty.
        assert_eq!(of(&[2, 2, 0, 2]).0, [(0, 1, 0, 2), (4, 4, 4, 2)]);
        let (_, names) = of(&[5 * MIB, 9 * MIB]);
        assert_eq!(names.len(), 5);
        assert_eq!(names[3], (9 * MIB, 4 * MIB, "_shadow_k.r_.2_1".to_owned()));
    }

    /// What an own prefix has stays apart.
    #[test]
    fn an_appended_part_with_another_prefix() {
        let mut m = Manifest::of_part(head(), 1, 3, 4 * MIB, "k.r_", "p");
        m.append_part(2, 3, 4 * MIB, "k.other");
        m.append_part(3, 3, 4 * MIB, "k.r_");
        let names: Vec<String> = names(&m).into_iter().map(|(_, _, name)| name).collect();
        assert_eq!(names, ["_multipart_k.r_.1", "_multipart_k.other.2", "_multipart_k.r_.3"]);
    }

    #[test]
    fn parts_of_an_upload_are_cut_where_they_end() {
        let parts =
            [(1, 5 * MIB, "k.u".to_owned()), (2, 5 * MIB, "k.u".into()), (4, 3, "k.x".into())];
        let m = Manifest::of_parts(head(), &parts, 4 * MIB, "k.u", "p");
        let want = [
            (0, 4 * MIB, "_multipart_k.u.1".to_owned()),
            (4 * MIB, MIB, "_shadow_k.u.1_1".to_owned()),
            (5 * MIB, 4 * MIB, "_multipart_k.u.2".to_owned()),
            (9 * MIB, MIB, "_shadow_k.u.2_1".to_owned()),
            (10 * MIB, 3, "_multipart_k.x.4".to_owned()),
        ];
        assert_eq!(names(&m), want);
        assert_eq!(m.part_bounds(), [(1, 0, 5 * MIB), (2, 5 * MIB, 5 * MIB), (4, 10 * MIB, 3)]);
    }
}
