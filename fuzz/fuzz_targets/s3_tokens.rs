//! Tokens of identity providers, and what those publish.
#![no_main]
use rgw_proto::policy::Context;
use rgw_proto::time::Time;
use rgw_proto::web_identity::{Token, keys, keys_url};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = keys_url(data, "https://idp.example/x");
    let all = keys(data).unwrap_or_default();
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(token) = Token::parse(text) else { return };
    let _ = token.check("https://idp.example/x", &["app".to_owned()], Time(1_800_000_000));
    let _ = token.add_claims("idp.example/x", &mut Context::default());
    assert!(token.key(&all).is_err(), "a token is no set of keys");
    assert!(token.verify_by(data).is_err());
});
