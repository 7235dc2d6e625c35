//! Checksums of bodies: MD5 for ETags, and those that clients send beside.
//!
//! Source: AWS's "Checking object integrity"; `rgw_cksum.h`. Stock looks at a checksum's header only where an
//! algorithm is named too, and takes a wrong one otherwise; ours checks each that it gets.

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crc_fast::{CrcAlgorithm, Digest};
use md5::Digest as _;

use crate::error::{Code, Error, Result};
use crate::request::Headers;
use crate::uri;

/// An algorithm that clients may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "names of algorithms")]
pub enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Crc32, Self::Crc32c, Self::Crc64Nvme, Self::Sha1, Self::Sha256];

    /// As in `x-amz-checksum-algorithm` and XML: `CRC64NVME`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
        }
    }

    /// Its header or line of a trailer.
    #[must_use]
    pub fn header(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
        }
    }

    /// Bytes of a sum.
    #[must_use]
    pub fn len(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// `false`: every algorithm has bytes.
    #[must_use]
    pub fn is_empty(self) -> bool {
        false
    }

    /// Whether sums of parts combine to the sum of the whole.
    #[must_use]
    pub fn combines(self) -> bool {
        self.crc().is_some()
    }

    fn crc(self) -> Option<CrcAlgorithm> {
        match self {
            Self::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Self::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            Self::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
            Self::Sha1 | Self::Sha256 => None,
        }
    }

    /// Reads a name, in any case.
    ///
    /// # Errors
    /// [`Code::InvalidRequest`].
    pub fn parse(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|a| a.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            let text = format!("The checksum algorithm {name:?} is not built: CRC32, CRC32C, CRC64NVME, SHA1 and SHA256 are.");
            Error::new(Code::InvalidRequest, text)
        })
    }

    /// Reads a sum in base64.
    ///
    /// # Errors
    /// [`Code::InvalidRequest`] where it has another length or is no base64.
    pub fn sum(self, text: &str) -> Result<Sum> {
        let bytes = STANDARD.decode(text).ok().filter(|b| b.len() == self.len());
        let bad = || {
            Error::new(
                Code::InvalidRequest,
                format!("The value of {} is not {} bytes in base64.", self.header(), self.len()),
            )
        };
        Ok(Sum { algorithm: self, bytes: bytes.ok_or_else(bad)? })
    }
}

/// A sum by one algorithm, big-endian where it is a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// What it was made by.
    pub algorithm: Algorithm,
    bytes: Vec<u8>,
}

impl Sum {
    /// The sum's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// As headers and XML have it.
    #[must_use]
    pub fn base64(&self) -> String {
        STANDARD.encode(&self.bytes)
    }

    /// The sum of `self`'s bytes followed by `len` bytes whose sum is `next`; `None` where the algorithm cannot.
    #[must_use]
    pub fn then(&self, next: &Self, len: u64) -> Option<Self> {
        let crc = self.algorithm.crc().filter(|_| self.algorithm == next.algorithm)?;
        let number = |bytes: &[u8]| bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b));
        let sum = crc_fast::checksum_combine(crc, number(&self.bytes), number(&next.bytes), len);
        Some(Self {
            algorithm: self.algorithm,
            bytes: sum.to_be_bytes()[8 - self.algorithm.len()..].to_vec(),
        })
    }
}

enum Running {
    Crc(Algorithm, Box<Digest>),
    Sha(Algorithm, digest::Context),
}

/// Sums bytes by one algorithm as they come.
struct Hasher(Running);

impl Hasher {
    fn new(algorithm: Algorithm) -> Self {
        Self(match (algorithm, algorithm.crc()) {
            (_, Some(crc)) => Running::Crc(algorithm, Box::new(Digest::new(crc))),
            (Algorithm::Sha1, _) => {
                Running::Sha(algorithm, digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY))
            }
            _ => Running::Sha(algorithm, digest::Context::new(&digest::SHA256)),
        })
    }

    fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Running::Crc(_, digest) => digest.update(bytes),
            Running::Sha(_, context) => context.update(bytes),
        }
    }

    fn finish(self) -> Sum {
        match self.0 {
            Running::Crc(algorithm, digest) => {
                let bytes = digest.finalize().to_be_bytes();
                Sum { algorithm, bytes: bytes[8 - algorithm.len()..].to_vec() }
            }
            Running::Sha(algorithm, context) => {
                Sum { algorithm, bytes: context.finish().as_ref().to_vec() }
            }
        }
    }
}

/// The sum of bytes at hand.
#[must_use]
pub fn sum(algorithm: Algorithm, bytes: &[u8]) -> Sum {
    let mut hasher = Hasher::new(algorithm);
    hasher.update(bytes);
    hasher.finish()
}

/// The MD5 of bytes at hand.
#[must_use]
pub fn md5(bytes: &[u8]) -> [u8; 16] {
    md5::Md5::digest(bytes).into()
}

/// CRC-32C of bytes.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    let sum = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes);
    u32::try_from(sum).expect("it has 32 bits")
}

