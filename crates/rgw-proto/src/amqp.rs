//! AMQP 0.9.1, as far as a publisher needs it: frames, and the methods that it sends and gets. Without I/O.
//!
//! ```text
//!   frame   type 1 │ channel 2 │ size 4 │ payload │ 0xCE          all numbers big end first
//!   method  class 2 │ method 2 │ arguments                        short text: length 1; long text, table: length 4
//! ```
//!
//! Source: the AMQP 0-9-1 specification, and RabbitMQ's extensions of it (confirms, nack).

use crate::fields::Fields;
use crate::uri;

/// What a connection begins with.
pub const GREETING: &[u8; 8] = b"AMQP\0\0\x09\x01";
/// Bytes of a frame's payload that are taken, and proposed.
pub const FRAME_BYTES_MAX: u32 = 128 << 10;
/// Bytes of a frame before its payload.
pub const HEAD_LEN: usize = 7;
/// Least bytes that a frame of a peer may be bound to.
const FRAME_BYTES_MIN: u32 = 4_096;
const END: u8 = 0xce;
/// The channel that is used.
const CHANNEL: u16 = 1;

/// A frame, without its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// 1 a method, 2 a head of contents, 3 contents, 8 a heartbeat.
    pub kind: u8,
    /// What is in it.
    pub payload: Vec<u8>,
}

/// The kind, and the bytes of the payload that follow with one end byte, of a frame's first 7 bytes.
///
/// # Errors
/// For another protocol, and beyond [`FRAME_BYTES_MAX`].
pub fn frame_head(head: &[u8; HEAD_LEN]) -> Result<(u8, usize), String> {
    let [kind, _, _, size @ ..] = *head;
    let size = u32::from_be_bytes(size);
    match kind {
        1 | 2 | 3 | 8 if size <= FRAME_BYTES_MAX => Ok((kind, size as usize)),
        b'A' => Err("the broker speaks another version of AMQP: 0.9.1 is spoken here".into()),
        _ => Err("the broker sent no frame of AMQP 0.9.1".into()),
    }
}

/// Takes the payload with its end byte.
///
/// # Errors
/// Where it has another end.
pub fn frame_body(mut bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    match bytes.pop() {
        Some(END) => Ok(bytes),
        _ => Err("a frame of the broker has no end".into()),
    }
}

fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).expect("it is cut before");
    let mut out = vec![kind];
    out.extend(channel.to_be_bytes());
    out.extend(size.to_be_bytes());
    out.extend(payload);
    out.push(END);
    out
}

/// Arguments of a method.
struct Args(Vec<u8>);

impl Args {
    fn of(class: u16, method: u16) -> Self {
        Self([class.to_be_bytes(), method.to_be_bytes()].concat())
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// Text of at most 255 bytes; more is refused before.
    fn short(self, text: &str) -> Self {
        let len = u8::try_from(text.len()).expect("short texts are checked");
        self.raw(&[len]).raw(text.as_bytes())
    }

    fn long(self, bytes: &[u8]) -> Self {
        let len = u32::try_from(bytes.len()).expect("it is small");
        self.raw(&len.to_be_bytes()).raw(bytes)
    }

    fn method(self, channel: u16) -> Vec<u8> {
        frame(1, channel, &self.0)
    }
}

/// Arguments of methods.
impl<'a> Fields<'a> {
    fn u16(&mut self) -> Option<u16> {
        self.number().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.number().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.number().map(u64::from_be_bytes)
    }

    fn short(&mut self) -> Option<String> {
        let len = self.take(1)?[0];
        self.take(len.into()).map(|b| String::from_utf8_lossy(b).into_owned())
    }

    fn long(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.take(len as usize)
    }
}

/// What a broker says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// It begins, and takes these ways of naming oneself, blanks between.
    Start(String),
    /// Its bounds: bytes of a frame with head and end.
    Tune(u32),
    /// A method was done: its class and number.
    Done(u16, u16),
    /// It took a publication; with `true` all up to it.
    Ack(u64, bool),
    /// It did not.
    Nack(u64, bool),
    /// It took one that no queue wants; why.
    Return(String),
    /// It ends the channel or connection; why.
    Close(String),
    /// What needs no answer.
    Nothing,
}

