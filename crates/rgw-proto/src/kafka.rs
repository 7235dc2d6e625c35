//! Kafka's protocol, as far as a producer of single records needs it, without I/O: versions that brokers from 0.11 to 4 take.
//!
//! ```text
//!   request   size 4 │ key 2 │ version 2 │ correlation 4 │ client │ body        numbers big end first; text: length 2
//!   answer    size 4 │ correlation 4 │ body
//!   Metadata 1, Produce 3 (record batch of version 2), SaslHandshake 1, SaslAuthenticate 0
//! ```
//!
//! Source: Kafka's protocol guide; SCRAM is RFC 5802 with RFC 7677.

use aws_lc_rs::{constant_time, digest, hmac, pbkdf2};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crc_fast::{CrcAlgorithm, checksum};

use crate::fields::Fields;

/// Bytes of an answer.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Brokers of a cluster and partitions of a topic that are taken.
const MEMBERS_MAX: usize = 10_000;
/// Rounds of SCRAM that a broker may ask for, as many as Kafka has at most: each costs the gateway time.
const ROUNDS_MAX: u32 = 16_384;
const CLIENT: &str = "argonaut";
/// How long a broker may wait for its followers, ms.
const PRODUCE_MS: i32 = 5_000;

/// A request: what is sent, and the key that its answer is read by.
fn request(key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(key.to_be_bytes());
    out.extend(version.to_be_bytes());
    // One request is under way on a connection: they need no numbers.
    out.extend(0i32.to_be_bytes());
    out.extend(text(CLIENT));
    out.extend(body);
    sized(&out)
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    let len = i32::try_from(bytes.len()).expect("requests are small");
    [&len.to_be_bytes(), bytes].concat()
}

fn text(text: &str) -> Vec<u8> {
    let len = i16::try_from(text.len()).expect("names are checked");
    [&len.to_be_bytes(), text.as_bytes()].concat()
}

/// Asks for the partitions of a topic, and has it made where the cluster makes topics by itself.
#[must_use]
pub fn metadata(topic: &str) -> Vec<u8> {
    request(3, 1, &[&1i32.to_be_bytes()[..], &text(topic)].concat())
}

/// Where a topic's partitions are led: by number, host and port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partitions(pub Vec<(i32, String, u16)>);

/// Parts of answers, each with its bound.
impl Fields<'_> {
    fn i16(&mut self) -> Option<i16> {
        self.number().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.number().map(i32::from_be_bytes)
    }

    /// Text; `None` inside where it is null.
    fn text(&mut self) -> Option<Option<String>> {
        match usize::try_from(self.i16()?) {
            Err(_) => Some(None),
            Ok(len) => self.take(len).map(|b| Some(String::from_utf8_lossy(b).into_owned())),
        }
    }

    fn count(&mut self) -> Option<usize> {
        let count = self.i32()?.max(0);
        usize::try_from(count).ok().filter(|n| *n <= MEMBERS_MAX)
    }

    fn numbers(&mut self) -> Option<()> {
        let count = self.count()?;
        self.take(count * 4).map(drop)
    }
}

/// An error of Kafka's, in words.
fn named(code: i16) -> String {
    let name = match code {
        3 => "UNKNOWN_TOPIC_OR_PARTITION",
        5 => "LEADER_NOT_AVAILABLE",
        6 => "NOT_LEADER_OR_FOLLOWER",
        7 => "REQUEST_TIMED_OUT",
        10 => "MESSAGE_TOO_LARGE",
        17 => "INVALID_TOPIC_EXCEPTION",
        19 => "NOT_ENOUGH_REPLICAS",
        29 => "TOPIC_AUTHORIZATION_FAILED",
        33 => "UNSUPPORTED_SASL_MECHANISM",
        35 => "UNSUPPORTED_VERSION",
        58 => "SASL_AUTHENTICATION_FAILED",
        _ => "an error",
    };
    format!("the broker answered {name} ({code})")
}

const CUT: &str = "an answer of the broker is cut, or none of Kafka's";

