//! A certificate that is signed with its own key, and what TLS is spoken with.

use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Years that a certificate of our own lasts, as stock's.
const YEARS: u64 = 10;
/// Bytes of a certificate with its chain, or of a key, that an operator may set.
pub const PEM_BYTES_MAX: usize = 64 << 10;

/// A certificate and its key, as PEM text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The certificate, and those it is signed by.
    pub crt: String,
    /// The key.
    pub key: String,
}

/// A value of DER: tag, length, content.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        short @ 0..0x80 => out.push(short as u8),
        long => {
            let bytes = long.to_be_bytes();
            let from = bytes.iter().position(|byte| *byte != 0).unwrap_or(0);
            out.push(0x80 | (bytes.len() - from) as u8);
            out.extend(&bytes[from..]);
        }
    }
    out.extend(content);
    out
}

fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    der(0x30, &parts.concat())
}

/// Days since 1970 as year, month and day of the Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    // Eras of 400 years that begin in March of year 0.
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + u64::from(month <= 2), month, doy - (153 * mp + 2) / 5 + 1)
}

/// A moment as `GeneralizedTime`.
fn time(seconds: u64) -> Vec<u8> {
    let ((year, month, day), rest) = (civil(seconds / 86_400), seconds % 86_400);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    let text = format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}Z");
    der(0x18, text.as_bytes())
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line) + "\n");
    format!("-----BEGIN {label}-----\n{}-----END {label}-----\n", lines.collect::<String>())
}

const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const ORGANIZATION: &[u8] = &[0x55, 4, 10];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 29, 17];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 29, 19];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const ECDSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];

fn oid(bytes: &[u8]) -> Vec<u8> {
    der(6, bytes)
}

/// A certificate of version 3 with a new P-256 key, for the host's name and addresses, signed with its own key.
///
/// # Errors
/// When the system gives no random bytes.
pub fn self_signed(host: &str, now_s: u64) -> Result<Pair, String> {
    let rng = SystemRandom::new();
    let gone = |_| "no key could be made".to_owned();
    let pkcs8 =
        EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &rng).map_err(gone)?;
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref())
        .map_err(|_| "no key could be made".to_owned())?;
    let mut serial = [0; 16];
    aws_lc_rs::rand::fill(&mut serial).map_err(gone)?;
    serial[0] = serial[0] & 0x7f | 0x40; // positive, and in its shortest form
    let word =
        |kind: &[u8], text: &str| der(0x31, &sequence(&[oid(kind), der(0x0c, text.as_bytes())]));
    let name = sequence(&[word(ORGANIZATION, "IT"), word(COMMON_NAME, "ceph-dashboard")]);
    let validity = sequence(&[time(now_s), time(now_s + YEARS * 365 * 86_400)]);
    let mut bits = vec![0]; // no bit of the last byte is unused
    bits.extend(key.public_key().as_ref());
    let public = sequence(&[sequence(&[oid(EC_PUBLIC_KEY), oid(P256)]), der(3, &bits)]);
    let mut names = vec![der(0x82, b"localhost"), der(0x87, &[127, 0, 0, 1])];
    match host.parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V4(ip)) => names.push(der(0x87, &ip.octets())),
        Ok(std::net::IpAddr::V6(ip)) => names.push(der(0x87, &ip.octets())),
        Err(_) if !host.is_empty() && host.is_ascii() => names.push(der(0x82, host.as_bytes())),
        Err(_) => {}
    }
    let extension = |kind: &[u8], is_critical: bool, value: Vec<u8>| {
        let critical = if is_critical { der(1, &[0xff]) } else { Vec::new() };
        sequence(&[oid(kind), critical, der(4, &value)])
    };
    let extensions = sequence(&[
        extension(ALTERNATIVE_NAMES, false, sequence(&names)),
        extension(BASIC_CONSTRAINTS, true, sequence(&[])),
    ]);
    let algorithm = sequence(&[oid(ECDSA_SHA256)]);
    let body = sequence(&[
        der(0xa0, &der(2, &[2])), // version 3
        der(2, &serial),
        algorithm.clone(),
        name.clone(),
        validity,
        name,
        public,
        der(0xa3, &extensions),
    ]);
    let signature = key.sign(&rng, &body).map_err(gone)?;
    let mut bits = vec![0];
    bits.extend(signature.as_ref());
    let certificate = sequence(&[body, algorithm, der(3, &bits)]);
    Ok(Pair { crt: pem("CERTIFICATE", &certificate), key: pem("PRIVATE KEY", pkcs8.as_ref()) })
}

/// The server's side of TLS 1.2 and 1.3 with a certificate and its key.
///
/// # Errors
/// A sentence, when one of the texts is not what it should be, or the key is another's.
pub fn acceptor(pair: &Pair) -> Result<TlsAcceptor, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pair.crt.as_bytes()).collect();
    let chain = chain.map_err(|err| format!("the certificate: {err}"))?;
    if chain.is_empty() {
        return Err("there is no certificate in what was set as one".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes());
    let key = key.map_err(|err| format!("the certificate's key: {err}"))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|err| err.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|err| format!("certificate and key: {err}"))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    use super::*;

    #[test]
    fn dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_787), (2026, 11, 30));
    }

    /// A client that trusts the certificate speaks TLS with who has its key; one that does not, and one
    /// that asks for another name, do not.
    #[test]
    fn a_client_trusts_it() {
        let now_s = rt::now().wall_ns / 1_000_000_000;
        let pair = self_signed("host7", now_s).unwrap();
        let other = self_signed("host7", now_s).unwrap();
        let talk = |trusted: &Pair, name: &str| {
            let mut roots = RootCertStore::empty();
            for one in CertificateDer::pem_slice_iter(trusted.crt.as_bytes()) {
                roots.add(one.unwrap()).unwrap();
            }
            let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
            let name = ServerName::try_from(name.to_owned()).unwrap();
            let acceptor = acceptor(&pair).unwrap();
            rt::run_local(async {
                let (here, there) = tokio::io::duplex(1 << 16);
                let connector = TlsConnector::from(Arc::new(config));
                let (client, server) =
                    tokio::join!(connector.connect(name, here), acceptor.accept(there));
                client.is_ok() && server.is_ok()
            })
            .unwrap()
        };
        assert!(talk(&pair, "host7") && talk(&pair, "localhost") && talk(&pair, "127.0.0.1"));
        assert!(!talk(&other, "host7"), "another's certificate");
        assert!(!talk(&pair, "host8"), "another name");
    }

    #[test]
    fn nonsense_is_refused() {
        let pair = self_signed("h", 1_800_000_000).unwrap();
        let other = self_signed("h", 1_800_000_000).unwrap();
        let swapped = Pair { crt: pair.crt.clone(), key: other.key };
        assert!(acceptor(&swapped).is_err(), "another's key");
        assert!(acceptor(&Pair { crt: String::new(), key: pair.key.clone() }).is_err());
        assert!(acceptor(&Pair { crt: pair.crt, key: "x".to_owned() }).is_err());
    }
}
