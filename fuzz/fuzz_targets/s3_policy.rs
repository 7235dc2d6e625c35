//! Policies of buckets, users and forms.
#![no_main]
use rgw_proto::form;
use rgw_proto::policy::{Ask, Context, Kind, Policy, Principal};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = form::Policy::parse(text);
    let mut context = Context::default();
    context.add("aws:SourceIp", "10.0.0.1");
    context.add("s3:prefix", text);
    for kind in [Kind::Resource, Kind::Identity] {
        if let Ok(policy) = Policy::parse(text, kind) {
            let ask = Ask { who: &Principal::Anonymous, action: "s3:GetObject", resource: "arn:aws:s3:::b/k", context: &context };
            let _ = (policy.judge(&ask), policy.is_public());
        }
    }
});
