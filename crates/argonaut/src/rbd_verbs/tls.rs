//! TLS of the block device server: certificates in files, laid out as `nbdkit` and QEMU have them.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// The server's side of TLS 1.3, with `server-cert.pem` and `server-key.pem` of a directory.
/// With `verify_peer` clients need a certificate signed by one of its `ca-cert.pem`.
///
/// # Errors
/// When a file cannot be read, or is not what its name says.
pub fn acceptor(dir: &Path, verify_peer: bool) -> Result<TlsAcceptor> {
    let provider = Arc::new(default_provider());
    let chain = certificates(&dir.join("server-cert.pem"))?;
    let path = dir.join("server-key.pem");
    let key = PrivateKeyDer::from_pem_file(&path).with_context(|| path.display().to_string())?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let builder = if verify_peer {
        let path = dir.join("ca-cert.pem");
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&path)? {
            roots.add(certificate).with_context(|| path.display().to_string())?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        builder.with_client_cert_verifier(verifier.build()?)
    } else {
        builder.with_no_client_auth()
    };
    let config = builder
        .with_single_cert(chain, key)
        .with_context(|| format!("certificate and key in {}", dir.display()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The server's side of TLS 1.3, with a chain of certificates and a key in PEM files.
///
/// # Errors
/// When a file cannot be read, or is not what it should be.
pub fn of_files(chain: &Path, key: &Path) -> Result<TlsAcceptor> {
    let certificates = certificates(chain)?;
    let key = PrivateKeyDer::from_pem_file(key).with_context(|| key.display().to_string())?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .with_context(|| format!("certificate and key in {}", chain.display()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = || CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>();
    let found = read().with_context(|| path.display().to_string())?;
    if found.is_empty() {
        bail!("{}: there is no certificate in it", path.display());
    }
    Ok(found)
}