/// Reads the answer to [`metadata`]; partitions without a leader are left out.
///
/// # Errors
/// Where the topic is not there, or has no leader yet; for what is cut.
pub fn read_metadata(answer: &[u8]) -> Result<Partitions, String> {
    let mut fields = Fields(answer);
    let read = (|| {
        fields.i32()?;
        let mut brokers = Vec::new();
        for _ in 0..fields.count()? {
            let (id, host, port) = (fields.i32()?, fields.text()??, fields.i32()?);
            fields.text()?;
            brokers.push((id, host, u16::try_from(port).ok()?));
        }
        fields.i32()?;
        let (mut error, mut found) = (0, Vec::new());
        for _ in 0..fields.count()? {
            error = fields.i16()?;
            fields.text()?;
            fields.take(1)?;
            for _ in 0..fields.count()? {
                fields.i16()?;
                let (number, leader) = (fields.i32()?, fields.i32()?);
                fields.numbers()?;
                fields.numbers()?;
                let led = brokers.iter().find(|(id, ..)| *id == leader);
                found.extend(led.map(|(_, host, port)| (number, host.clone(), *port)));
            }
        }
        Some((error, found))
    })();
    match read.ok_or(CUT)? {
        (0, found) if found.is_empty() => Err(named(5)),
        (0, mut found) => {
            found.sort_unstable();
            Ok(Partitions(found))
        }
        (error, _) => Err(named(error)),
    }
}

/// A number of a record: zigzag, 7 bits a byte.
fn varint(out: &mut Vec<u8>, value: i64) {
    #[allow(clippy::cast_sign_loss, reason = "zigzag")]
    let mut left = ((value << 1) ^ (value >> 63)) as u64;
    while left >= 0x80 {
        out.push(left.to_le_bytes()[0] | 0x80);
        left >>= 7;
    }
    out.push(left.to_le_bytes()[0]);
}

fn len(bytes: &[u8]) -> i64 {
    i64::try_from(bytes.len()).expect("it is in memory")
}

/// One record to a partition; `acks` -1 for all replicas, 0 for no answer at all. `now_ms` is since 1970.
#[must_use]
pub fn produce(topic: &str, partition: i32, acks: i16, value: &[u8], now_ms: i64) -> Vec<u8> {
    let mut record = vec![0, 0, 0];
    varint(&mut record, -1);
    varint(&mut record, len(value));
    record.extend(value);
    record.push(0);
    let mut body = Vec::new();
    body.extend(0i16.to_be_bytes());
    body.extend(0i32.to_be_bytes());
    body.extend(now_ms.to_be_bytes());
    body.extend(now_ms.to_be_bytes());
    // No producer's id, epoch and sequence: it is not idempotent.
    body.extend([0xff; 8 + 2 + 4]);
    body.extend(1i32.to_be_bytes());
    varint(&mut body, len(&record));
    body.extend(record);
    let crc = u32::try_from(checksum(CrcAlgorithm::Crc32Iscsi, &body)).expect("32 bits");
    let mut batch = 0i64.to_be_bytes().to_vec();
    batch.extend(i32::try_from(4 + 1 + 4 + body.len()).expect("it is small").to_be_bytes());
    batch.extend((-1i32).to_be_bytes());
    batch.push(2);
    batch.extend(crc.to_be_bytes());
    batch.extend(body);
    let mut out = Vec::new();
    out.extend((-1i16).to_be_bytes());
    out.extend(acks.to_be_bytes());
    out.extend(PRODUCE_MS.to_be_bytes());
    out.extend(1i32.to_be_bytes());
    out.extend(text(topic));
    out.extend(1i32.to_be_bytes());
    out.extend(partition.to_be_bytes());
    out.extend(sized(&batch));
    request(0, 3, &out)
}

/// Reads the answer to [`produce`].
///
/// # Errors
/// The broker's; for what is cut.
pub fn read_produce(answer: &[u8]) -> Result<(), String> {
    let mut fields = Fields(answer);
    let error = (|| {
        fields.i32()?;
        (fields.i32()? == 1).then_some(())?;
        fields.text()?;
        (fields.i32()? == 1).then_some(())?;
        fields.i32()?;
        fields.i16()
    })();
    match error.ok_or(CUT)? {
        0 => Ok(()),
        error => Err(named(error)),
    }
}

/// Names the mechanism by which the client proves who it is.
#[must_use]
pub fn handshake(mechanism: &str) -> Vec<u8> {
    request(17, 1, &text(mechanism))
}

/// Reads the answer to [`handshake`].
///
/// # Errors
/// Where the broker does not have the mechanism.
pub fn read_handshake(answer: &[u8]) -> Result<(), String> {
    let mut fields = Fields(answer);
    match fields.i32().and_then(|_| fields.i16()).ok_or(CUT)? {
        0 => Ok(()),
        error => Err(named(error)),
    }
}

/// A step of the mechanism.
#[must_use]
pub fn authenticate(step: &[u8]) -> Vec<u8> {
    request(36, 0, &sized(step))
}