/// The ETag of an object that a part was appended to: the MD5 of the old ETag's sum and the part's, and the part's number;
/// of a new object that of its bytes. `None` where the old ETag has no sum.
///
/// Source: `rgw_putobj_processor.cc` (`AppendObjectProcessor::complete`).
#[must_use]
pub fn appended_etag(old: Option<&str>, added: &[u8; 16], part: u32) -> Option<String> {
    let Some(old) = old else { return Some(uri::to_hex(added)) };
    let sum = uri::from_hex(old.get(..32)?)?;
    Some(format!("{}-{part}", uri::to_hex(&md5(&[&sum[..], added].concat()))))
}

/// What a request says that its body sums to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Content-MD5.
    pub md5: Option<[u8; 16]>,
    /// x-amz-content-sha256.
    pub sha256: Option<[u8; 32]>,
    /// The checksum of a header.
    pub sum: Option<Sum>,
    /// What the body is summed by: the algorithm of `sum`, of the trailer, or one that was only named.
    pub algorithm: Option<Algorithm>,
    /// Whether the trailer brings the sum.
    pub in_trailer: bool,
}

impl Expected {
    /// Reads Content-MD5, `x-amz-checksum-*`, `x-amz-sdk-checksum-algorithm` and `x-amz-trailer`.
    ///
    /// # Errors
    /// [`Code::InvalidDigest`]; [`Code::InvalidRequest`] for two checksums, or another one than named.
    pub fn of(headers: &Headers) -> Result<Self> {
        let mut out = Self::default();
        if let Some(text) = headers.single("content-md5")? {
            let sum = STANDARD.decode(text).ok().and_then(|b| b.try_into().ok());
            out.md5 = Some(sum.ok_or_else(|| Error::from(Code::InvalidDigest))?);
        }
        for algorithm in Algorithm::ALL {
            if let Some(text) = headers.single(algorithm.header())? {
                if out.sum.is_some() {
                    return Err(Error::new(
                        Code::InvalidRequest,
                        "Only one checksum may be in a request.",
                    ));
                }
                out.sum = Some(algorithm.sum(text)?);
            }
        }
        let trailer = headers.single("x-amz-trailer")?.unwrap_or_default();
        let in_trailer =
            |a: &Algorithm| trailer.split(',').any(|t| t.trim().eq_ignore_ascii_case(a.header()));
        let mut announced = Algorithm::ALL.into_iter().filter(in_trailer);
        out.algorithm = announced.next();
        if announced.next().is_some() || (out.algorithm.is_some() && out.sum.is_some()) {
            return Err(Error::new(Code::InvalidRequest, "Only one checksum may be in a request."));
        }
        out.in_trailer = out.algorithm.is_some();
        let brought = out.algorithm.or(out.sum.as_ref().map(|s| s.algorithm));
        if let Some(name) = headers.single("x-amz-sdk-checksum-algorithm")? {
            let named = Algorithm::parse(name)?;
            if brought.is_some_and(|b| b != named) {
                let text = "The request names another checksum algorithm than it brings.";
                return Err(Error::new(Code::InvalidRequest, text));
            }
            out.algorithm = Some(named);
        }
        out.algorithm = out.algorithm.or(brought);
        Ok(out)
    }
}

/// Sums a body as it comes and compares at its end.
pub struct Body {
    expected: Expected,
    md5: md5::Md5,
    sha256: Option<digest::Context>,
    sum: Option<Hasher>,
    len: u64,
}

/// What a body came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sums {
    /// How many bytes it had.
    pub len: u64,
    /// The ETag of a plain object.
    pub md5: [u8; 16],
    /// By the algorithm asked for, if any.
    pub sum: Option<Sum>,
}

impl Body {
    /// Begins to sum.
    #[must_use]
    pub fn new(expected: Expected) -> Self {
        let sha256 = expected.sha256.map(|_| digest::Context::new(&digest::SHA256));
        let sum = expected.algorithm.map(Hasher::new);
        Self { expected, md5: md5::Md5::new(), sha256, sum, len: 0 }
    }

