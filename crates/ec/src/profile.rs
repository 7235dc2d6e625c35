//! Profiles: what an operator asks for, filled in and checked as the peer's plugins do.

use std::collections::BTreeMap;

use crate::gf::Field;

/// Why a profile gives no code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// No plugin of that name, here or there. ENOENT.
    #[error("erasure code plugin '{0}' is not known")]
    UnknownPlugin(String),
    /// The peer has it, we do not. EOPNOTSUPP.
    #[error("{0} is not supported by this cluster")]
    NotBuilt(String),
    /// ENOENT.
    #[error(
        "technique={technique} is not a valid coding technique.  Choose one of the following: {list}"
    )]
    UnknownTechnique {
        /// What was asked for.
        technique: String,
        /// What there is.
        list: String,
    },
    /// A number out of its range. EINVAL.
    #[error("{0}")]
    Invalid(String),
}

/// Which of the peer's plugins it is compatible with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plugin {
    /// `isa`, the default from 20 on.
    Isa,
    /// `jerasure`.
    Jerasure,
}

impl Plugin {
    /// Its name in profiles.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Plugin::Isa => "isa",
            Plugin::Jerasure => "jerasure",
        }
    }

    /// Its techniques, the default first.
    fn techniques(self) -> &'static [Technique] {
        use Technique as T;
        match self {
            Plugin::Isa => &[T::ReedSolVan, T::Cauchy],
            Plugin::Jerasure => &[
                T::ReedSolVan,
                T::ReedSolR6Op,
                T::CauchyOrig,
                T::CauchyGood,
                T::Liberation,
                T::BlaumRoth,
                T::Liber8tion,
            ],
        }
    }
}

/// How coding chunks are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Technique {
    /// Reed-Solomon with a Vandermonde matrix; each plugin has its own.
    ReedSolVan,
    /// Reed-Solomon for two coding chunks. jerasure.
    ReedSolR6Op,
    /// isa's Cauchy matrix, over bytes.
    Cauchy,
    /// A Cauchy bit-matrix. jerasure.
    CauchyOrig,
    /// A Cauchy bit-matrix of fewer XORs. jerasure.
    CauchyGood,
    /// Minimal density, `w` prime. jerasure.
    Liberation,
    /// Minimal density, `w + 1` prime. jerasure.
    BlaumRoth,
    /// Minimal density, `w = 8`. jerasure.
    Liber8tion,
}

impl Technique {
    /// Its name in profiles.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Technique::ReedSolVan => "reed_sol_van",
            Technique::ReedSolR6Op => "reed_sol_r6_op",
            Technique::Cauchy => "cauchy",
            Technique::CauchyOrig => "cauchy_orig",
            Technique::CauchyGood => "cauchy_good",
            Technique::Liberation => "liberation",
            Technique::BlaumRoth => "blaum_roth",
            Technique::Liber8tion => "liber8tion",
        }
    }

    /// Codes of two coding chunks only, with bit-matrices of few ones.
    fn is_minimal_density(self) -> bool {
        matches!(self, Technique::Liberation | Technique::BlaumRoth | Technique::Liber8tion)
    }

    fn has_packets(self) -> bool {
        self.is_minimal_density() || matches!(self, Technique::CauchyOrig | Technique::CauchyGood)
    }

    /// Those that read `jerasure-per-chunk-alignment`.
    fn may_align_chunks(self, plugin: Plugin) -> bool {
        plugin == Plugin::Jerasure
            && matches!(self, Technique::ReedSolVan | Technique::CauchyOrig | Technique::CauchyGood)
    }

    /// Defaults of k, m and w.
    fn defaults(self) -> (i64, i64, i64) {
        match self {
            Technique::ReedSolR6Op => (7, 2, 8),
            Technique::Liberation => (2, 2, 7),
            // The peer's default w, 7, gives a code that cannot rebuild all pairs.
            Technique::BlaumRoth => (2, 2, 6),
            Technique::Liber8tion => (2, 2, 8),
            _ => (7, 3, 8),
        }
    }
}