/// Reads the answer to [`authenticate`]: the broker's step.
///
/// # Errors
/// Where it refuses.
pub fn read_authenticate(answer: &[u8]) -> Result<Vec<u8>, String> {
    let mut fields = Fields(answer);
    let read = (|| {
        fields.i32()?;
        let (error, _why) = (fields.i16()?, fields.text()?);
        let len = usize::try_from(fields.i32()?.max(0)).ok()?;
        Some((error, fields.take(len)?.to_vec()))
    })();
    match read.ok_or(CUT)? {
        (0, step) => Ok(step),
        (error, _) => Err(named(error)),
    }
}

/// The only step of `PLAIN`.
#[must_use]
pub fn plain(user: &str, password: &str) -> Vec<u8> {
    format!("\0{user}\0{password}").into_bytes()
}

/// A hash of SCRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// `SCRAM-SHA-256`.
    Sha256,
    /// `SCRAM-SHA-512`.
    Sha512,
}

/// The client's side of SCRAM.
pub struct Scram {
    hash: Hash,
    password: String,
    nonce: String,
    /// The first message without its header.
    first: String,
    /// What the broker must prove at the end.
    expected: Vec<u8>,
}

impl Scram {
    /// Begins; the nonce is random, of letters.
    #[must_use]
    pub fn new(hash: Hash, user: &str, password: &str, nonce: &str) -> (Self, Vec<u8>) {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let first = format!("n={user},r={nonce}");
        let message = format!("n,,{first}").into_bytes();
        let (password, nonce) = (password.to_owned(), nonce.to_owned());
        (Self { hash, password, nonce, first, expected: Vec::new() }, message)
    }

    fn hmac(&self, key: &[u8], data: &[u8]) -> Vec<u8> {
        let algorithm = match self.hash {
            Hash::Sha256 => hmac::HMAC_SHA256,
            Hash::Sha512 => hmac::HMAC_SHA512,
        };
        hmac::sign(&hmac::Key::new(algorithm, key), data).as_ref().to_vec()
    }

