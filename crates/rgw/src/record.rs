//! What requests leave behind: the usage log, which `radosgw-admin usage show` reads, and the access log, a line of JSON
//! for each request in the fields of stock's ops log.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use rgw_core::usage::{Counted, Record};
use rgw_proto::operation::Operation as Op;
use serde_json::json;
use tokio::sync::watch;

use crate::server::Server;

/// Records that are held; with more of them one is written at once: `rgw_usage_log_flush_threshold`.
const HELD_MAX: usize = 1_024;

/// What is known of a request, as far as it came.
#[derive(Clone, Debug, Default)]
pub struct Noted {
    /// Who sent it; empty for anonymous users.
    pub user: String,
    /// With which key.
    pub access_key: String,
    /// Whose bucket it was about; empty where there was none.
    pub owner: String,
    /// The bucket.
    pub bucket: String,
    /// What it asked for, in stock's words.
    pub operation: &'static str,
    /// The name space of answers of IAM and STS; empty for others.
    pub namespace: &'static str,
    /// Where the next bytes of an object are to be appended, where that was asked wrongly.
    pub next_append: Option<u64>,
    /// Whether it is for a page of a bucket that is a website.
    pub is_site: bool,
    /// Of requests of Swift: how the answer is written.
    pub swift: Option<crate::swift::Dialect>,
}

/// A request that was answered.
pub struct Done<'a> {
    /// What is known of it.
    pub noted: &'a Noted,
    /// Its id.
    pub id: &'a str,
    /// Method and path.
    pub line: &'a str,
    /// Address of the sender.
    pub peer: &'a str,
    /// HTTP's status.
    pub status: u16,
    /// The error's code; empty for none.
    pub error: &'a str,
    /// Bytes of the answer's and of the request's body.
    pub bytes: (u64, u64),
    /// How long it took, ms.
    pub took_ms: u64,
}

/// Records of requests.
pub struct Records {
    usage: Option<RefCell<BTreeMap<Record, Counted>>>,
    access: Option<RefCell<Access>>,
}

struct Access {
    path: PathBuf,
    file: File,
}

impl Records {
    /// Opens the logs that are wanted.
    ///
    /// # Errors
    /// Where the access log cannot be opened.
    pub fn open(usage: bool, access: Option<&Path>) -> std::io::Result<Self> {
        let access = match access {
            Some(path) => {
                let file = append(path)?;
                Some(RefCell::new(Access { path: path.to_owned(), file }))
            }
            None => None,
        };
        Ok(Self { usage: usage.then(RefCell::default), access })
    }

    /// Opens the access log anew, after it was moved away.
    pub fn reopen(&self) {
        let Some(access) = &self.access else { return };
        let mut access = access.borrow_mut();
        match append(&access.path) {
            Ok(file) => access.file = file,
            Err(error) => tracing::warn!("{}: {error}", access.path.display()),
        }
    }

    /// Notes a request.
    pub fn note(&self, done: &Done<'_>) {
        if let Some(access) = &self.access {
            let line = format!("{}\n", access_line(done));
            if let Err(error) = access.borrow_mut().file.write_all(line.as_bytes()) {
                tracing::debug!("the access log: {error}");
            }
        }
        let Some(usage) = &self.usage else { return };
        let noted = done.noted;
        let whose = if noted.owner.is_empty() { &noted.user } else { &noted.owner };
        if whose.is_empty() {
            return;
        }
        let hour = rt::now().wall_ns / 1_000_000_000 / 3_600 * 3_600;
        let is_missing = done.status == 404;
        let bucket = if is_missing { "-".to_owned() } else { noted.bucket.clone() };
        let record =
            Record { user: whose.clone(), bucket, hour_s: hour, category: noted.operation };
        let (sent, received) = done.bytes;
        let successful = u64::from(done.status < 400);
        usage.borrow_mut().entry(record).or_default().add(Counted {
            sent,
            received,
            ops: 1,
            successful,
        });
    }

    fn take(&self) -> BTreeMap<Record, Counted> {
        self.usage.as_ref().map(RefCell::take).unwrap_or_default()
    }

    fn is_full(&self) -> bool {
        self.usage.as_ref().is_some_and(|usage| usage.borrow().len() >= HELD_MAX)
    }
}

fn append(path: &Path) -> std::io::Result<File> {
    std::fs::OpenOptions::new().append(true).create(true).open(path)
}

fn access_line(done: &Done<'_>) -> serde_json::Value {
    let now = rt::now().wall_ns;
    let at = rgw_proto::time::Time(i64::try_from(now / 1_000_000_000).unwrap_or(i64::MAX));
    json!({
        "bucket": done.noted.bucket,
        "time": at.to_string(),
        "remote_addr": done.peer,
        "user": if done.noted.user.is_empty() { "anonymous" } else { &done.noted.user },
        "operation": done.noted.operation,
        "uri": done.line,
        "http_status": done.status.to_string(),
        "error_code": done.error,
        "bytes_sent": done.bytes.0,
        "bytes_received": done.bytes.1,
        "total_time": done.took_ms,
        "trans_id": done.id,
        "access_key_id": done.noted.access_key,
    })
}

