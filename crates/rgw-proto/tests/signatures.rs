//! Signatures against those that botocore made, and AWS's published examples.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use rgw_proto::request::{Head, Headers, Method};
use rgw_proto::sig::{Claim, Facts, Payload, Proof, chunked, v2, v4};
use rgw_proto::time::Time;
use rgw_proto::{Code, Result};

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const AWS_SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

/// A request of `vectors/s3/signatures.txt`.
#[derive(Clone, Debug, Default)]
struct Record {
    name: String,
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

fn records() -> Vec<Record> {
    let text = include_str!("../../../vectors/s3/signatures.txt");
    let mut out = Vec::new();
    for block in text.split("\n\n").filter(|b| b.starts_with("name: ")) {
        let mut record = Record::default();
        for line in block.lines() {
            let (name, value) = line.split_once(": ").unwrap_or((line.trim_end_matches(':'), ""));
            let pair =
                || value.split_once(": ").map(|(n, v)| (n.to_owned(), v.to_owned())).unwrap();
            match name {
                "name" => record.name = value.into(),
                "method" => record.method = value.into(),
                "target" => record.target = value.into(),
                "header" => record.headers.push(pair()),
                "field" => record.fields.push(pair()),
                "body" => record.body = STANDARD.decode(value).unwrap(),
                _ => panic!("{line}"),
            }
        }
        out.push(record);
    }
    assert!(out.len() > 150, "the vectors are there");
    out
}

fn head(method: &str, target: &str, headers: &[(String, String)]) -> Result<Head> {
    let headers = Headers::new(headers.iter().map(|(n, v)| (n, v.clone())))?;
    Head::new(Method::parse(method)?, target, headers)
}

fn verify(record: &Record, secret: &str, now: &str) -> Result<Proof> {
    let head = head(&record.method, &record.target, &record.headers)?;
    let sum = rgw_proto::checksum::sum(rgw_proto::checksum::Algorithm::Sha256, &record.body);
    let sum = rgw_proto::uri::to_hex(sum.bytes());
    let facts = Facts { bucket_of_host: None, body_sha256: Some(&sum) };
    Claim::of(&head)?.verify(&head, secret, Time::parse_basic(now).unwrap(), &facts)
}

#[test]
fn botocore_signs_and_we_agree() {
    for record in records().iter().filter(|r| r.fields.is_empty()) {
        let proof = verify(record, SECRET, "20260102T030405Z");
        proof.unwrap_or_else(|e| panic!("{}: {e}", record.name));
        let wrong = verify(record, "another", "20260102T030405Z").unwrap_err();
        assert_eq!(wrong.code, Code::SignatureDoesNotMatch, "{}", record.name);
    }
}

/// Time: 15 minutes around a header's, and a URL's own.
#[test]
fn times_have_bounds() {
    for record in records().iter().filter(|r| r.fields.is_empty()) {
        let code = |now| verify(record, SECRET, now).err().map(|e| e.code);
        if record.name.contains("query") {
            assert_eq!(code("20260102T031405Z"), None, "{}", record.name);
            assert_eq!(code("20260102T031406Z"), Some(Code::AccessDenied), "{}", record.name);
        } else {
            assert_eq!(code("20260102T031905Z"), None, "{}", record.name);
            assert_eq!(
                code("20260102T031906Z"),
                Some(Code::RequestTimeTooSkewed),
                "{}",
                record.name
            );
            assert_eq!(
                code("20260102T024904Z"),
                Some(Code::RequestTimeTooSkewed),
                "{}",
                record.name
            );
        }
    }
}

/// Whatever is signed and changed is refused: method, path, each parameter, each header that decides, one that is added.
#[test]
fn nothing_signed_can_be_changed() {
    let refused = |record: &Record, what: &str| {
        let error = verify(record, SECRET, "20260102T030405Z").err();
        assert!(error.is_some(), "{}: {what} was changed", record.name);
    };
    for record in records().iter().filter(|r| r.fields.is_empty() && r.name.starts_with("v")) {
        let mut r = record.clone();
        r.method = if r.method == "GET" { "DELETE".into() } else { "GET".into() };
        refused(&r, "the method");
        let mut r = record.clone();
        r.target = format!("/x{}", r.target);
        refused(&r, "the path");
        for subresource in ["acl", "policy", "versionId=1", "uploads"] {
            let mut r = record.clone();
            let join = if r.target.contains('?') { '&' } else { '?' };
            r.target += &format!("{join}{subresource}");
            refused(&r, subresource);
        }
        let mut r = record.clone();
        r.headers.push(("x-amz-copy-source".into(), "/b/k".into()));
        if !record.name.starts_with("v2-query") {
            refused(&r, "a header");
        }
        for at in 0..record.headers.len() {
            let name = record.headers[at].0.to_ascii_lowercase();
            let v2_free = record.name.starts_with("v2") && name == "host";
            if v2_free || name == "authorization" {
                continue;
            }
            let mut r = record.clone();
            r.headers[at].1.push('x');
            refused(&r, &name);
        }
    }
}

#[test]
fn forms() {
    for record in records().iter().filter(|r| !r.fields.is_empty()) {
        let get =
            |name: &str| record.fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let policy = get("policy").unwrap();
        let check = |policy: &str, secret: &str| match get("x-amz-credential") {
            Some(text) => {
                let scope = v4::credential(text).unwrap().1;
                v4::verify_form(policy, &scope, get("x-amz-signature").unwrap(), secret)
            }
            None => v2::verify_form(policy, get("signature").unwrap(), secret),
        };
        check(policy, SECRET).unwrap();
        assert_eq!(check(policy, "x").unwrap_err().code, Code::SignatureDoesNotMatch);
        assert_eq!(check("e30=", SECRET).unwrap_err().code, Code::SignatureDoesNotMatch);
    }
}

fn aws(
    method: &str,
    target: &str,
    host: &str,
    headers: &[(&str, &str)],
    now: &str,
) -> Result<Proof> {
    let mut all: Vec<_> = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    all.push(("Host".into(), host.into()));
    let head = head(method, target, &all)?;
    let bucket = host.strip_suffix(".s3.amazonaws.com");
    let facts = Facts { bucket_of_host: bucket, body_sha256: None };
    Claim::of(&head)?.verify(&head, AWS_SECRET, Time::parse_basic(now).unwrap(), &facts)
}

fn authorization(signed: &str, signature: &str) -> String {
    format!(
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders={signed},Signature={signature}"
    )
}

const EMPTY: (&str, &str) =
    ("x-amz-content-sha256", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
const DATE: (&str, &str) = ("x-amz-date", "20130524T000000Z");

/// The examples of "Authenticating Requests: Using the Authorization Header" and "… Query Parameters".
#[test]
fn published_examples_of_version_4() {
    let host = "examplebucket.s3.amazonaws.com";
    let get = |target: &str, signed: &str, signature: &str, more: &[(&str, &str)]| {
        let auth = authorization(signed, signature);
        let headers = [&[EMPTY, DATE, ("Authorization", &auth)], more].concat();
        aws("GET", target, host, &headers, "20130524T000000Z").map(drop)
    };
    let plain = "host;x-amz-content-sha256;x-amz-date";
    get(
        "/test.txt",
        "host;range;x-amz-content-sha256;x-amz-date",
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        &[("Range", "bytes=0-9")],
    )
    .unwrap();
    get(
        "/?lifecycle",
        plain,
        "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        &[],
    )
    .unwrap();
    get(
        "/?max-keys=2&prefix=J",
        plain,
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        &[],
    )
    .unwrap();
    let put = authorization(
        "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
    );
    let headers = [
        DATE,
        ("Date", "Fri, 24 May 2013 00:00:00 GMT"),
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        (
            "x-amz-content-sha256",
            "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
        ),
        ("Authorization", &put),
    ];
    aws("PUT", "/test%24file.text", host, &headers, "20130524T000000Z").unwrap();
    let url = "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2F\
               aws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=\
               aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    aws("GET", url, host, &[], "20130524T235959Z").unwrap();
}

/// The examples of "Signing and authenticating REST requests" (version 2).
#[test]
fn published_examples_of_version_2() {
    let host = "johnsmith.s3.amazonaws.com";
    for (target, date, signature) in [
        ("/photos/puppy.jpg", "Tue, 27 Mar 2007 19:36:42 +0000", "bWq2s1WEIj+Ydj0vQ697zp+IXMU="),
        (
            "/?prefix=photos&max-keys=50&marker=puppy",
            "Tue, 27 Mar 2007 19:42:41 +0000",
            "htDYFYduRNen8P9ZfE/s9SuKy0U=",
        ),
        ("/?acl", "Tue, 27 Mar 2007 19:44:46 +0000", "c2WLPFtWHVgbEmeEG93a4cG37dM="),
    ] {
        let auth = format!("AWS AKIAIOSFODNN7EXAMPLE:{signature}");
        aws("GET", target, host, &[("Date", date), ("Authorization", &auth)], "20070327T194000Z")
            .unwrap();
    }
}

/// A body of AWS's chunked examples: 65,536 and 1,024 letters `a`.
fn chunks(signatures: [&str; 3], tail: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for (size, signature) in [(65_536, signatures[0]), (1_024, signatures[1])] {
        out.extend(format!("{size:x};chunk-signature={signature}\r\n").bytes());
        out.extend(vec![b'a'; size]);
        out.extend(b"\r\n");
    }
    out.extend(format!("0;chunk-signature={}\r\n{tail}\r\n", signatures[2]).bytes());
    out
}

const CHUNKS: [&str; 3] = [
    "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
    "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
    "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
];
const TRAILED: [&str; 3] = [
    "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
    "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
    "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
];
const TRAILER: &str = "x-amz-checksum-crc32c:sOO8/Q==\r\n\
     x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n";

fn chunked_proof(trailer: bool) -> Proof {
    let (form, seed, signed, more) = if trailer {
        (
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
            "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
            "content-encoding;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class;x-amz-trailer",
            &[("x-amz-trailer", "x-amz-checksum-crc32c")][..],
        )
    } else {
        (
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
            "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
            "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class",
            &[("Content-Length", "66824")][..],
        )
    };
    let auth = authorization(signed, seed);
    let headers = [
        &[
            DATE,
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
            ("Content-Encoding", "aws-chunked"),
            ("x-amz-decoded-content-length", "66560"),
            ("x-amz-content-sha256", form),
            ("Authorization", &auth),
        ],
        more,
    ]
    .concat();
    let proof = aws(
        "PUT",
        "/examplebucket/chunkObject.txt",
        "s3.amazonaws.com",
        &headers,
        "20130524T000000Z",
    )
    .unwrap();
    assert_eq!(proof.payload, Payload::Chunked { trailer });
    proof
}

/// Lines of a trailer.
type Trailer = Vec<(String, String)>;

/// Feeds a body in pieces of `step` bytes.
fn decode(body: &[u8], trailer: bool, step: usize, announced: &str) -> Result<(Vec<u8>, Trailer)> {
    let mut decoder = chunked::Decoder::new(chunked_proof(trailer).chunks, trailer);
    let mut out = Vec::new();
    for piece in body.chunks(step) {
        decoder.push(piece, &mut out)?;
    }
    Ok((out, decoder.finish(announced)?))
}

/// AWS's examples of "Signature calculations: transferring payload in multiple chunks", also with trailing headers.
#[test]
fn published_examples_of_chunks() {
    for step in [1, 7, 65_536, 1 << 20] {
        let (data, trailer) = decode(&chunks(CHUNKS, ""), false, step, "").unwrap();
        assert!(data.len() == 66_560 && trailer.is_empty());
        let (data, trailer) =
            decode(&chunks(TRAILED, TRAILER), true, step, "x-amz-checksum-crc32c").unwrap();
        assert_eq!(
            (data.len(), trailer),
            (66_560, vec![("x-amz-checksum-crc32c".to_owned(), "sOO8/Q==".to_owned())])
        );
    }
}

#[test]
fn changed_chunks_are_refused() {
    let good = chunks(TRAILED, TRAILER);
    let code =
        |body: &[u8]| decode(body, true, 4_096, "x-amz-checksum-crc32c").err().map(|e| e.code);
    // In the data, in a size, in a signature, in the trailer.
    for at in [100, 0, 30, good.len() - 100, good.len() - 20] {
        let mut body = good.clone();
        body[at] ^= 1;
        assert!(code(&body).is_some(), "byte {at}");
    }
    for cut in 0..good.len() - 4 {
        if (200..good.len() - 400).contains(&cut) && cut % 997 != 0 {
            continue;
        }
        assert!(code(&good[..cut]).is_some(), "cut at {cut}");
    }
    let unsigned = b"3\r\nabc\r\n0\r\n\r\n";
    assert_eq!(code(unsigned), Some(Code::InvalidRequest), "chunks without signatures");
    assert_eq!(
        decode(&good, true, 99, "x-amz-meta-a").unwrap_err().code,
        Code::InvalidRequest,
        "not announced"
    );
    assert_eq!(code(&[&good[..], b"more"].concat()), Some(Code::InvalidRequest));
}

#[test]
fn unsigned_chunks() {
    let decode = |body: &[u8]| {
        let mut decoder = chunked::Decoder::new(None, true);
        let mut out = Vec::new();
        decoder.push(body, &mut out)?;
        Ok::<_, rgw_proto::Error>((out, decoder.finish("x-amz-checksum-crc32")?))
    };
    let crc = ("x-amz-checksum-crc32".to_owned(), "AAAA".to_owned());
    for body in [
        &b"3\r\nabc\r\n2\r\nde\r\n0\r\nx-amz-checksum-crc32:AAAA\r\n\r\n"[..],
        b"5\r\nabcde\r\n0\r\nX-Amz-Checksum-CRC32: AAAA",
        b"5\r\nabcde\r\n0\r\n\r\nx-amz-checksum-crc32:AAAA\r\n\r\n",
    ] {
        assert_eq!(decode(body).unwrap(), (b"abcde".to_vec(), vec![crc.clone()]));
    }
    for bad in [
        &b"x\r\n"[..],
        b"-1\r\n",
        b"+1\r\n",
        b"3\r\nabcd\r\n",
        b"fffffffffffffffff\r\n",
        b"3\r\nabc",
        b"3\r\nabc\r\n",
    ] {
        assert!(decode(bad).is_err(), "{:?}", String::from_utf8_lossy(bad));
    }
    assert!(decode(&[b'0'; 10_000]).is_err(), "a line without an end");
}

#[test]
fn two_claims_are_refused() {
    let url = "/b?X-Amz-Signature=a&AWSAccessKeyId=b";
    assert_eq!(Claim::of(&head("GET", url, &[]).unwrap()).unwrap_err().code, Code::InvalidArgument);
    let auth = [("Authorization".to_owned(), "AWS a:b".to_owned())];
    assert_eq!(
        Claim::of(&head("GET", "/b?Signature=a", &auth).unwrap()).unwrap_err().code,
        Code::InvalidArgument
    );
}

proptest! {
    /// No header, URL or body makes the readers panic, and none verifies by chance.
    #[test]
    fn any_claim(auth in "(AWS4-HMAC-SHA256 |AWS )[ -~]*", query in "[ -~]*", body in any::<Vec<u8>>()) {
        let headers = [("Authorization".to_owned(), auth), ("x-amz-date".to_owned(), "20260102T030405Z".to_owned())];
        for headers in [&headers[..], &[]] {
            let Ok(head) = head("GET", &format!("/?{query}"), headers) else { continue };
            let claim = Claim::of(&head);
            let verified = claim.map(|c| c.verify(&head, "secret", Time(1_767_323_045), &Facts::default()).is_ok());
            prop_assert!(!verified.unwrap_or(false));
        }
        let mut decoder = chunked::Decoder::new(None, true);
        if decoder.push(&body, &mut Vec::new()).is_ok() {
            let _ = decoder.finish("");
        }
    }
}
