//! When something is to be done again and again, and for what: schedules of pools, namespaces
//! and images, as `rbd trash purge schedule` and `rbd mirror snapshot schedule` keep them.
//!
//! A schedule is a list of intervals in minutes, each from a time of day on; what is nearest
//! to an image counts: its own, its namespace's, its pool's, the cluster's.
//!
//! Source: the peer's `pybind/mgr/rbd_support/schedule.py`: names, forms, sentences. Times of
//! day are UTC here, and with an offset they mean what they say (the peer adds it).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use types::UTime;

/// What a schedule is for. Ids are as kept: `7`, `7/ns`, `7//IMAGE`; names as written: `rbd/`,
/// `rbd/ns/`, `rbd/image`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Level {
    /// For people.
    pub name: String,
    /// None: the whole cluster.
    pub pool: Option<i64>,
    /// None: all of the pool; empty: its default one.
    pub nspace: Option<String>,
    /// None: all of them.
    pub image: Option<String>,
}

/// A [`Level`] by its parts' names, not looked up yet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LevelName<'a> {
    pub pool: Option<&'a str>,
    pub nspace: Option<&'a str>,
    pub image: Option<&'a str>,
}

impl<'a> LevelName<'a> {
    /// Reads ``, `POOL/`, `POOL/NS/`, `POOL/IMAGE`, `POOL//IMAGE`, `POOL/NS/IMAGE`.
    ///
    /// # Errors
    /// What to say of it.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        let bad = || format!("failed to parse {text}");
        if text.is_empty() {
            return Ok(Self { pool: None, nspace: None, image: None });
        }
        let (pool, rest) = text.split_once('/').ok_or_else(bad)?;
        let (nspace, image) = match rest.split_once('/') {
            Some((nspace, image)) => (Some(nspace), image),
            None => (None, rest),
        };
        if pool.is_empty() || image.contains(['/', '@']) {
            return Err(bad());
        }
        let image = (!image.is_empty()).then_some(image);
        // An image without a namespace is in the default one.
        let nspace = nspace.or(image.map(|_| ""));
        Ok(Self { pool: Some(pool), nspace, image })
    }
}

impl Level {
    /// Reads an id; without a name.
    pub fn from_id(id: &str) -> Option<Self> {
        if id.is_empty() {
            return Some(Self::default());
        }
        let mut parts = id.splitn(3, '/');
        let pool = parts.next()?.parse().ok().filter(|p| *p >= 0)?;
        let (nspace, image) = (parts.next(), parts.next());
        if image.is_some_and(|i| i.is_empty() || i.contains(['/', '@'])) {
            return None;
        }
        let text = |t: &str| t.to_owned();
        let (nspace, image) = (nspace.map(text), image.map(text));
        Some(Self { name: String::new(), pool: Some(pool), nspace, image })
    }

    pub fn id(&self) -> String {
        let mut id = self.pool.map_or(String::new(), |p| p.to_string());
        for part in [&self.nspace, &self.image].into_iter().flatten() {
            id += "/";
            id += part;
        }
        id
    }

    /// With the name that its parts' names make.
    pub fn named(mut self, pool: &str, image: Option<&str>) -> Self {
        self.name = match (self.nspace.as_deref(), image) {
            (None, _) => format!("{pool}/"),
            (Some(""), Some(image)) => format!("{pool}/{image}"),
            (Some(nspace), image) => format!("{pool}/{nspace}/{}", image.unwrap_or_default()),
        };
        self
    }

    fn is_child_of(&self, of: &Self) -> bool {
        match (of.pool, &of.nspace, &of.image) {
            (None, ..) => self.pool.is_some(),
            (pool, ..) if pool != self.pool => false,
            (_, None, _) => self.nspace.is_some(),
            (_, nspace, _) if *nspace != self.nspace => false,
            (_, _, None) => self.image.is_some(),
            _ => false,
        }
    }

    /// Whether it is for this, among others.
    pub fn matches(&self, target: &Target) -> bool {
        self.pool.is_none_or(|p| p == target.pool)
            && self.nspace.as_deref().is_none_or(|n| n.is_empty() || n == target.nspace)
            && self.image.as_deref().is_none_or(|i| target.image.as_deref() == Some(i))
    }

    /// Whether anything in a pool may be meant.
    pub fn touches_pool(&self, pool: i64) -> bool {
        self.pool.is_none_or(|p| p == pool)
    }
}

/// What something is done to when it is due: a namespace, or an image in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    pub pool: i64,
    pub nspace: String,
    /// Its id.
    pub image: Option<String>,
}

