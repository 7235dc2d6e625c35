//! Events to Kafka: the topic's name is Kafka's, the object's key chooses the partition, so that events of a key stay in order.
//!
//! ```text
//!   reach (TLS) ── SASL ──> line ── Metadata, kept for a while ── line to the partition's leader ── Produce
//! ```
//!
//! Source: `rgw_kafka.cc`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use rgw_proto::checksum::crc32c;
use rgw_proto::kafka::{self, Hash, Partitions, Scram};
use rgw_proto::sns::{Endpoint, argument, is_set};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::lines::{Lines, Stream};
use crate::push::Pusher;

/// How long it counts where a topic's partitions are led, and of how many topics that is kept.
const KEPT_NS: u64 = 30_000_000_000;
const KEPT_MAX: usize = 256;
/// How often a cluster is asked for a topic that it only makes, and how long is waited between.
const ASKS_MAX: usize = 10;
const ASK_PAUSE: Duration = Duration::from_millis(200);
/// Brokers that are tried for the first word.
const BROKERS_MAX: usize = 8;
/// Bytes of a topic's name.
const NAME_MAX: usize = 249;
/// Letters of a nonce.
const NONCE_LEN: usize = 24;

/// A connection to one broker, whose client is known.
pub struct Line(Box<dyn Stream>);

/// Connections, and where partitions are led.
#[derive(Default)]
pub struct Clusters {
    lines: Lines<Line>,
    led: RefCell<BTreeMap<String, (u64, Partitions)>>,
}

/// What a topic says of its cluster.
struct Cluster<'a> {
    url: &'a str,
    args: &'a str,
    /// User and password.
    secret: Option<(String, String)>,
    nonce: String,
}

impl Line {
    async fn ask(&mut self, request: &[u8]) -> Result<Vec<u8>, String> {
        self.send(request).await?;
        let len = self.0.read_i32().await.map_err(|error| error.to_string())?;
        let len = usize::try_from(len).ok().filter(|len| *len <= kafka::ANSWER_BYTES_MAX);
        let mut answer = vec![0; len.ok_or("the broker's answer is none of Kafka's")?];
        self.0.read_exact(&mut answer).await.map_err(|error| error.to_string())?;
        Ok(answer)
    }

    async fn send(&mut self, request: &[u8]) -> Result<(), String> {
        self.0.write_all(request).await.map_err(|error| error.to_string())?;
        self.0.flush().await.map_err(|error| error.to_string())
    }

    /// Proves who the client is.
    async fn prove(&mut self, cluster: &Cluster<'_>) -> Result<(), String> {
        let Some((user, password)) = &cluster.secret else { return Ok(()) };
        let mechanism = argument(cluster.args, "mechanism").unwrap_or("PLAIN");
        let hash = match mechanism {
            "PLAIN" => None,
            "SCRAM-SHA-256" => Some(Hash::Sha256),
            "SCRAM-SHA-512" => Some(Hash::Sha512),
            _ => return Err(format!("the mechanism {mechanism} is not built")),
        };
        kafka::read_handshake(&self.ask(&kafka::handshake(mechanism)).await?)?;
        let Some(hash) = hash else {
            let step = kafka::authenticate(&kafka::plain(user, password));
            return kafka::read_authenticate(&self.ask(&step).await?).map(drop);
        };
        let (mut scram, first) = Scram::new(hash, user, password, &cluster.nonce);
        let answer = self.ask(&kafka::authenticate(&first)).await?;
        let last = scram.last(&kafka::read_authenticate(&answer)?)?;
        let answer = self.ask(&kafka::authenticate(&last)).await?;
        scram.end(&kafka::read_authenticate(&answer)?)
    }
}

impl Pusher {
    async fn kafka_line(
        &self,
        cluster: &Cluster<'_>,
        host: &str,
        port: u16,
    ) -> Result<Line, String> {
        let secured = is_set(cluster.args, "use-ssl", false);
        let stream = self.stream((host, port), secured, cluster.args).await?;
        let mut line = Line(stream);
        line.prove(cluster).await?;
        Ok(line)
    }

