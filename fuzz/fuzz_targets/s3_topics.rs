//! Notifications of buckets, topics' forms, endpoints and expressions of filters.
#![no_main]
use rgw_proto::amqp::{self, Frame};
use rgw_proto::body::notification;
use rgw_proto::kafka::{self, Hash, Scram};
use rgw_proto::sns::{Arn, Attributes, Endpoint};
use rgw_proto::uri::Query;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = amqp::read(&Frame { kind: 1, payload: data.to_vec() });
    let _ = (kafka::read_metadata(data), kafka::read_produce(data), kafka::read_authenticate(data));
    let _ = Scram::new(Hash::Sha256, "u", "p", "n").0.end(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(endpoint) = Endpoint::parse(text) {
        assert!(endpoint.path.starts_with('/') && endpoint.port > 0 && !endpoint.authority.contains(['\r', '\n', '@']));
    }
    if let Ok(arn) = Arn::parse(text) {
        assert_eq!(Arn::parse(&arn.to_string()), Ok(arn));
    }
    if let Ok(form) = Query::parse(text)
        && let Ok(attributes) = Attributes::of_form(&form)
    {
        let _ = attributes.has_secret();
    }
    let Ok(all) = notification::parse(data) else { return };
    for one in &all {
        let _ = one.filter.fits("a/key.jpg", &one.filter.metadata, &one.filter.tags);
    }
    // What XML cannot hold comes out as another character.
    let holds = |c: char| c >= ' ' && c != '\u{fffe}' && c != '\u{ffff}';
    if text.contains("&#") || !text.chars().all(holds) {
        return;
    }
    let shown = all.iter().map(|one| {
        let events: Vec<String> = one.events.iter().map(|event| event.name().to_owned()).collect();
        (one.topic.to_string(), events)
    });
    let shown: Vec<_> = shown.collect();
    let lines = all.iter().zip(&shown).map(|(one, (topic, events))| (&one.id[..], &topic[..], &events[..], &one.filter));
    assert_eq!(notification::parse(notification::to_xml(lines).as_bytes()), Ok(all.clone()));
});