/// An erasure code profile: the peer's map of strings, read and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Which plugin's bytes.
    pub plugin: Plugin,
    /// Which of its codes.
    pub technique: Technique,
    /// Data chunks, 2..=126.
    pub k: usize,
    /// Coding chunks, 1..=125; `k + m` is at most 127.
    pub m: usize,
    /// Bits of a word of the code. isa: 8.
    pub w: u32,
    /// Bytes of a packet, for codes of packets; else 0.
    pub packetsize: usize,
    /// Bytes of a chunk that one stripe of a pool has; 0 when the profile does not say.
    pub stripe_unit: u64,
    /// jerasure's `jerasure-per-chunk-alignment`: chunk sizes are rounded per chunk and not
    /// per stripe.
    pub per_chunk_alignment: bool,
}

/// Bytes the peer aligns vectors to: jerasure's `LARGEST_VECTOR_WORDSIZE`.
const VECTOR: u64 = 16;
/// isa's `EC_ISA_ADDRESS_ALIGNMENT`.
const ISA_ALIGNMENT: u64 = 32;
/// The peer's bound on `k + m`: a shard's number is a signed byte.
const SHARDS_MAX: usize = 127;
/// With 127 chunks the width of a stripe still fits a pool's 32 bits.
const STRIPE_UNIT_MAX: u64 = 16 << 20;
/// A sane end for packets; the peer has none.
const PACKET_MAX: i64 = 1 << 20;

impl Profile {
    /// Reads a profile. Absent and empty values have the plugin's defaults, keys that are
    /// not the plugin's (`crush-*`, `mapping` apart) are left to others.
    ///
    /// # Errors
    /// What the peer refuses, in its words where it has them; and what is not built:
    /// plugins `lrc`, `shec` and `clay`, the key `mapping`, words of other widths.
    pub fn parse(given: &BTreeMap<String, String>) -> Result<Profile, ProfileError> {
        let text = |key: &str| given.get(key).map(String::as_str).filter(|v| !v.is_empty());
        let plugin = match text("plugin").unwrap_or("isa") {
            "isa" => Plugin::Isa,
            "jerasure" => Plugin::Jerasure,
            name @ ("lrc" | "shec" | "clay") => {
                return Err(ProfileError::NotBuilt(format!("erasure code plugin '{name}'")));
            }
            name => return Err(ProfileError::UnknownPlugin(name.to_owned())),
        };
        if text("mapping").is_some() {
            return Err(ProfileError::NotBuilt("a mapping of chunks".to_owned()));
        }
        let techniques = plugin.techniques();
        let wanted = text("technique").unwrap_or(techniques[0].name());
        let Some(&technique) = techniques.iter().find(|t| t.name() == wanted) else {
            let between = if plugin == Plugin::Isa { "," } else { ", " };
            let names: Vec<&str> = techniques.iter().map(|t| t.name()).collect();
            return Err(ProfileError::UnknownTechnique {
                technique: wanted.to_owned(),
                list: names.join(between),
            });
        };
        let (k, m, w) = technique.defaults();
        let k = number(given, "k", k)?;
        let m = number(given, "m", m)?;
        let w = if plugin == Plugin::Isa { 8 } else { number(given, "w", w)? };
        let packetsize =
            if technique.has_packets() { number(given, "packetsize", 2048)? } else { 0 };
        require(k >= 2, || format!("k={k} must be >= 2"))?;
        require(m >= 1, || format!("m={m} must be >= 1"))?;
        require(k.saturating_add(m) <= SHARDS_MAX as i64, || {
            format!("(k+m)={} must be <= {SHARDS_MAX}", k.saturating_add(m))
        })?;
        require((0..=32).contains(&w), || format!("w={w} must be between 0 and 32"))?;
        require((0..=PACKET_MAX).contains(&packetsize), || {
            format!("packetsize={packetsize} must be between 0 and {PACKET_MAX}")
        })?;
        let stripe_unit = match text("stripe_unit") {
            None => 0,
            Some(size) => cli::parse_iec(size).map_err(|why| {
                ProfileError::Invalid(format!("could not parse stripe_unit '{size}': {why}"))
            })?,
        };
        require(stripe_unit <= STRIPE_UNIT_MAX, || {
            format!("stripe_unit={stripe_unit} must be at most {STRIPE_UNIT_MAX}")
        })?;
        let profile = Profile {
            plugin,
            technique,
            k: k as usize,
            m: m as usize,
            w: w as u32,
            packetsize: packetsize as usize,
            stripe_unit,
            per_chunk_alignment: technique.may_align_chunks(plugin)
                && matches!(text("jerasure-per-chunk-alignment"), Some("yes" | "true")),
        };
        profile.check()?;
        Ok(profile)
    }