/// Writes the usage log now and then, and once more at the end.
pub fn start(server: &Rc<Server>, stop: &watch::Receiver<bool>) {
    if server.settings.records.usage.is_none() {
        return;
    }
    let (server, mut stop) = (server.clone(), stop.clone());
    let every = server.settings.work.usage_every;
    tokio::task::spawn_local(async move {
        let mut waited = Duration::ZERO;
        loop {
            let second = Duration::from_secs(1);
            let goes_on = tokio::select! {
                () = tokio::time::sleep(second) => true,
                _ = stop.wait_for(|stop| *stop) => false,
            };
            waited += second;
            if goes_on && waited < every && !server.settings.records.is_full() {
                continue;
            }
            waited = Duration::ZERO;
            if let Err(error) = server.gateway.write_usage(server.settings.records.take()).await {
                tracing::warn!("records of the usage log are lost: {error}");
            }
            if !goes_on {
                return;
            }
        }
    });
}

/// What stock calls an operation in its logs.
#[must_use]
pub fn name(operation: Op) -> &'static str {
    match operation {
        Op::ListBuckets => "list_buckets",
        Op::CreateBucket => "create_bucket",
        Op::HeadBucket => "stat_bucket",
        Op::DeleteBucket => "delete_bucket",
        Op::ListObjects | Op::ListObjectVersions => "list_bucket",
        Op::ListMultipartUploads => "list_bucket_multiparts",
        Op::GetBucketLocation => "get_bucket_location",
        Op::GetBucketVersioning => "get_bucket_versioning",
        Op::PutBucketVersioning => "set_bucket_versioning",
        Op::GetBucketAcl | Op::GetObjectAcl => "get_acls",
        Op::PutBucketAcl | Op::PutObjectAcl => "put_acls",
        Op::GetBucketPolicy => "get_bucket_policy",
        Op::PutBucketPolicy => "put_bucket_policy",
        Op::DeleteBucketPolicy => "delete_bucket_policy",
        Op::GetBucketPolicyStatus => "get_bucket_policy_status",
        Op::GetPublicAccessBlock => "get_bucket_public_access_block",
        Op::PutPublicAccessBlock => "put_bucket_public_access_block",
        Op::DeletePublicAccessBlock => "delete_bucket_public_access_block",
        Op::GetBucketTagging => "get_bucket_tags",
        Op::PutBucketTagging => "put_bucket_tags",
        Op::DeleteBucketTagging => "delete_bucket_tags",
        Op::GetBucketNotification => "pubsub_notifications_get_s3",
        Op::PutBucketNotification => "pubsub_notification_create_s3",
        Op::DeleteBucketNotification => "pubsub_notification_delete_s3",
        Op::GetBucketCors => "get_cors",
        Op::PutBucketCors => "put_cors",
        Op::DeleteBucketCors => "delete_cors",
        Op::Preflight => "options_cors",
        Op::GetBucketLifecycle => "get_lifecycle",
        Op::PutBucketLifecycle => "put_lifecycle",
        Op::DeleteBucketLifecycle => "delete_lifecycle",
        Op::GetObjectLockConfiguration => "get_bucket_object_lock",
        Op::PutObjectLockConfiguration => "put_bucket_object_lock",
        Op::GetBucketEncryption => "get_bucket_encryption",
        Op::PutBucketEncryption => "put_bucket_encryption",
        Op::DeleteBucketEncryption => "delete_bucket_encryption",
        Op::GetBucketRequestPayment => "get_request_payment",
        Op::PutBucketRequestPayment => "set_request_payment",
        Op::GetBucketOwnershipControls => "get_bucket_ownership_controls",
        Op::PutBucketOwnershipControls => "put_bucket_ownership_controls",
        Op::DeleteBucketOwnershipControls => "delete_bucket_ownership_controls",
        Op::DeleteObjects => "multi_object_delete",
        Op::PostObject => "post_obj",
        Op::GetObject | Op::HeadObject => "get_obj",
        Op::PutObject | Op::UploadPart | Op::UploadPartCopy => "put_obj",
        Op::CopyObject => "copy_obj",
        Op::DeleteObject => "delete_obj",
        Op::GetObjectTagging => "get_obj_tags",
        Op::PutObjectTagging => "put_obj_tags",
        Op::DeleteObjectTagging => "delete_obj_tags",
        Op::GetObjectRetention => "get_obj_retention",
        Op::PutObjectRetention => "put_obj_retention",
        Op::GetObjectLegalHold => "get_obj_legal_hold",
        Op::PutObjectLegalHold => "put_obj_legal_hold",
        Op::GetObjectAttributes => "get_obj_attrs",
        Op::CreateMultipartUpload => "init_multipart",
        Op::CompleteMultipartUpload => "complete_multipart",
        Op::AbortMultipartUpload => "abort_multipart",
        Op::ListParts => "list_multipart",
        Op::PutAccountMetadata => "put_account_metadata",
        Op::PutBucketMetadata => "put_bucket_metadata",
        Op::PutObjectMetadata => "put_obj_metadata",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_hour_and_bucket() {
        let records = Records::open(true, None).unwrap();
        let noted = Noted {
            user: "a".into(),
            owner: "b".into(),
            bucket: "bkt".into(),
            operation: "get_obj",
            ..Noted::default()
        };
        for status in [200, 200, 404, 500] {
            let done = Done {
                noted: &noted,
                id: "tx",
                line: "GET /bkt/k\"",
                peer: "127.0.0.1",
                status,
                error: "",
                bytes: (10, 1),
                took_ms: 1,
            };
            records.note(&done);
            assert!(access_line(&done).to_string().contains(r#""uri":"GET /bkt/k\"""#));
        }
        let taken = records.take();
        let counted: Vec<_> =
            taken.iter().map(|(r, c)| (r.bucket.as_str(), c.ops, c.successful)).collect();
        assert_eq!(counted, [("-", 1, 0), ("bkt", 3, 2)]);
        assert!(taken.keys().all(|record| record.user == "b"), "the bucket's owner pays");
        assert!(records.take().is_empty());
    }
}