/// What a method of a broker says.
///
/// # Errors
/// For what is cut, or is no method that a publisher gets.
pub fn read(frame: &Frame) -> Result<Said, String> {
    if frame.kind != 1 {
        return Ok(Said::Nothing);
    }
    let mut fields = Fields(&frame.payload);
    let said = (|| {
        let (class, method) = (fields.u16()?, fields.u16()?);
        Some(match (class, method) {
            (10, 10) => {
                fields.take(2)?;
                fields.long()?;
                Said::Start(String::from_utf8_lossy(fields.long()?).into_owned())
            }
            (10, 30) => {
                fields.u16()?;
                Said::Tune(fields.u32()?)
            }
            (10 | 20, 50 | 40) if (class, method) == (10, 50) || class == 20 => {
                let (code, text) = (fields.u16()?, fields.short()?);
                Said::Close(format!("{code} {text}"))
            }
            (60, 80) => Said::Ack(fields.u64()?, fields.take(1)?[0] & 1 != 0),
            (60, 120) => Said::Nack(fields.u64()?, fields.take(1)?[0] & 1 != 0),
            (60, 50) => Said::Return(format!("{} {}", fields.u16()?, fields.short()?)),
            (10, 41) | (20, 11) | (40, 11) | (85, 11) => Said::Done(class, method),
            (10, 60 | 61) => Said::Nothing,
            _ => return None,
        })
    })();
    said.ok_or_else(|| "the broker sent a method that was not expected".into())
}

/// Names the client: `PLAIN`. It asks to be told why it is refused.
#[must_use]
pub fn start_ok(user: &str, password: &str) -> Vec<u8> {
    let able = ["authentication_failure_close", "publisher_confirms", "basic.nack"];
    let mut table = Args(Vec::new());
    for name in able {
        table = table.short(name).raw(b"t\x01");
    }
    let properties = Args(Vec::new()).short("product").raw(b"S").long(b"Argonaut");
    let properties = properties.short("capabilities").raw(b"F").long(&table.0);
    let response = format!("\0{user}\0{password}");
    let args = Args::of(10, 11).long(&properties.0).short("PLAIN").long(response.as_bytes());
    args.short("en_US").method(0)
}

/// Bytes of a frame that both take; 0 of a broker stands for any.
#[must_use]
pub fn frame_max(broker: u32) -> u32 {
    match broker {
        0 => FRAME_BYTES_MAX,
        broker => broker.clamp(FRAME_BYTES_MIN, FRAME_BYTES_MAX),
    }
}

/// Agrees to bounds, without heartbeats, and opens `vhost`, of at most 255 bytes.
#[must_use]
pub fn open(frame_max: u32, vhost: &str) -> Vec<u8> {
    let tune = Args::of(10, 31).raw(&1u16.to_be_bytes()).raw(&frame_max.to_be_bytes());
    let open = Args::of(10, 40).short(vhost).short("").raw(&[0]);
    [tune.raw(&[0, 0]).method(0), open.method(0)].concat()
}

/// Opens the channel.
#[must_use]
pub fn open_channel() -> Vec<u8> {
    Args::of(20, 10).short("").method(CHANNEL)
}

/// Asks whether an exchange is there; it is not made.
#[must_use]
pub fn ask_exchange(exchange: &str) -> Vec<u8> {
    let args = Args::of(40, 10).raw(&[0, 0]).short(exchange).short("topic");
    args.raw(&[0b11]).long(&[]).method(CHANNEL)
}

/// Has the broker confirm what is published.
#[must_use]
pub fn want_confirms() -> Vec<u8> {
    Args::of(85, 10).raw(&[0]).method(CHANNEL)
}

/// A message that outlives the broker; `mandatory`: given back where no queue wants it. Names have at most 255 bytes.
#[must_use]
pub fn publish(exchange: &str, key: &str, mandatory: bool, body: &[u8], frame_max: u32) -> Vec<u8> {
    let args = Args::of(60, 40).raw(&[0, 0]).short(exchange).short(key);
    let mut out = args.raw(&[u8::from(mandatory)]).method(CHANNEL);
    let head = Args(60u16.to_be_bytes().to_vec()).raw(&[0, 0]);
    // Content type and delivery mode, 2: kept on disk.
    let head = head.raw(&(body.len() as u64).to_be_bytes()).raw(&0x9000u16.to_be_bytes());
    out.extend(frame(2, CHANNEL, &head.short("application/json").raw(&[2]).0));
    for piece in body.chunks(frame_max as usize - HEAD_LEN - 1) {
        out.extend(frame(3, CHANNEL, piece));
    }
    out
}

