//! What is sent of an event: a record, as stock 20.2.4 writes it.
//!
//! Source: `rgw_pubsub_s3_event` in `rgw_pubsub.h`, `json_format_pubsub_event`; compared with what a live stock sent.

use serde_json::{Value, json};

use crate::time::Time;

/// A moment: seconds and nanoseconds since 1970.
pub type Moment = (u32, u32);

/// The bucket of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfBucket {
    /// Its name.
    pub name: String,
    /// Its owner: `[TENANT$]UID`, or an account's id.
    pub owner: String,
    /// `arn:aws:s3:REGION:TENANT:NAME`.
    pub arn: String,
    /// Its id within the cluster.
    pub id: String,
}

/// The object of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfObject {
    /// Its key.
    pub key: String,
    /// Its bytes.
    pub size: u64,
    /// Its ETag.
    pub etag: String,
    /// Its version; empty where there is none.
    pub version: String,
    /// Of two events of a key, the later one has the greater text here.
    pub sequencer: String,
    /// Metadata by `x-amz-meta-NAME`.
    pub metadata: Vec<(String, String)>,
    /// Tags of the object.
    pub tags: Vec<(String, String)>,
}

/// A record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// `2.2`.
    pub version: String,
    /// `ceph:s3`.
    pub source: String,
    /// The zone group's name in location constraints.
    pub region: String,
    /// When it happened.
    pub at: Moment,
    /// What happened: `ObjectCreated:Put`.
    pub event: String,
    /// Who did it: `[TENANT$]UID`, an account's id, or `rgw lifecycle`.
    pub user: String,
    /// The address it came from: empty, as at stock.
    pub address: String,
    /// The request's id and the gateway's.
    pub request: (String, String),
    /// `1.0`.
    pub schema: String,
    /// The notification's id.
    pub configuration: String,
    /// The bucket.
    pub bucket: OfBucket,
    /// The object.
    pub object: OfObject,
    /// The event's id.
    pub id: String,
    /// What the topic has each record carry.
    pub opaque: String,
}

/// `2026-01-02T03:04:05.678901Z`, with so many digits of the second's fraction.
fn iso((seconds, nanoseconds): Moment, digits: usize) -> String {
    let whole = Time(i64::from(seconds)).to_string();
    let whole = whole.get(..19).unwrap_or(&whole);
    let fraction = format!("{nanoseconds:09}");
    format!("{whole}.{}Z", &fraction[..digits.min(9)])
}

fn pairs(pairs: &[(String, String)]) -> Value {
    pairs.iter().map(|(key, val)| json!({ "key": key, "val": val })).collect()
}

impl Record {
    /// The ids of an event: its sequencer in its key, and its id, of the moment it is written and the object's ETag.
    #[must_use]
    pub fn ids((seconds, nanoseconds): Moment, etag: &str) -> (String, String) {
        let bytes = [seconds.to_le_bytes(), nanoseconds.to_le_bytes()].concat();
        let sequencer = crate::uri::to_hex(&bytes).to_ascii_uppercase();
        (sequencer, format!("{seconds:010}.{:06}.{etag}", nanoseconds / 1_000))
    }

    /// The body that is posted: one record.
    #[must_use]
    pub fn to_json(&self) -> String {
        let (bucket, object) = (&self.bucket, &self.object);
        let record = json!({
            "eventVersion": self.version,
            "eventSource": self.source,
            "awsRegion": self.region,
            "eventTime": iso(self.at, 6),
            "eventName": self.event,
            "userIdentity": { "principalId": self.user },
            "requestParameters": { "sourceIPAddress": self.address },
            "responseElements": { "x-amz-request-id": self.request.0, "x-amz-id-2": self.request.1 },
            "s3": {
                "s3SchemaVersion": self.schema,
                "configurationId": self.configuration,
                "bucket": {
                    "name": bucket.name,
                    "ownerIdentity": { "principalId": bucket.owner },
                    "arn": bucket.arn,
                    "id": bucket.id,
                },
                "object": {
                    "key": object.key,
                    "size": object.size,
                    "eTag": object.etag,
                    "versionId": object.version,
                    "sequencer": object.sequencer,
                    "metadata": pairs(&object.metadata),
                    "tags": pairs(&object.tags),
                },
            },
            "eventId": self.id,
            "opaqueData": self.opaque,
        });
        json!({ "Records": [record] }).to_string()
    }