    /// Takes the object's next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        self.md5.update(bytes);
        if let Some(context) = &mut self.sha256 {
            context.update(bytes);
        }
        if let Some(hasher) = &mut self.sum {
            hasher.update(bytes);
        }
    }

    /// Compares; `trailer` are the lines behind a chunked body.
    ///
    /// # Errors
    /// [`Code::XAmzContentSHA256Mismatch`], [`Code::BadDigest`]; [`Code::InvalidRequest`] where the trailer lacks what
    /// was announced.
    pub fn finish(self, trailer: &[(String, String)]) -> Result<Sums> {
        let context = self.sha256.map(|c| c.finish());
        if let (Some(want), Some(got)) = (self.expected.sha256, context)
            && got.as_ref() != want
        {
            return Err(Code::XAmzContentSHA256Mismatch.into());
        }
        let md5: [u8; 16] = self.md5.finalize().into();
        if self.expected.md5.is_some_and(|want| want != md5) {
            return Err(Error::new(Code::BadDigest, "Content-MD5 does not fit the body."));
        }
        let sum = self.sum.map(Hasher::finish);
        let mut want = self.expected.sum;
        for (name, value) in trailer {
            if let Some(algorithm) = Algorithm::ALL.into_iter().find(|a| a.header() == name) {
                want = Some(algorithm.sum(value)?);
            }
        }
        if self.expected.in_trailer && want.is_none() {
            return Err(Error::new(
                Code::InvalidRequest,
                "The trailer lacks the checksum that x-amz-trailer names.",
            ));
        }
        if let Some(want) = want
            && sum.as_ref() != Some(&want)
        {
            return Err(Error::new(
                Code::BadDigest,
                format!("{} does not fit the body.", want.algorithm.header()),
            ));
        }
        Ok(Sums { len: self.len, md5, sum })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn etags_of_appended_objects() {
        // As stock answered: "hello ", "world", "!", nothing.
        let mut etag = None;
        for (part, bytes, want) in [
            (1, "hello ", "f814893777bcc2295fff05f00e508da6"),
            (2, "world", "e09e4fd6265b36115fe3db32df945d84-2"),
            (3, "!", ""),
            (4, "", "f1f8164b7b25e9809d046d2aa385fcc5-4"),
        ] {
            etag = appended_etag(etag.as_deref(), &md5(bytes.as_bytes()), part);
            assert!(want.is_empty() || etag.as_deref() == Some(want), "{part}: {etag:?}");
        }
        for bad in ["", "abc", "not hex at all, but of 32 letters", "ä"] {
            assert_eq!(appended_etag(Some(bad), &[0; 16], 2), None);
        }
    }

    #[test]
    fn known_sums() {
        // Check values of the catalogue of CRCs, and of the hashes' standards.
        for (algorithm, hex) in [
            (Algorithm::Crc32, "cbf43926"),
            (Algorithm::Crc32c, "e3069283"),
            (Algorithm::Crc64Nvme, "ae8b14860a799888"),
            (Algorithm::Sha1, "f7c3bc1d808e04732adf679965ccc34ca7ae3441"),
            (Algorithm::Sha256, "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"),
        ] {
            assert_eq!(
                crate::uri::to_hex(sum(algorithm, b"123456789").bytes()),
                hex,
                "{algorithm:?}"
            );
        }
        assert_eq!(crate::uri::to_hex(&md5(b"")), "d41d8cd98f00b204e9800998ecf8427e");
    }

    proptest! {
        /// Sums of parts combine to that of the whole.
        #[test]
        fn parts_combine(a in any::<Vec<u8>>(), b in any::<Vec<u8>>()) {
            for algorithm in Algorithm::ALL.into_iter().filter(|a| a.combines()) {
                let both = sum(algorithm, &a).then(&sum(algorithm, &b), b.len() as u64);
                prop_assert_eq!(both, Some(sum(algorithm, &[a.clone(), b.clone()].concat())));
            }
        }
    }

    fn put(headers: &[(&str, &str)], body: &[u8], trailer: &[(&str, &str)]) -> Result<Sums> {
        let headers = Headers::new(headers.iter().copied()).unwrap();
        let mut sums = Body::new(Expected::of(&headers)?);
        sums.update(body);
        let trailer: Vec<_> = trailer.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        sums.finish(&trailer)
    }

    #[test]
    fn what_is_sent_is_checked() {
        let crc = sum(Algorithm::Crc32, b"hello").base64();
        let header = ("x-amz-checksum-crc32", crc.as_str());
        assert!(put(&[header], b"hello", &[]).unwrap().sum.is_some());
        // Without the algorithm's header, too.
        assert_eq!(put(&[header], b"other", &[]).unwrap_err().code, Code::BadDigest);
        assert_eq!(
            put(&[("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")], b"x", &[]).unwrap_err().code,
            Code::BadDigest
        );
        assert_eq!(
            put(&[("content-md5", "AAAA")], b"x", &[]).unwrap_err().code,
            Code::InvalidDigest
        );
        let announced = ("x-amz-trailer", "x-amz-checksum-crc32");
        assert!(put(&[announced], b"hello", &[header]).is_ok());
        assert_eq!(put(&[announced], b"other", &[header]).unwrap_err().code, Code::BadDigest);
        for bad in [
            &[header, ("x-amz-checksum-crc32c", "AAAAAA==")][..],
            &[header, ("x-amz-sdk-checksum-algorithm", "SHA1")],
            &[("x-amz-checksum-crc32", "AAAA")],
            &[("x-amz-sdk-checksum-algorithm", "ROT13")],
            &[header, ("x-amz-trailer", "x-amz-checksum-sha1")],
        ] {
            assert_eq!(put(bad, b"hello", &[]).unwrap_err().code, Code::InvalidRequest, "{bad:?}");
        }
    }

    #[test]
    fn an_announced_trailer_must_come() {
        assert_eq!(
            put(&[("x-amz-trailer", "x-amz-checksum-crc32")], b"x", &[]).unwrap_err().code,
            Code::InvalidRequest
        );
    }
}
