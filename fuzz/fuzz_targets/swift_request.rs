//! Request lines and headers of Swift: paths, operations, claims, lists of access, metadata, windows; then a manifest.
#![no_main]
use rgw_proto::request::{Head, Headers, Method};
use rgw_proto::swift::acl::Grants;
use rgw_proto::swift::listing::Window;
use rgw_proto::swift::request::{Call, Claim, Paths, Route, delete_at};
use rgw_proto::swift::temp_url::Signed;
use rgw_proto::swift::{Format, large, metadata};
use rgw_proto::time::Time;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (text, body) = data.iter().position(|b| *b == 0).map_or((data, &[][..]), |at| data.split_at(at));
    if let Ok(segments) = large::parse(body.get(1..).unwrap_or_default()) {
        assert!((1..=large::SEGMENTS_MAX).contains(&segments.len()));
    }
    let Ok(text) = std::str::from_utf8(text) else { return };
    let mut lines = text.split('\n');
    let (method, target) = lines.next().and_then(|l| l.split_once(' ')).unwrap_or(("GET", "/swift/v1"));
    let Ok(headers) = Headers::new(lines.filter_map(|l| l.split_once(':'))) else { return };
    for sort in ["account", "container", "object"] {
        let _ = metadata(&headers, sort);
    }
    let _ = (delete_at(&headers, 1_767_323_045), Format::of(None, &headers));
    let list = |name: &str| headers.get(name).unwrap_or_default().to_owned();
    if let Ok(grants) = Grants::parse(&list("x-container-read"), &list("x-container-write")) {
        let again = Grants::parse(&grants.header(false), &grants.header(true)).expect("its own words are read");
        assert_eq!(again, grants);
        let _ = grants.permit(Some("u"), &list("referer"), false, false);
    }
    let Ok(head) = Method::parse(method).and_then(|m| Head::new(m, target, headers)) else { return };
    let _ = (Window::of_account(&head.query), Window::of_container(&head.query));
    for account_in_url in [false, true] {
        let paths = Paths { prefix: "swift".into(), auth_entry: "auth".into(), account_in_url };
        if let Some(Route::Storage(path)) = paths.route(&head.path)
            && let Ok(call) = Call::of(&head, &path, &paths)
        {
            let name = call.container().unwrap_or("c");
            assert!(!name.is_empty() && !name.contains('/'), "a container is one part of a path");
        }
    }
    let now = Time(1_767_323_045);
    match Claim::of(&head) {
        Ok(Claim::Token(token)) => assert!(token.verify("secret", now).is_err(), "nobody guesses a token"),
        Ok(Claim::TempUrl(url)) => {
            let signed = Signed { method: head.method, path: &head.path, entry_len: 6, object: "", peer: None };
            assert!(url.verify(&signed, ["key"], now).is_err(), "nobody guesses a signature");
        }
        _ => {}
    }
});
