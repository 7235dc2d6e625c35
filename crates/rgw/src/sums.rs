//! Checksums of objects: as they are stored, and those of uploads, made of their parts'.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rgw_core::formats::{Opaque, Upload, UploadPart};
use rgw_core::meta::Attrs;
use rgw_proto::checksum::{self, Algorithm, Sum};
use rgw_proto::request::Headers;
use rgw_proto::{Code, Error, Result};
use types::{Bytes, Denc, Features, Reader, Writer};

/// Flags of a stored sum: of the second form; of the sums of parts; of all bytes; made of the sums of parts.
const SECOND_FORM: u16 = 1;
const COMPOSITE: u16 = 2;
const FULL_OBJECT: u16 = 4;
const COMBINED: u16 = 8;

/// Numbers of `rgw::cksum::Type`.
fn number(algorithm: Algorithm) -> u16 {
    match algorithm {
        Algorithm::Crc32 => 1,
        Algorithm::Crc32c => 2,
        Algorithm::Sha1 => 4,
        Algorithm::Sha256 => 5,
        Algorithm::Crc64Nvme => 8,
    }
}

fn algorithm(number_of: u16) -> Option<Algorithm> {
    Algorithm::ALL.into_iter().find(|a| number(*a) == number_of)
}

/// How a checksum is stored: `rgw::cksum::Cksum`, `ENCODE_START(2, 1)`.
fn encode(sum: &Sum, flags: u16) -> Bytes {
    let mut w = Writer::new(Features::ALL);
    w.framed(2, 1, |w| {
        w.u16(number(sum.algorithm));
        w.u16(u16::try_from(sum.bytes().len()).expect("a sum is short"));
        w.raw(sum.bytes());
        w.u16(SECOND_FORM | flags);
    });
    w.finish()
}

fn decode(bytes: &Bytes) -> Option<(Sum, u16)> {
    let mut r = Reader::shared(bytes);
    let read = r.framed("Cksum", 2, |r, v| {
        let (kind, len) = (r.u16()?, r.u16()?);
        let sum = r.share(usize::from(len))?;
        Ok((kind, sum, if v >= 2 { r.u16()? } else { FULL_OBJECT }))
    });
    let (kind, sum, flags) = read.ok()?;
    let sum = algorithm(kind)?.sum(&STANDARD.encode(&sum)).ok()?;
    Some((sum, flags))
}

/// Stores the sum of all bytes of an object that came as one.
pub fn note(attrs: &mut Attrs, sum: &Sum) {
    attrs.insert("cksum".into(), encode(sum, FULL_OBJECT));
}

/// The sum of a part, as its upload lists it.
#[must_use]
pub fn of_part(sum: &Sum) -> Option<Opaque> {
    Opaque::decode(&mut Reader::shared(&encode(sum, FULL_OBJECT))).ok()
}

/// A sum as clients see it.
pub struct Shown {
    /// What it was made by.
    pub algorithm: Algorithm,
    /// In base64; that of parts' sums with their number behind.
    pub text: String,
    /// `FULL_OBJECT` or `COMPOSITE`.
    pub kind: &'static str,
}

/// The sum that is stored with an object.
#[must_use]
pub fn shown(attrs: &Attrs, etag: &str) -> Option<Shown> {
    let (sum, flags) = decode(attrs.get("cksum")?)?;
    let (algorithm, mut text) = (sum.algorithm, sum.base64());
    if flags & COMPOSITE == 0 {
        return Some(Shown { algorithm, text, kind: "FULL_OBJECT" });
    }
    if let Some((_, parts)) = etag.rsplit_once('-') {
        text = format!("{text}-{parts}");
    }
    Some(Shown { algorithm, text, kind: "COMPOSITE" })
}

/// Notes in a new upload how its parts are to be summed.
///
/// # Errors
/// [`Code::InvalidRequest`] for an algorithm or type that is none, or cannot be had together.
pub fn of_upload(headers: &Headers, info: &mut Upload) -> Result<()> {
    let kind = headers.single("x-amz-checksum-type")?;
    let Some(name) = headers.single("x-amz-checksum-algorithm")? else {
        return match kind {
            Some(_) => {
                let text = "x-amz-checksum-type wants x-amz-checksum-algorithm.";
                Err(Error::new(Code::InvalidRequest, text))
            }
            None => Ok(()),
        };
    };
    let algorithm = Algorithm::parse(name)?;
    let whole = match kind.map(str::to_ascii_uppercase).as_deref() {
        Some("FULL_OBJECT") if !algorithm.combines() => {
            let text =
                format!("{name} of a whole upload cannot be made of its parts': use COMPOSITE.");
            return Err(Error::new(Code::InvalidRequest, text));
        }
        Some("COMPOSITE") if algorithm == Algorithm::Crc64Nvme => {
            return Err(Error::new(Code::InvalidRequest, "CRC64NVME is FULL_OBJECT only."));
        }
        Some("FULL_OBJECT") => true,
        Some("COMPOSITE") => false,
        Some(_) => {
            let text = "x-amz-checksum-type is FULL_OBJECT or COMPOSITE.";
            return Err(Error::new(Code::InvalidRequest, text));
        }
        None => algorithm.combines(),
    };
    info.sum_type = number(algorithm);
    info.sum_flags = SECOND_FORM | if whole { FULL_OBJECT } else { COMPOSITE };
    Ok(())
}