    /// The keys the plugin itself fills in: what the peer stores for a profile beside its
    /// `crush-*` keys.
    #[must_use]
    pub fn filled(&self) -> BTreeMap<String, String> {
        let mut pairs = vec![
            ("plugin", self.plugin.name().to_owned()),
            ("technique", self.technique.name().to_owned()),
            ("k", self.k.to_string()),
            ("m", self.m.to_string()),
        ];
        if self.plugin == Plugin::Jerasure {
            pairs.push(("w", self.w.to_string()));
            if self.technique.has_packets() {
                pairs.push(("packetsize", self.packetsize.to_string()));
            }
            if self.technique.may_align_chunks(self.plugin) {
                let value = self.per_chunk_alignment.to_string();
                pairs.push(("jerasure-per-chunk-alignment", value));
            }
        }
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// Bytes of each chunk when `stripe_width` bytes are encoded at once: at least
    /// `stripe_width / k`, rounded up to what the plugin asks for. The peer's
    /// `get_chunk_size`.
    #[must_use]
    pub fn chunk_size(&self, stripe_width: u64) -> u64 {
        let k = self.k as u64;
        if self.plugin == Plugin::Isa {
            return stripe_width.div_ceil(k).next_multiple_of(ISA_ALIGNMENT);
        }
        let unit = u64::from(self.w) * (self.packetsize as u64).max(1);
        if self.per_chunk_alignment {
            let packets = self.technique.has_packets();
            let alignment = if packets { unit.next_multiple_of(VECTOR) } else { unit * VECTOR };
            return stripe_width.div_ceil(k).next_multiple_of(alignment).max(alignment);
        }
        let ints = unit * 4;
        let alignment = k * if ints.is_multiple_of(VECTOR) { ints } else { unit * VECTOR };
        stripe_width.next_multiple_of(alignment) / k
    }

    /// Whether the peer allows `allow_ec_optimizations` with it.
    #[must_use]
    pub fn supports_optimizations(&self) -> bool {
        self.plugin == Plugin::Isa || self.technique == Technique::ReedSolVan
    }

    /// The field of the words.
    pub(crate) fn field(&self) -> Result<Field, ProfileError> {
        // Minimal density codes have no field: their matrices are of bits.
        if self.technique.is_minimal_density() {
            return Ok(Field::BITS);
        }
        Field::new(self.w)
            .ok_or_else(|| ProfileError::NotBuilt(format!("a code of w={} bits", self.w)))
    }

    /// Whether the numbers give a code that rebuilds any `m` lost shards.
    pub(crate) fn check(&self) -> Result<(), ProfileError> {
        let Profile { technique, k, m, w, packetsize, .. } = *self;
        require(k >= 2 && m >= 1 && k + m <= SHARDS_MAX, || {
            format!("k={k} and m={m} are no erasure code")
        })?;
        if technique.has_packets() {
            require(packetsize > 0, || format!("packetsize={packetsize} must be set"))?;
            // Chunks of the peer's size would end within a group.
            let group = w as usize * packetsize;
            require(!self.per_chunk_alignment || group.is_multiple_of(VECTOR as usize), || {
                format!(
                    "w*packetsize={group} must be a multiple of {VECTOR} with jerasure-per-chunk-alignment"
                )
            })?;
        }
        match (self.plugin, technique) {
            (Plugin::Isa, Technique::ReedSolVan) => {
                require(k <= 32, || {
                    format!("Vandermonde: m={m} should be less/equal than 32 : revert to k=32")
                })?;
                require(m <= 4, || {
                    format!(
                        "Vandermonde: m={m} should be less than 5 to guarantee an MDS codec: revert to m=4"
                    )
                })?;
                require(m < 4 || k <= 21, || {
                    format!(
                        "Vandermonde: k={k} should be less than 22 to guarantee an MDS codec with m=4: revert to k=21"
                    )
                })
            }
            (Plugin::Isa, _) => Ok(()),
            (Plugin::Jerasure, Technique::ReedSolVan) => self.check_words("ReedSolomonVandermonde"),
            (Plugin::Jerasure, Technique::ReedSolR6Op) => {
                require(m == 2, || {
                    format!("ReedSolomonRAID6: m={m} must be 2 for RAID6: revert to 2")
                })?;
                self.check_words("ReedSolomonRAID6")
            }
            (Plugin::Jerasure, Technique::CauchyOrig | Technique::CauchyGood) => {
                self.field()?;
                require(w >= 16 || k + m <= 1 << w, || {
                    format!("k+m={} must be less than or equal to 2^w={}", k + m, 1u64 << w)
                })
            }
            (Plugin::Jerasure, _) => {
                require(m == 2, || format!("{}: m={m} must be 2", technique.name()))?;
                require(k <= w as usize, || format!("k={k} must be less than or equal to w={w}"))?;
                match technique {
                    Technique::Liberation => require(w > 2 && is_prime(w), || {
                        format!("w={w} must be greater than two and be prime")
                    })?,
                    Technique::BlaumRoth => require(w > 2 && is_prime(w + 1), || {
                        format!("w={w} must be greater than two and w+1 must be prime")
                    })?,
                    _ => require(w == 8, || format!("w={w} must be 8 for liber8tion"))?,
                }
                require(packetsize % 4 == 0, || {
                    format!("packetsize={packetsize} must be a multiple of sizeof(int) = 4")
                })
            }
        }
    }

    fn check_words(&self, who: &str) -> Result<(), ProfileError> {
        let w = self.w;
        require(matches!(w, 8 | 16 | 32), || {
            format!("{who}: w={w} must be one of {{8, 16, 32}} : revert to 8")
        })
    }
}

fn is_prime(n: u32) -> bool {
    n >= 2 && (2..n).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d))
}

fn require(holds: bool, why: impl FnOnce() -> String) -> Result<(), ProfileError> {
    if holds { Ok(()) } else { Err(ProfileError::Invalid(why())) }
}

/// An integer of the profile; the peer's `ErasureCode::to_int`.
fn number(given: &BTreeMap<String, String>, key: &str, default: i64) -> Result<i64, ProfileError> {
    let Some(value) = given.get(key).filter(|v| !v.is_empty()) else {
        return Ok(default);
    };
    let digits = value.strip_prefix(['-', '+']).unwrap_or(value);
    let why = if digits.is_empty() || digits.bytes().any(|b| !b.is_ascii_digit()) {
        format!("Expected option value to be integer, got '{value}'")
    } else {
        match value.parse::<i32>() {
            Ok(n) => return Ok(n.into()),
            Err(_) => format!("The option value '{value}' seems to be invalid"),
        }
    };
    Err(ProfileError::Invalid(format!(
        "could not convert {key}={value} to int because {why}, set to default {default}"
    )))
}