/// The virtual host of a URL's path: `/` where none is named.
///
/// # Errors
/// Where it is no text, or too long.
pub fn vhost(path: &str) -> Result<String, String> {
    let path = path.split('?').next().unwrap_or_default();
    let name = path.strip_prefix('/').unwrap_or(path);
    if name.is_empty() {
        return Ok("/".into());
    }
    let name = uri::decode_text(name, false).map_err(|error| error.message)?;
    match name.len() {
        ..=255 => Ok(name),
        _ => Err("a virtual host has at most 255 bytes".into()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames(mut bytes: &[u8]) -> Vec<Frame> {
        let mut out = Vec::new();
        while !bytes.is_empty() {
            let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>().unwrap();
            let (kind, len) = frame_head(head).unwrap();
            let payload = frame_body(rest[..=len].to_vec()).unwrap();
            out.push(Frame { kind, payload });
            bytes = &rest[len + 1..];
        }
        out
    }

    /// As the specification lays them out.
    #[test]
    fn what_is_sent() {
        assert_eq!(open_channel(), b"\x01\x00\x01\x00\x00\x00\x05\x00\x14\x00\x0a\x00\xce");
        assert_eq!(want_confirms(), b"\x01\x00\x01\x00\x00\x00\x05\x00\x55\x00\x0a\x00\xce");
        let asked = ask_exchange("ex");
        assert_eq!(&asked[7..], b"\x00\x28\x00\x0a\x00\x00\x02ex\x05topic\x03\x00\x00\x00\x00\xce");
        let sent = frames(&publish("ex", "key", true, &[7; 10_000], 4_096));
        assert_eq!(sent[0].payload, b"\x00\x3c\x00\x28\x00\x00\x02ex\x03key\x01");
        assert_eq!(
            &sent[1].payload[..14],
            b"\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x27\x10\x90\x00"
        );
        let bodies: Vec<usize> = sent[2..].iter().map(|f| f.payload.len()).collect();
        assert_eq!(bodies, [4_088, 4_088, 1_824]);
        assert!(sent[2..].iter().all(|f| f.kind == 3));
        let named = String::from_utf8_lossy(&start_ok("u", "p w")).into_owned();
        assert!(named.contains("\0u\0p w") && named.contains("PLAIN"));
    }

    #[test]
    fn what_is_read() {
        let said = |payload: &[u8]| read(&Frame { kind: 1, payload: payload.to_vec() });
        assert_eq!(
            said(b"\0\x0a\0\x0a\0\x09\0\0\0\0\0\0\0\x0ePLAIN AMQPLAIN\0\0\0\0"),
            Ok(Said::Start("PLAIN AMQPLAIN".into()))
        );
        assert_eq!(said(b"\0\x0a\0\x1e\x07\xff\0\x02\0\0\0\x3c"), Ok(Said::Tune(131_072)));
        assert_eq!(said(b"\0\x0a\0\x32\x01\x93\x02no\0\0\0\0"), Ok(Said::Close("403 no".into())));
        assert_eq!(said(b"\0\x14\0\x28\x01\x94\x02no\0\0\0\0"), Ok(Said::Close("404 no".into())));
        assert_eq!(said(b"\0\x3c\0\x50\0\0\0\0\0\0\0\x05\x01"), Ok(Said::Ack(5, true)));
        assert_eq!(said(b"\0\x3c\0\x78\0\0\0\0\0\0\0\x05\x00"), Ok(Said::Nack(5, false)));
        assert_eq!(
            said(b"\0\x3c\0\x32\x01\x38\x08NO_ROUTE\0\0"),
            Ok(Said::Return("312 NO_ROUTE".into()))
        );
        assert_eq!(said(b"\0\x55\0\x0b"), Ok(Said::Done(85, 11)));
        for bad in [&b""[..], b"\0\x0a", b"\0\x0a\0\x32\x01", b"\0\x63\0\x01", b"\0\x3c\0\x50\0"] {
            assert!(said(bad).is_err());
        }
        assert_eq!(read(&Frame { kind: 8, payload: Vec::new() }), Ok(Said::Nothing));
        assert!(frame_head(b"HTTP/1.").is_err() && frame_head(b"AMQP\0\0\x09").is_err());
        assert!(frame_head(&[1, 0, 0, 0xff, 0, 0, 0]).is_err() && frame_body(vec![1]).is_err());
        assert_eq!((frame_max(0), frame_max(1), frame_max(u32::MAX)), (131_072, 4_096, 131_072));
    }

    #[test]
    fn virtual_hosts() {
        for (path, want) in
            [("", "/"), ("/", "/"), ("/a", "a"), ("/%2F", "/"), ("/a%2Fb?x=y", "a/b")]
        {
            assert_eq!(vhost(path).unwrap(), want, "{path}");
        }
        assert!(vhost("/%f").is_err() && vhost(&format!("/{}", "a".repeat(256))).is_err());
    }

    proptest! {
        /// No bytes make it panic.
        #[test]
        fn any_bytes(kind in any::<u8>(), payload in any::<Vec<u8>>(), method in prop_oneof![Just(10u8), Just(30), Just(40), Just(50), Just(80)]) {
            let _ = read(&Frame { kind, payload: payload.clone() });
            let _ = read(&Frame { kind: 1, payload: [&[0, 10, 0, method], &payload[..]].concat() });
            let _ = read(&Frame { kind: 1, payload: [&[0, 60, 0, method], &payload[..]].concat() });
            let _ = frame_body(payload);
        }
    }
}