/// The sum of an upload, of those of its parts, as an attribute; none where the upload has no algorithm, or a part no
/// sum of it. A sum that the request names must be the same.
///
/// # Errors
/// [`Code::BadDigest`]; [`Code::InvalidRequest`] for a sum named wrongly.
pub fn of_parts(headers: &Headers, info: &Upload, parts: &[&UploadPart]) -> Result<Attrs> {
    let mut named = None;
    for algorithm in Algorithm::ALL {
        if let Some(text) = headers.single(algorithm.header())? {
            let text = text.rsplit_once('-').map_or(text, |(sum, _)| sum);
            named = Some(algorithm.sum(text)?);
        }
    }
    let Some(made) = algorithm(info.sum_type).and_then(|a| combined(a, info.sum_flags, parts))
    else {
        return Ok(Attrs::new());
    };
    if named.is_some_and(|named| named != made.0) {
        return Err(Error::new(Code::BadDigest, "The checksum sent is not that of the parts."));
    }
    Ok([("cksum".to_owned(), encode(&made.0, made.1))].into())
}

fn combined(algorithm: Algorithm, flags: u16, parts: &[&UploadPart]) -> Option<(Sum, u16)> {
    let sums = parts.iter().map(|part| {
        let (sum, _) = decode(part.sum.as_ref()?.bytes())?;
        (sum.algorithm == algorithm).then_some((sum, part.accounted_size))
    });
    let sums: Vec<(Sum, u64)> = sums.collect::<Option<_>>()?;
    if flags & COMPOSITE != 0 {
        let all: Vec<u8> = sums.iter().flat_map(|(sum, _)| sum.bytes().iter().copied()).collect();
        return Some((checksum::sum(algorithm, &all), COMPOSITE));
    }
    let mut sums = sums.into_iter();
    let first = sums.next()?.0;
    let whole = sums.try_fold(first, |before, (sum, len)| before.then(&sum, len))?;
    Some((whole, FULL_OBJECT | COMBINED))
}

#[cfg(test)]
mod tests {
    use rgw_core::formats::{Manifest, ObjectName};

    use super::*;

    fn part(data: &[u8], algorithm: Algorithm) -> UploadPart {
        UploadPart {
            number: 1,
            size: data.len() as u64,
            etag: String::new(),
            modified: types::UTime::ZERO,
            manifest: Manifest::of_part(ObjectName::default(), 1, 0, 1, "", ""),
            compression: UploadPart::uncompressed(),
            accounted_size: data.len() as u64,
            past_prefixes: Default::default(),
            sum: of_part(&checksum::sum(algorithm, data)),
        }
    }

    fn upload(headers: &[(&str, &str)]) -> Result<Upload> {
        let mut info = Upload::default();
        of_upload(&Headers::new(headers.iter().copied()).unwrap(), &mut info)?;
        Ok(info)
    }

    #[test]
    fn sums_of_uploads() {
        let (a, b) = (b"first part".as_slice(), b"and the second".as_slice());
        let none = Headers::default();
        for name in ["CRC32", "CRC32C", "CRC64NVME"] {
            let algorithm = Algorithm::parse(name).unwrap();
            let info = upload(&[("x-amz-checksum-algorithm", name)]).unwrap();
            let parts = [part(a, algorithm), part(b, algorithm)];
            let attrs = of_parts(&none, &info, &[&parts[0], &parts[1]]).unwrap();
            let shown = shown(&attrs, "e-2").unwrap();
            assert_eq!(shown.text, checksum::sum(algorithm, &[a, b].concat()).base64(), "{name}");
            assert_eq!(shown.kind, "FULL_OBJECT");
            let wrong = [(algorithm.header(), checksum::sum(algorithm, b"x").base64())];
            let wrong = Headers::new(wrong).unwrap();
            let refused = of_parts(&wrong, &info, &[&parts[0], &parts[1]]);
            assert_eq!(refused.unwrap_err().code, Code::BadDigest);
            let mut less = parts[1].clone();
            less.sum = None;
            assert!(of_parts(&none, &info, &[&parts[0], &less]).unwrap().is_empty());
        }
        let info = upload(&[("x-amz-checksum-algorithm", "SHA256")]).unwrap();
        let parts = [part(a, Algorithm::Sha256), part(b, Algorithm::Sha256)];
        let attrs = of_parts(&none, &info, &[&parts[0], &parts[1]]).unwrap();
        let shown = shown(&attrs, "e-2").unwrap();
        assert!(shown.kind == "COMPOSITE" && shown.text.ends_with("-2"));
        for bad in [
            [("x-amz-checksum-algorithm", "SHA1"), ("x-amz-checksum-type", "FULL_OBJECT")],
            [("x-amz-checksum-algorithm", "CRC64NVME"), ("x-amz-checksum-type", "COMPOSITE")],
            [("x-amz-checksum-algorithm", "CRC32"), ("x-amz-checksum-type", "x")],
            [("x", "y"), ("x-amz-checksum-type", "COMPOSITE")],
        ] {
            assert!(upload(&bad).is_err(), "{bad:?}");
        }
    }
}
