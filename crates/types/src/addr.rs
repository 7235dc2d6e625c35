//! Addresses of participants.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use denc::{DecodeError, Denc, Features, Reader, Writer};

/// Which protocol an address speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddrKind(pub u32);

impl AddrKind {
    /// Blank.
    pub const NONE: Self = Self(0);
    /// Messenger v1.
    pub const LEGACY: Self = Self(1);
    /// Messenger v2.
    pub const MSGR2: Self = Self(2);
    /// A client that does not listen.
    pub const ANY: Self = Self(3);
    /// A range of addresses, for blocklists.
    pub const CIDR: Self = Self(4);
}

/// One address of a participant. The peer's `entity_addr_t`, printed `v2:1.2.3.4:5/6`.
///
/// Wire: u8 1, then 1/1 { u32 kind, u32 nonce, u32 sockaddr length, sockaddr } with the
/// family little-endian and the port big-endian; without MSG_ADDR2 the legacy form of
/// u32 0, u32 nonce, 128-byte sockaddr with a big-endian family.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityAddr {
    /// The protocol.
    pub kind: AddrKind,
    /// Tells incarnations of one endpoint apart.
    pub nonce: u32,
    /// Where; `None` is a blank address.
    pub sock: Option<SocketAddr>,
}

impl EntityAddr {
    /// A messenger v2 address.
    #[must_use]
    pub const fn msgr2(sock: SocketAddr, nonce: u32) -> Self {
        Self { kind: AddrKind::MSGR2, nonce, sock: Some(sock) }
    }

    /// Whether it names no endpoint.
    #[must_use]
    pub const fn is_blank(&self) -> bool {
        self.sock.is_none()
    }

    /// Same IP, port and nonce, whatever the protocol: how blocklist entries match.
    #[must_use]
    pub fn same_instance(&self, other: &Self) -> bool {
        self.nonce == other.nonce && self.sock == other.sock
    }

    /// The address with another protocol.
    #[must_use]
    pub const fn with_kind(mut self, kind: AddrKind) -> Self {
        self.kind = kind;
        self
    }
}

impl fmt::Display for EntityAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            AddrKind::NONE => return f.write_str("-"),
            AddrKind::LEGACY => f.write_str("v1:")?,
            AddrKind::MSGR2 => f.write_str("v2:")?,
            AddrKind::ANY => f.write_str("any:")?,
            AddrKind::CIDR => f.write_str("cidr:")?,
            _ => f.write_str("???:")?,
        }
        match self.sock {
            Some(sock) => write!(f, "{sock}/{}", self.nonce),
            None => write!(f, ":/{}", self.nonce),
        }
    }
}

impl fmt::Debug for EntityAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads `[v1:|v2:|any:]IP:PORT[/NONCE]`; without a protocol it is v2 by default.
impl std::str::FromStr for EntityAddr {
    type Err = &'static str;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "an address is [v1:|v2:|any:]IP:PORT[/NONCE]";
        let (kind, rest) = if let Some(rest) = s.strip_prefix("v2:") {
            (AddrKind::MSGR2, rest)
        } else if let Some(rest) = s.strip_prefix("v1:") {
            (AddrKind::LEGACY, rest)
        } else if let Some(rest) = s.strip_prefix("any:") {
            (AddrKind::ANY, rest)
        } else {
            (AddrKind::MSGR2, s)
        };
        let (sock, nonce) = rest.split_once('/').unwrap_or((rest, "0"));
        let nonce = nonce.parse().map_err(|_| WRONG)?;
        let sock = match sock.parse::<SocketAddr>() {
            Ok(sock) => sock,
            Err(_) => SocketAddr::new(
                sock.trim_matches(['[', ']']).parse::<IpAddr>().map_err(|_| WRONG)?,
                0,
            ),
        };
        Ok(Self { kind, nonce, sock: Some(sock) })
    }
}

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// What follows the family in a sockaddr.
fn put_sock(w: &mut Writer, sock: &SocketAddr) {
    w.raw(&sock.port().to_be_bytes());
    match sock {
        SocketAddr::V4(a) => {
            w.raw(&a.ip().octets());
            w.raw(&[0; 8]);
        }
        SocketAddr::V6(a) => {
            w.raw(&a.flowinfo().to_be_bytes());
            w.raw(&a.ip().octets());
            w.u32(a.scope_id());
        }
    }
}