    /// Headers of a CloudEvents request in binary mode. A key's bytes that no header may have are percent-encoded.
    #[must_use]
    pub fn cloud_headers(&self) -> [(&'static str, String); 6] {
        let plain = |text: &str| -> String {
            let one = |c: char| match c.is_ascii_graphic() || c == ' ' {
                true => c.to_string(),
                false => crate::uri::encode(c.to_string().as_bytes(), false),
            };
            text.chars().map(one).collect()
        };
        [
            ("ce-specversion", "1.0".into()),
            ("ce-type", format!("com.amazonaws.{}", self.event)),
            ("ce-time", iso(self.at, 9)),
            ("ce-id", plain(&format!("{}.{}", self.request.0, self.request.1))),
            ("ce-source", plain(&format!("{}.{}.{}", self.source, self.region, self.bucket.name))),
            ("ce-subject", plain(&self.object.key)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What radosgw 20.2.4 posted for a PUT.
    const STOCK: &str = r#"{"Records":[{"eventVersion":"2.2","eventSource":"ceph:s3","awsRegion":"default","eventTime":"2026-11-30T08:33:01.313847Z","eventName":"ObjectCreated:Put","userIdentity":{"principalId":"main"},"requestParameters":{"sourceIPAddress":""},"responseElements":{"x-amz-request-id":"z.4110.5","x-amz-id-2":"4110-default-default"},"s3":{"s3SchemaVersion":"1.0","configurationId":"n1","bucket":{"name":"nbkt","ownerIdentity":{"principalId":"main"},"arn":"arn:aws:s3:default::nbkt","id":"z.4110.1"},"object":{"key":"k 1/ü","size":5,"eTag":"5d41402abc4b2a76b9719d911017c592","versionId":"","sequencer":"BD340D6B4AFBE012","metadata":[{"key":"x-amz-meta-a","val":"1"}],"tags":[{"key":"t","val":"u"},{"key":"x","val":"y"}]}},"eventId":"1796027581.316734.5d41402abc4b2a76b9719d911017c592","opaqueData":"me@x"}]}"#;

    #[test]
    fn as_stock_writes_it() {
        let etag = "5d41402abc4b2a76b9719d911017c592";
        let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        let written = (1_796_027_581, 316_734_282);
        let (sequencer, id) = Record::ids(written, etag);
        let record = Record {
            version: "2.2".into(),
            source: "ceph:s3".into(),
            region: "default".into(),
            at: (1_796_027_581, 313_847_756),
            event: "ObjectCreated:Put".into(),
            user: "main".into(),
            address: String::new(),
            request: pair("z.4110.5", "4110-default-default"),
            schema: "1.0".into(),
            configuration: "n1".into(),
            bucket: OfBucket {
                name: "nbkt".into(),
                owner: "main".into(),
                arn: "arn:aws:s3:default::nbkt".into(),
                id: "z.4110.1".into(),
            },
            object: OfObject {
                key: "k 1/ü".into(),
                size: 5,
                etag: etag.into(),
                version: String::new(),
                sequencer,
                metadata: vec![pair("x-amz-meta-a", "1")],
                tags: vec![pair("t", "u"), pair("x", "y")],
            },
            id,
            opaque: "me@x".into(),
        };
        assert_eq!(record.to_json(), STOCK);
        let headers = record.cloud_headers();
        assert_eq!(headers[2].1, "2026-11-30T08:33:01.313847756Z");
        assert_eq!(headers[4].1, "ceph:s3.default.nbkt");
        assert_eq!(headers[5].1, "k 1/%C3%BC");
    }

    #[test]
    fn no_header_splits() {
        let mut record = Record::default();
        record.object.key = "a\r\nX-Evil: 1".into();
        assert!(
            record
                .cloud_headers()
                .iter()
                .all(|(_, value)| value.bytes().all(|b| (b' '..0x7f).contains(&b)))
        );
    }
}
