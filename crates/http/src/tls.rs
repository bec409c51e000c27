//! The certificate authorities that are trusted: those of this machine.
//!
//! Read from the places where distributions keep them, or from `SSL_CERT_FILE` and `SSL_CERT_DIR`, as OpenSSL does it.
//! Nothing is built in: what a machine trusts is its owner's choice.

use std::error::Error;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Where distributions keep them.
const BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/pki/tls/cert.pem",
];
/// The directory that is read if there is no bundle.
const DIRECTORY: &str = "/etc/ssl/certs";

/// Why there can be no TLS connection.
#[derive(Clone, Debug)]
pub enum TlsError {
    /// This machine trusts no certificate authority.
    NoAuthorities,
    /// The library cannot be set up.
    Setup(rustls::Error),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAuthorities => f.write_str(
                "no certificate authorities were found on this machine; install the package ca-certificates, or name a bundle with SSL_CERT_FILE",
            ),
            Self::Setup(error) => write!(f, "TLS cannot be set up: {error}"),
        }
    }
}

impl Error for TlsError {}

/// What a TLS connection needs to know.
pub fn config() -> Result<Arc<ClientConfig>, TlsError> {
    let var = |name| std::env::var_os(name).map(PathBuf::from);
    let (file, directory) = (var("SSL_CERT_FILE"), var("SSL_CERT_DIR"));
    let bundles: Vec<PathBuf> = match &file {
        Some(file) => vec![file.clone()],
        None if directory.is_some() => Vec::new(),
        None => BUNDLES.iter().map(PathBuf::from).collect(),
    };
    let mut roots = bundles
        .iter()
        .map(|bundle| bundle_at(bundle))
        .find(|roots| !roots.is_empty())
        .unwrap_or_else(RootCertStore::empty);
    if let Some(directory) = &directory {
        add_directory(&mut roots, directory);
    } else if roots.is_empty() && file.is_none() {
        add_directory(&mut roots, Path::new(DIRECTORY));
    }
    if roots.is_empty() {
        return Err(TlsError::NoAuthorities);
    }
    with(roots)
}

/// The same with these authorities, be they none.
pub(super) fn with(roots: RootCertStore) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn bundle_at(path: &Path) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    if let Ok(bytes) = fs::read(path) {
        add(&mut roots, &bytes);
    }
    roots
}

fn add_directory(roots: &mut RootCertStore, directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if let Ok(bytes) = fs::read(entry.path()) {
            add(roots, &bytes);
        }
    }
}

/// A certificate that cannot be read is left out: one of a hundred must not turn off the others.
pub(super) fn add(roots: &mut RootCertStore, pem: &[u8]) {
    let read = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
    roots.add_parsable_certificates(read);
}