fn get_sock(family: u16, r: &mut Reader<'_>) -> Result<Option<SocketAddr>, DecodeError> {
    match family {
        0 => Ok(None),
        AF_INET => {
            let port = u16::from_be_bytes(r.array()?);
            let ip = Ipv4Addr::from(r.array::<4>()?);
            Ok(Some(SocketAddrV4::new(ip, port).into()))
        }
        AF_INET6 => {
            let (port, flow) = (u16::from_be_bytes(r.array()?), u32::from_be_bytes(r.array()?));
            let ip = Ipv6Addr::from(r.array::<16>()?);
            Ok(Some(SocketAddrV6::new(ip, port, flow, r.u32()?).into()))
        }
        _ => Err(DecodeError::Invalid { what: "entity_addr_t", rule: "family is IPv4 or IPv6" }),
    }
}

impl EntityAddr {
    fn encode_legacy(&self, w: &mut Writer) {
        w.u32(0);
        w.u32(self.nonce);
        let start = w.len();
        if let Some(sock) = &self.sock {
            let family = if sock.is_ipv4() { AF_INET } else { AF_INET6 };
            w.raw(&family.to_be_bytes());
            put_sock(w, sock);
        }
        let rest = 128 - (w.len() - start);
        w.raw(&[0; 128][..rest]);
    }

    /// Behind the marker byte.
    fn decode_marked(r: &mut Reader<'_>, marker: u8) -> Result<Self, DecodeError> {
        match marker {
            0 => {
                r.skip(3)?;
                let nonce = r.u32()?;
                let raw = r.array::<128>()?;
                let mut body = Reader::new(&raw);
                let family = u16::from_be_bytes(body.array()?);
                let sock = get_sock(family, &mut body)?;
                let kind = if sock.is_some() { AddrKind::LEGACY } else { AddrKind::NONE };
                Ok(Self { kind, nonce, sock })
            }
            1 => r.framed("entity_addr_t", 1, |r, _| {
                let (kind, nonce) = (AddrKind(r.u32()?), r.u32()?);
                let len = r.u32()? as usize;
                let raw = r.take("sockaddr", len)?;
                let mut body = Reader::new(raw);
                let sock = if len == 0 {
                    None
                } else {
                    let family = body.u16()?;
                    get_sock(family, &mut body)?
                };
                Ok(Self { kind, nonce, sock })
            }),
            _ => Err(DecodeError::Invalid { what: "entity_addr_t", rule: "marker is 0 or 1" }),
        }
    }
}