    /// The client's last message, to the broker's first.
    ///
    /// # Errors
    /// For a broker that did not read the first message, or asks for too many rounds.
    pub fn last(&mut self, broker: &[u8]) -> Result<Vec<u8>, String> {
        let bad = || "the broker's SCRAM message is none".to_owned();
        let text = std::str::from_utf8(broker).map_err(|_| bad())?;
        let field = |name: &str| text.split(',').find_map(|part| part.strip_prefix(name));
        let (nonce, salt) = (field("r=").ok_or_else(bad)?, field("s=").ok_or_else(bad)?);
        let rounds: u32 = field("i=").and_then(|n| n.parse().ok()).ok_or_else(bad)?;
        let salt = STANDARD.decode(salt).map_err(|_| bad())?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err("the broker answers another client's SCRAM message".into());
        }
        if !(1..=ROUNDS_MAX).contains(&rounds) {
            return Err(format!("the broker asks for {rounds} rounds of SCRAM"));
        }
        let (algorithm, sum, len) = match self.hash {
            Hash::Sha256 => (pbkdf2::PBKDF2_HMAC_SHA256, &digest::SHA256, 32),
            Hash::Sha512 => (pbkdf2::PBKDF2_HMAC_SHA512, &digest::SHA512, 64),
        };
        let mut salted = vec![0; len];
        let rounds = std::num::NonZeroU32::new(rounds).ok_or_else(bad)?;
        pbkdf2::derive(algorithm, rounds, &salt, self.password.as_bytes(), &mut salted);
        let client = self.hmac(&salted, b"Client Key");
        let stored = digest::digest(sum, &client);
        let bare = format!("c=biws,r={nonce}");
        let all = format!("{},{text},{bare}", self.first);
        let signature = self.hmac(stored.as_ref(), all.as_bytes());
        let proof: Vec<u8> = client.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        let server = self.hmac(&salted, b"Server Key");
        self.expected = self.hmac(&server, all.as_bytes());
        Ok(format!("{bare},p={}", STANDARD.encode(proof)).into_bytes())
    }

    /// That the broker knows the password, too.
    ///
    /// # Errors
    /// Where it does not prove it.
    pub fn end(&self, broker: &[u8]) -> Result<(), String> {
        let proof = std::str::from_utf8(broker).ok().and_then(|text| text.strip_prefix("v="));
        let proof = proof.and_then(|text| STANDARD.decode(text.split(',').next()?).ok());
        let is_its = proof.is_some_and(|proof| {
            !self.expected.is_empty()
                && constant_time::verify_slices_are_equal(&proof, &self.expected).is_ok()
        });
        match is_its {
            true => Ok(()),
            false => Err("the broker does not prove that it knows the password".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers() {
        for (value, want) in [
            (0, &[0][..]),
            (-1, &[1]),
            (1, &[2]),
            (63, &[126]),
            (64, &[0x80, 1]),
            (-65, &[0x81, 1]),
            (300, &[0xd8, 4]),
        ] {
            let mut out = Vec::new();
            varint(&mut out, value);
            assert_eq!(out, want, "{value}");
        }
    }

    #[test]
    fn requests() {
        let sent = metadata("t");
        assert_eq!(sent, b"\0\0\0\x19\0\x03\0\x01\0\0\0\0\0\x08argonaut\0\0\0\x01\0\x01t");
        let sent = produce("t", 2, -1, b"value", 5);
        assert_eq!(
            &sent[..8],
            [&(sent.len() as i32 - 4).to_be_bytes()[..], &[0, 0, 0, 3]].concat()
        );
        // From the batch on: base, length, epoch, magic 2, sum over what follows it.
        let batch = &sent[sent.len() - 61 - 12..];
        assert_eq!((&batch[..8], batch[16]), (&[0; 8][..], 2));
        assert_eq!(i32::from_be_bytes(batch[8..12].try_into().unwrap()) as usize, batch.len() - 12);
        let sum = u32::from_be_bytes(batch[17..21].try_into().unwrap());
        assert_eq!(u64::from(sum), checksum(CrcAlgorithm::Crc32Iscsi, &batch[21..]));
        assert!(batch.ends_with(b"\x16\0\0\0\x01\x0avalue\0"));
    }

    #[test]
    fn answers() {
        let one = |error: i16, leader: i32| {
            let mut out = 0i32.to_be_bytes().to_vec();
            out.extend(1i32.to_be_bytes());
            out.extend(7i32.to_be_bytes());
            out.extend(text("host"));
            out.extend(9092i32.to_be_bytes());
            out.extend((-1i16).to_be_bytes());
            out.extend(7i32.to_be_bytes());
            out.extend(1i32.to_be_bytes());
            out.extend(error.to_be_bytes());
            out.extend(text("t"));
            out.push(0);
            out.extend(1i32.to_be_bytes());
            out.extend(0i16.to_be_bytes());
            out.extend(0i32.to_be_bytes());
            out.extend(leader.to_be_bytes());
            for _ in 0..2 {
                out.extend(1i32.to_be_bytes());
                out.extend(7i32.to_be_bytes());
            }
            out
        };
        assert_eq!(read_metadata(&one(0, 7)).unwrap(), Partitions(vec![(0, "host".into(), 9092)]));
        assert!(read_metadata(&one(0, 8)).unwrap_err().contains("LEADER_NOT_AVAILABLE"));
        assert!(read_metadata(&one(29, 7)).unwrap_err().contains("AUTHORIZATION"));
        for end in 0..one(0, 7).len() {
            assert!(read_metadata(&one(0, 7)[..end]).is_err());
        }
        let produced = |error: i16| {
            [
                &[0, 0, 0, 0, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 2][..],
                &error.to_be_bytes(),
                &[0; 20],
            ]
            .concat()
        };
        assert_eq!(read_produce(&produced(0)), Ok(()));
        assert!(
            read_produce(&produced(6)).unwrap_err().contains("NOT_LEADER")
                && read_produce(&produced(0)[..9]).is_err()
        );
    }

    /// The exchange of RFC 7677.
    #[test]
    fn scram() {
        let (mut scram, first) = Scram::new(Hash::Sha256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO");
        assert_eq!(first, b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let broker = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let last = scram.last(broker).unwrap();
        assert_eq!(
            String::from_utf8(last).unwrap(),
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert!(scram.end(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").is_ok());
        for bad in
            [&b""[..], b"v=", b"e=other-error", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5="]
        {
            assert!(scram.end(bad).is_err());
        }
        for bad in [
            &b""[..],
            b"r=other,s=YQ==,i=1",
            b"r=rOprNGfwEbeRWgbNEkqO,s=YQ==,i=1",
            b"r=rOprNGfwEbeRWgbNEkqOx,s=YQ==,i=0",
            b"r=rOprNGfwEbeRWgbNEkqOx,s=YQ==,i=16385",
        ] {
            let (mut scram, _) = Scram::new(Hash::Sha512, "u", "p", "rOprNGfwEbeRWgbNEkqO");
            assert!(scram.last(bad).is_err() && scram.end(b"v=").is_err());
        }
    }

    proptest! {
        /// No bytes make it panic.
        #[test]
        fn any_bytes(bytes in any::<Vec<u8>>()) {
            let _ = (read_metadata(&bytes), read_produce(&bytes), read_handshake(&bytes), read_authenticate(&bytes));
            let _ = Scram::new(Hash::Sha256, "u", "p", "n").0.last(&bytes);
        }
    }
}