fn interval(text: &str) -> Result<u64, String> {
    let bad = || format!("Invalid interval ({text})");
    let (digits, unit) = match text.find(|c: char| !c.is_ascii_digit()) {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    let minutes = match unit {
        "d" => 24 * 60,
        "h" => 60,
        "m" | "" => 1,
        _ => return Err(bad()),
    };
    let count: u64 = digits.parse().map_err(|_| bad())?;
    // No time is that far away; and none is asked for at every moment.
    let most = 100 * 366 * 24 * 60;
    count.checked_mul(minutes).filter(|m| (1..=most).contains(m)).ok_or_else(bad)
}

fn interval_text(minutes: u64) -> String {
    match minutes {
        m if m % (24 * 60) == 0 => format!("{}d", m / (24 * 60)),
        m if m % 60 == 0 => format!("{}h", m / 60),
        m => format!("{m}m"),
    }
}

/// A time of day: as written, and its minutes after midnight UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Start {
    text: String,
    minutes: u64,
}

impl Start {
    /// Reads `HH:MM[:SS[.FRACTION]][Z|+HH[:]MM]`, behind a date or not.
    fn parse(text: &str) -> Result<Self, String> {
        Self::read(text.trim()).ok_or_else(|| format!("Invalid start time {text}"))
    }

