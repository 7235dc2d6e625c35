//! Request lines and headers of S3: targets, operations, claims, conditions, checksums; then a body in chunks, and one as a form.
#![no_main]
use rgw_proto::checksum::Expected;
use rgw_proto::condition::{Conditions, Range};
use rgw_proto::operation::Operation;
use rgw_proto::request::{Head, Headers, Method, Target};
use rgw_proto::sig::{Claim, Facts, chunked};
use rgw_proto::time::Time;
use rgw_proto::{acl, body, form};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (text, body) = data.iter().position(|b| *b == 0).map_or((data, &[][..]), |at| data.split_at(at));
    let Ok(text) = std::str::from_utf8(text) else { return };
    let mut lines = text.split('\n');
    let (method, target) = lines.next().and_then(|l| l.split_once(' ')).unwrap_or(("GET", "/"));
    let Ok(headers) = Headers::new(lines.filter_map(|l| l.split_once(':'))) else { return };
    let content_type = headers.get("content-type").unwrap_or_default().to_owned();
    let owner = acl::Owner::default();
    let _ = (Conditions::of(&headers, ""), Expected::of(&headers), acl::Acl::of_headers(&headers, &owner, "o"));
    let _ = headers.get("range").and_then(Range::parse).map(|r| r.within(9));
    let _ = headers.get("x-amz-copy-source").map(body::Source::parse);
    if let Ok(head) = Method::parse(method).and_then(|m| Head::new(m, target, headers)) {
        let _ = Target::of(&head, &["s3.example.com".into()]).map(|t| Operation::of(&head, &t));
        if let Ok(claim) = Claim::of(&head) {
            let proof = claim.verify(&head, "secret", Time(1_767_323_045), &Facts::default());
            assert!(proof.is_err(), "nobody guesses a signature");
        }
    }
    for trailer in [false, true] {
        let mut decoder = chunked::Decoder::new(None, trailer);
        let mut out = Vec::new();
        if body.chunks(7).all(|b| decoder.push(b, &mut out).is_ok()) {
            let _ = decoder.finish("x-amz-checksum-crc32");
        }
    }
    if let Ok(mut decoder) = form::Decoder::new(&content_type) {
        let mut out = Vec::new();
        let _ = body.chunks(7).all(|b| decoder.push(b, &mut out).is_ok());
    }
});