    /// Where the partitions of a topic are led, asked of the first broker that answers.
    async fn led(
        &self,
        cluster: &Cluster<'_>,
        to: &Endpoint,
        topic: &str,
    ) -> Result<Partitions, String> {
        let more = argument(cluster.args, "kafka-brokers").unwrap_or_default();
        let more = more.split(',').filter_map(|broker| {
            let (host, port) = broker.rsplit_once(':').unwrap_or((broker, "9092"));
            Some((host.to_owned(), port.parse().ok()?))
        });
        let first = (to.host.clone(), to.port);
        let all = std::iter::once(first).chain(more.filter(|(host, _)| !host.is_empty()));
        let mut why = String::new();
        for (host, port) in all.take(BROKERS_MAX) {
            let mut line = match self.kafka_line(cluster, &host, port).await {
                Ok(line) => line,
                Err(error) => {
                    why = error;
                    continue;
                }
            };
            for _ in 0..ASKS_MAX {
                match kafka::read_metadata(&line.ask(&kafka::metadata(topic)).await?) {
                    Ok(found) => return Ok(found),
                    Err(error) => why = error,
                }
                tokio::time::sleep(ASK_PAUSE).await;
            }
            break;
        }
        Err(why)
    }

    async fn produce_once(
        &self,
        cluster: &Cluster<'_>,
        to: &Endpoint,
        topic: &str,
        (key, body): (&str, &[u8]),
    ) -> Result<(), String> {
        let named = format!("{} {} {topic}", cluster.url, cluster.args);
        let now = rt::now();
        let known = self.kafka.led.borrow().get(&named).cloned();
        let known = known.filter(|(at, _)| now.mono_ns.saturating_sub(*at) < KEPT_NS);
        let partitions = match known {
            Some((_, partitions)) => partitions,
            None => {
                let found = self.led(cluster, to, topic).await?;
                let mut led = self.kafka.led.borrow_mut();
                if led.len() >= KEPT_MAX {
                    led.clear();
                }
                led.insert(named, (now.mono_ns, found.clone()));
                found
            }
        };
        let at = crc32c(key.as_bytes()) as usize % partitions.0.len().max(1);
        let (number, host, port) =
            partitions.0.get(at).ok_or("the topic has no partition that is led")?;
        let acks = if argument(cluster.args, "kafka-ack-level") == Some("none") { 0 } else { -1 };
        let ms = i64::try_from(now.wall_ns / 1_000_000).unwrap_or_default();
        let request = kafka::produce(topic, *number, acks, body, ms);
        let name = format!("{} {} {host}:{port}", cluster.url, cluster.args);
        let mut line = match self.kafka.lines.take(&name) {
            Some(line) => line,
            None => self.kafka_line(cluster, host, *port).await?,
        };
        match acks {
            0 => line.send(&request).await?,
            _ => kafka::read_produce(&line.ask(&request).await?)?,
        }
        self.kafka.lines.keep(name, line);
        Ok(())
    }

    /// Sends one record; `key` is the object's. Where that fails, once more to what the cluster says by then: an event may
    /// arrive twice.
    ///
    /// # Errors
    /// Where the cluster is not reached, or does not take it.
    pub(crate) async fn produce(
        &self,
        to: &Endpoint,
        (url, args): (&str, &str),
        topic: &str,
        record: (&str, &[u8]),
    ) -> Result<(), String> {
        if topic.len() > NAME_MAX {
            return Err("a topic of Kafka has a name of at most 249 bytes".into());
        }
        let by_url = to.secret.as_ref().and_then(|secret| secret.split_once(':'));
        let by_args = argument(args, "user-name").zip(argument(args, "password"));
        let secret = by_args.or(by_url).map(|(user, password)| (user.into(), password.into()));
        let nonce = (self.letters)(NONCE_LEN);
        let cluster = Cluster { url, args, secret, nonce };
        if self.produce_once(&cluster, to, topic, record).await.is_ok() {
            return Ok(());
        }
        self.kafka.led.borrow_mut().remove(&format!("{url} {args} {topic}"));
        self.produce_once(&cluster, to, topic, record).await
    }
}