impl Denc for EntityAddr {
    fn encode(&self, w: &mut Writer) {
        if !w.has(Features::MSG_ADDR2) {
            return self.encode_legacy(w);
        }
        let kind = if self.kind == AddrKind::ANY && !w.has(Features::SERVER_NAUTILUS) {
            AddrKind::LEGACY
        } else {
            self.kind
        };
        w.u8(1);
        w.framed(1, 1, |w| {
            w.u32(kind.0);
            w.u32(self.nonce);
            match &self.sock {
                None => {
                    w.u32(28); // family 0 and nothing, as long as the longest address
                    w.raw(&[0; 28]);
                }
                Some(sock) => {
                    w.u32(if sock.is_ipv4() { 16 } else { 28 });
                    w.u16(if sock.is_ipv4() { AF_INET } else { AF_INET6 });
                    put_sock(w, sock);
                }
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let marker = r.u8()?;
        Self::decode_marked(r, marker)
    }
}

/// All addresses of one participant. The peer's `entity_addrvec_t`, printed `[a,b]`.
///
/// Wire: u8 2, u32 count, addresses; a single address in either form is read too, and
/// written for peers without MSG_ADDR2.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddrVec(pub Vec<EntityAddr>);

impl AddrVec {
    /// The first messenger v2 address.
    #[must_use]
    pub fn msgr2(&self) -> Option<EntityAddr> {
        self.0.iter().copied().find(|a| a.kind == AddrKind::MSGR2)
    }

    /// The first messenger v1 address, or the first of any kind: what peers without
    /// addrvecs are given.
    #[must_use]
    pub fn legacy(&self) -> EntityAddr {
        let v1 = self.0.iter().find(|a| a.kind == AddrKind::LEGACY);
        v1.or(self.0.first()).copied().unwrap_or_default()
    }

    /// The first messenger v1 address, where there is one.
    #[must_use]
    pub fn msgr1(&self) -> Option<EntityAddr> {
        self.0.iter().copied().find(|a| a.kind == AddrKind::LEGACY)
    }

    /// The first address, blank when there is none.
    #[must_use]
    pub fn front(&self) -> EntityAddr {
        self.0.first().copied().unwrap_or_default()
    }

    /// Whether no address names an endpoint.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.0.iter().all(EntityAddr::is_blank)
    }
}

impl From<EntityAddr> for AddrVec {
    fn from(addr: EntityAddr) -> Self {
        Self(vec![addr])
    }
}

/// Reads one address or `[v2:IP:PORT/NONCE,v1:IP:PORT/NONCE]`.
impl std::str::FromStr for AddrVec {
    type Err = &'static str;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let inner = s.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        // A bare IPv6 address has brackets, too.
        let list = inner.filter(|list| list.starts_with(['v', 'a']));
        list.unwrap_or(s).split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for AddrVec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("-"),
            [one] => fmt::Display::fmt(one, f),
            all => {
                let all: Vec<_> = all.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", all.join(","))
            }
        }
    }
}

impl fmt::Debug for AddrVec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Denc for AddrVec {
    fn encode(&self, w: &mut Writer) {
        if !w.has(Features::MSG_ADDR2) {
            return self.legacy().encode_legacy(w);
        }
        w.u8(2);
        self.0.encode(w);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match r.u8()? {
            2 => Ok(Self(Denc::decode(r)?)),
            marker => {
                let addr = EntityAddr::decode_marked(r, marker)?;
                Ok(Self(if addr.is_blank() { vec![] } else { vec![addr] }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes from live traffic of 16.2.15: v2:127.0.0.1:6800/11010.
    #[test]
    fn golden() {
        let hex = "0101011c00000002000000022b00001000000002001a907f0000010000000000000000";
        let bytes: Vec<u8> = (0..hex.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap())
            .collect();
        let addr = EntityAddr::from_bytes(&bytes).unwrap();
        assert_eq!(addr.to_string(), "v2:127.0.0.1:6800/11010");
        assert_eq!(addr.to_bytes(), bytes);
        assert_eq!("v2:127.0.0.1:6800/11010".parse(), Ok(addr));
        let blank = EntityAddr::default().to_bytes();
        assert_eq!(blank.len(), 47); // as 16.2 to 20.2 write it
        assert_eq!(EntityAddr::from_bytes(&blank), Ok(EntityAddr::default()));
        let vec = AddrVec(vec![addr, addr.with_kind(AddrKind::LEGACY)]);
        assert_eq!(vec.to_string(), "[v2:127.0.0.1:6800/11010,v1:127.0.0.1:6800/11010]");
        assert_eq!(AddrVec::from_bytes(&vec.to_bytes()), Ok(vec.clone()));
        assert_eq!(vec.to_string().parse(), Ok(vec.clone()));
        assert_eq!(addr.to_string().parse(), Ok(AddrVec::from(addr)));
        assert!("[v2:127.0.0.1:6800,nonsense]".parse::<AddrVec>().is_err());
        let six: AddrVec = "[::1]:3300".parse().unwrap();
        assert_eq!(six.to_string(), "v2:[::1]:3300/0");
        let old = vec.to_bytes_for(Features::NONE);
        assert_eq!(old.len(), 136);
        assert_eq!(AddrVec::from_bytes(&old).unwrap().0, [vec.legacy()]);
    }
}