    fn read(text: &str) -> Option<Self> {
        let two = |t: &str, below: u64| {
            let n = t.parse().ok().filter(|n: &u64| *n < below)?;
            (t.len() == 2 && t.bytes().all(|b| b.is_ascii_digit())).then_some(n)
        };
        let time = match text.split_once(['T', ' ']) {
            Some((date, time)) => {
                let fine = |b: u8| b.is_ascii_digit() || b == b'-';
                if date.len() < 8 || !date.bytes().all(fine) {
                    return None;
                }
                time
            }
            None => text,
        };
        let at = time.find(['Z', '+', '-']).unwrap_or(time.len());
        let (clock, zone) = time.split_at(at);
        let mut parts = clock.splitn(3, ':');
        let (hour, minute) = (two(parts.next()?, 24)?, two(parts.next()?, 60)?);
        if let Some(seconds) = parts.next() {
            two(seconds.split('.').next()?, 60)?;
        }
        let (shown, offset) = match zone.as_bytes().first() {
            None => (String::new(), 0),
            Some(b'Z') if zone.len() == 1 => ("+00:00".to_owned(), 0),
            Some(b'Z') => return None,
            Some(sign) => {
                let digits = zone[1..].replace(':', "");
                let (hours, minutes) = (two(digits.get(..2)?, 24)?, digits.get(2..)?);
                let minutes = if minutes.is_empty() { 0 } else { two(minutes, 60)? };
                let east = hours * 60 + minutes;
                let shown = format!("{}{hours:02}:{minutes:02}", char::from(*sign));
                (shown, if *sign == b'+' { 24 * 60 - east } else { east })
            }
        };
        Some(Self {
            text: format!("{hour:02}:{minute:02}:00{shown}"),
            minutes: (hour * 60 + minute + offset) % (24 * 60),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    minutes: u64,
    start: Option<Start>,
}

impl Item {
    fn parse(every: &str, start: &str) -> Result<Self, String> {
        let start = if start.is_empty() { None } else { Some(Start::parse(start)?) };
        Ok(Self { minutes: interval(every)?, start })
    }

    /// Two that come at the same times, however they are written.
    fn is_same(&self, other: &Self) -> bool {
        let minutes = |i: &Self| (i.minutes, i.start.as_ref().map(|s| s.minutes));
        minutes(self) == minutes(other)
    }
}

/// Intervals; what comes first counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Schedule(Vec<Item>);

impl Schedule {
    /// Seconds since 1970 of the next time after `now`, itself such a time.
    pub fn next_run(&self, now: u64) -> Option<u64> {
        let next = |item: &Item| {
            let period = item.minutes * 60;
            let start = item.start.as_ref().map_or(0, |s| s.minutes * 60);
            let runs = now.saturating_sub(start) / period + 1;
            start + runs * period
        };
        self.0.iter().map(next).min()
    }

    fn shown(&self) -> Value {
        let item = |i: &Item| {
            json!({
                "interval": interval_text(i.minutes),
                "start_time": i.start.as_ref().map(|s| s.text.clone()),
            })
        };
        Value::Array(self.0.iter().map(item).collect())
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let items: Vec<Value> = serde_json::from_slice(text).ok()?;
        let item = |v: &Value| {
            let start = v.get("start_time")?.as_str().unwrap_or_default();
            Item::parse(v.get("interval")?.as_str()?, start).ok()
        };
        items.iter().map(item).collect::<Option<_>>().map(Self)
    }
}

/// All schedules of a kind, by their levels' ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedules(BTreeMap<String, (Level, Schedule)>);

impl Schedules {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes what is kept; says whether it made sense.
    pub fn load(&mut self, level: Level, text: &[u8]) -> bool {
        let Some(schedule) = Schedule::parse(text).filter(|s| !s.0.is_empty()) else {
            return false;
        };
        self.0.insert(level.id(), (level, schedule));
        true
    }

    /// Adds times to a level; what is to be kept of it now.
    ///
    /// # Errors
    /// What is wrong with the times.
    pub fn add(&mut self, level: &Level, every: &str, start: &str) -> Result<String, String> {
        let item = Item::parse(every, start)?;
        let (known, schedule) = self.0.entry(level.id()).or_default();
        known.clone_from(level);
        if !schedule.0.iter().any(|i| i.is_same(&item)) {
            schedule.0.push(item);
        }
        Ok(crate::python(&schedule.shown()))
    }

    /// Takes times from a level, or all; what is to be kept of it then, if anything.
    ///
    /// # Errors
    /// What is wrong with the times.
    pub fn remove(
        &mut self,
        level: &Level,
        every: &str,
        start: &str,
    ) -> Result<Option<String>, String> {
        let id = level.id();
        if every.is_empty() {
            self.0.remove(&id);
            return Ok(None);
        }
        let item = Item::parse(every, start)?;
        let Some((_, schedule)) = self.0.get_mut(&id) else { return Ok(None) };
        schedule.0.retain(|i| !i.is_same(&item));
        if schedule.0.is_empty() {
            self.0.remove(&id);
            return Ok(None);
        }
        Ok(Some(crate::python(&schedule.shown())))
    }

    /// The schedule that counts for this.
    pub fn find(&self, target: &Target) -> Option<&Schedule> {
        let image = target.image.as_ref().map(|i| format!("{}/{}/{i}", target.pool, target.nspace));
        let nspace = Some(format!("{}/{}", target.pool, target.nspace));
        let ids = [image, nspace, Some(target.pool.to_string()), Some(String::new())];
        ids.iter().flatten().find_map(|id| self.0.get(id)).map(|(_, schedule)| schedule)
    }

    /// Whether something in a pool may have one.
    pub fn touch_pool(&self, pool: i64) -> bool {
        self.0.values().any(|(level, _)| level.touches_pool(pool))
    }

    /// Of a level and below it, or where there is none, what counts for it; what is `open`.
    pub fn shown(&self, level: &Level, open: impl Fn(&Level) -> bool) -> Value {
        let id = level.id();
        let nearest = if self.0.contains_key(&id) {
            id.clone()
        } else {
            let above = self.0.iter().filter(|(_, (l, _))| level.is_child_of(l));
            above.map(|(id, _)| id.clone()).max_by_key(String::len).unwrap_or_default()
        };
        let wanted = |k: &String, l: &Level| *k == id || *k == nearest || l.is_child_of(level);
        let of = self.0.iter().filter(|(k, (l, _))| wanted(k, l) && open(l));
        let one = |(id, (l, s)): (&String, &(Level, Schedule))| {
            (id.clone(), json!({"name": l.name, "schedule": s.shown()}))
        };
        Value::Object(of.map(one).collect::<Map<_, _>>())
    }
}

/// `2026-11-22 13:45:00`, UTC.
pub(crate) fn time_text(secs: u64) -> String {
    let text = UTime::from_nanos(secs * 1_000_000_000).to_string();
    text.get(..16).map_or(text.clone(), |t| t.replace('T', " ") + ":00")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_levels() {
        let level = |pool, nspace, image| LevelName { pool, nspace, image };
        for (text, want) in [
            ("", level(None, None, None)),
            ("p/", level(Some("p"), None, None)),
            ("p//", level(Some("p"), Some(""), None)),
            ("p/n/", level(Some("p"), Some("n"), None)),
            ("p/i", level(Some("p"), Some(""), Some("i"))),
            ("p//i", level(Some("p"), Some(""), Some("i"))),
            ("p/n/i", level(Some("p"), Some("n"), Some("i"))),
        ] {
            assert_eq!(LevelName::parse(text), Ok(want), "{text}");
        }
        for bad in ["p", "/", "/i", "p/i@s", "p/n/i/x", "p/n/i@s"] {
            assert_eq!(LevelName::parse(bad), Err(format!("failed to parse {bad}")));
        }
    }

    #[test]
    fn ids_of_levels() {
        for id in ["", "1", "1/", "1/n", "1//i", "1/n/i"] {
            assert_eq!(Level::from_id(id).unwrap().id(), id);
        }
        for bad in ["x", "1/n/", "1/n/i/x", "1/n/i@s", "-1"] {
            assert_eq!(Level::from_id(bad), None, "{bad}");
        }
        let name = |id, image| Level::from_id(id).unwrap().named("p", image).name;
        assert_eq!([name("1", None), name("1/n", None)], ["p/", "p/n/"]);
        assert_eq!([name("1//i", Some("x")), name("1/n/i", Some("x"))], ["p/x", "p/n/x"]);
    }

    #[test]
    fn intervals() {
        let back = |text| interval(text).map(interval_text);
        for (text, want) in [
            ("15m", "15m"),
            ("90", "90m"),
            ("60m", "1h"),
            ("2h", "2h"),
            ("48h", "2d"),
            ("1d", "1d"),
        ] {
            assert_eq!(back(text), Ok(want.to_owned()));
        }
        for bad in ["", "m", "0", "0d", "1w", "1 d", "-1h", "1.5h", "99999999999999999999d"] {
            assert_eq!(back(bad), Err(format!("Invalid interval ({bad})")));
        }
    }

    #[test]
    fn starts() {
        let start = |text| Start::parse(text).map(|s| (s.text, s.minutes));
        for (text, shown, minutes) in [
            ("14:00", "14:00:00", 840),
            ("14:30:20.5", "14:30:00", 870),
            ("14:00:00-05:00", "14:00:00-05:00", 19 * 60),
            ("14:00:00+0530", "14:00:00+05:30", 8 * 60 + 30),
            ("01:00+02", "01:00:00+02:00", 23 * 60),
            ("14:00Z", "14:00:00+00:00", 840),
            ("2026-11-22T06:15:00", "06:15:00", 375),
        ] {
            assert_eq!(start(text), Ok((shown.to_owned(), minutes)), "{text}");
            assert_eq!(start(shown).unwrap().1, minutes, "{shown}");
        }
        for bad in ["", "14", "25:00", "14:60", "14:0", "x14:00", "14:00+", "14:00Zx", "a b"] {
            assert_eq!(start(bad), Err(format!("Invalid start time {bad}")));
        }
    }

    /// The nearest level counts, and the first of its times.
    #[test]
    fn what_is_due() {
        let mut s = Schedules::default();
        let level = |id| Level::from_id(id).unwrap().named("p", Some("x"));
        let target = |nspace: &str, image: Option<&str>| Target {
            pool: 1,
            nspace: nspace.to_owned(),
            image: image.map(str::to_owned),
        };
        let next = |s: &Schedules, t: &Target, now| s.find(t).and_then(|s| s.next_run(now));
        let day = 20_000 * 86_400;
        assert_eq!(next(&s, &target("", None), day), None);
        s.add(&Level::default(), "1d", "06:00").unwrap();
        let morning = day + 6 * 3600;
        assert_eq!(next(&s, &target("", None), day), Some(morning));
        assert_eq!(next(&s, &target("", None), morning), Some(morning + 86_400));
        s.add(&level("1"), "1h", "").unwrap();
        s.add(&level("1"), "45m", "").unwrap();
        assert_eq!(next(&s, &target("n", None), day), Some(day + 45 * 60));
        s.add(&level("1/n/i"), "1m", "").unwrap();
        assert_eq!(next(&s, &target("n", Some("i")), day), Some(day + 60));
        assert_eq!(next(&s, &target("", Some("i")), day), Some(day + 45 * 60));
        assert_eq!(time_text(day + 45 * 60), "2024-10-04 00:45:00");
    }

    /// What is kept is the peer's json, and comes back; equal times are one.
    #[test]
    fn kept_and_shown() {
        let mut s = Schedules::default();
        let pool = Level::from_id("1").unwrap().named("p", None);
        s.add(&pool, "60m", "").unwrap();
        let text = s.add(&pool, "1d", "14:00-05:00").unwrap();
        assert_eq!(s.add(&pool, "24h", "19:00"), Ok(text.clone()));
        let want = "[\n    {\n        \"interval\": \"1h\",\n        \"start_time\": null\n    },\n    \
                    {\n        \"interval\": \"1d\",\n        \"start_time\": \"14:00:00-05:00\"\n    }\n]";
        assert_eq!(text, want);
        let mut again = Schedules::default();
        assert!(again.load(pool.clone(), text.as_bytes()));
        assert_eq!(again.0, s.0);
        for bad in ["", "[]", "{}", "[{}]", "[{\"interval\": \"x\", \"start_time\": null}]"] {
            assert!(!again.load(pool.clone(), bad.as_bytes()), "{bad}");
        }
        let image = Level::from_id("1//i").unwrap().named("p", Some("x"));
        let shown = json!({"1": {"name": "p/", "schedule": [
            {"interval": "1h", "start_time": null},
            {"interval": "1d", "start_time": "14:00:00-05:00"},
        ]}});
        for level in [&Level::default(), &pool, &image] {
            assert_eq!(s.shown(level, |_| true), shown, "{level:?}");
        }
        assert_eq!(s.shown(&Level::from_id("2").unwrap(), |_| true), json!({}));
        assert!(s.remove(&pool, "1d", "19:00").unwrap().is_some());
        assert_eq!(s.remove(&pool, "1h", ""), Ok(None));
        assert!(s.is_empty());
    }
}
