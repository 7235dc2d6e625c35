//! Events to exchanges of AMQP 0.9.1: topics as routing keys, messages that outlive the broker, publications that it
//! confirms.
//!
//! ```text
//!   reach ── greeting, PLAIN, bounds, virtual host, channel ── exchange is there? ── confirms ──> ready
//!   ready ── publish ── ack (routable: not given back) ──> ready, kept for the next event
//! ```
//!
//! Source: `rgw_amqp.cc`.

use rgw_proto::amqp::{self, Frame, GREETING, HEAD_LEN, Said};
use rgw_proto::sns::{Endpoint, Scheme, argument};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::lines::Stream;
use crate::push::Pusher;

/// Frames that a broker may send before what is waited for.
const FRAMES_MAX: usize = 64;
/// Bytes of names.
const SHORT_MAX: usize = 255;

/// When an event is away.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    /// When it is sent.
    None,
    /// When the broker has it.
    Broker,
    /// When a queue has it.
    Routable,
}

/// A connection with an open channel.
pub struct Line {
    stream: Box<dyn Stream>,
    frame_max: u32,
    /// The number of the next publication.
    next: u64,
}

impl Line {
    async fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.write_all(bytes).await.map_err(|error| error.to_string())?;
        self.stream.flush().await.map_err(|error| error.to_string())
    }

    async fn hear(&mut self) -> Result<Said, String> {
        for _ in 0..FRAMES_MAX {
            let mut head = [0; HEAD_LEN];
            self.stream.read_exact(&mut head).await.map_err(|error| error.to_string())?;
            let (kind, len) = amqp::frame_head(&head)?;
            let mut body = vec![0; len + 1];
            self.stream.read_exact(&mut body).await.map_err(|error| error.to_string())?;
            match amqp::read(&Frame { kind, payload: amqp::frame_body(body)? })? {
                Said::Nothing => {}
                Said::Close(why) => return Err(format!("the broker answered {why}")),
                said => return Ok(said),
            }
        }
        Err("the broker says too much that was not asked for".into())
    }

    async fn done(&mut self, class: u16, method: u16) -> Result<(), String> {
        match self.hear().await? {
            Said::Done(c, m) if (c, m) == (class, method) => Ok(()),
            _ => Err("the broker answered something else".into()),
        }
    }

    /// Connects and gets ready to publish.
    async fn open(
        pusher: &Pusher,
        to: &Endpoint,
        args: &str,
        exchange: &str,
        level: Level,
    ) -> Result<Self, String> {
        let vhost = amqp::vhost(&to.path)?;
        let secured = to.scheme == Scheme::Amqps;
        let stream = pusher.stream((&to.host, to.port), secured, args).await?;
        let mut line = Self { stream, frame_max: amqp::FRAME_BYTES_MAX, next: 1 };
        line.send(GREETING).await?;
        match line.hear().await? {
            Said::Start(ways) if ways.split(' ').any(|way| way == "PLAIN") => {}
            _ => return Err("the broker takes no user with a password (PLAIN)".into()),
        }
        let secret = to.secret.as_deref().unwrap_or("guest:guest");
        let (user, password) = secret.split_once(':').unwrap_or((secret, ""));
        line.send(&amqp::start_ok(user, password)).await?;
        let Said::Tune(broker) = line.hear().await? else {
            return Err("the broker answered something else".into());
        };
        line.frame_max = amqp::frame_max(broker);
        line.send(&amqp::open(line.frame_max, &vhost)).await?;
        line.done(10, 41).await?;
        line.send(&amqp::open_channel()).await?;
        line.done(20, 11).await?;
        // The default exchange is always there, and must not be asked for.
        if !exchange.is_empty() {
            line.send(&amqp::ask_exchange(exchange)).await?;
            line.done(40, 11).await?;
        }
        if level != Level::None {
            line.send(&amqp::want_confirms()).await?;
            line.done(85, 11).await?;
        }
        Ok(line)
    }

    async fn publish(
        &mut self,
        exchange: &str,
        topic: &str,
        body: &[u8],
        level: Level,
    ) -> Result<(), String> {
        let mandatory = level == Level::Routable;
        self.send(&amqp::publish(exchange, topic, mandatory, body, self.frame_max)).await?;
        let tag = self.next;
        self.next += 1;
        if level == Level::None {
            return Ok(());
        }
        let mut back = None;
        loop {
            match self.hear().await? {
                Said::Return(why) => back = Some(why),
                Said::Ack(of, more) if of == tag || (more && of > tag) => break,
                Said::Nack(of, more) if of == tag || (more && of > tag) => {
                    return Err("the broker did not take it".into());
                }
                _ => return Err("the broker answered something else".into()),
            }
        }
        match back {
            Some(why) => Err(format!("no queue wants it: {why}")),
            None => Ok(()),
        }
    }
}

impl Pusher {
    /// Publishes to an exchange. A connection that was kept and has ended meanwhile is made anew, once: then an event may
    /// arrive twice, and never not at all.
    ///
    /// # Errors
    /// Where the arguments do not fit, the broker is not reached, or does not take it.
    pub(crate) async fn publish(
        &self,
        to: &Endpoint,
        (url, args): (&str, &str),
        topic: &str,
        body: &[u8],
    ) -> Result<(), String> {
        let exchange = argument(args, "amqp-exchange").ok_or("the topic has no amqp-exchange")?;
        let level = match argument(args, "amqp-ack-level") {
            None | Some("broker") => Level::Broker,
            Some("none") => Level::None,
            Some("routable") => Level::Routable,
            Some(_) => return Err("amqp-ack-level is none, broker or routable".into()),
        };
        if exchange.len() > SHORT_MAX || topic.len() > SHORT_MAX {
            return Err("names in AMQP have at most 255 bytes".into());
        }
        let name = format!("{url} {args}");
        if let Some(mut line) = self.amqp.take(&name)
            && line.publish(exchange, topic, body, level).await.is_ok()
        {
            self.amqp.keep(name, line);
            return Ok(());
        }
        let mut line = Line::open(self, to, args, exchange, level).await?;
        line.publish(exchange, topic, body, level).await?;
        self.amqp.keep(name, line);
        Ok(())
    }
}
