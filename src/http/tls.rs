//! TLS with certificates from files. rustls itself does not reload them: the files are read again when they change, so that a
//! renewed certificate needs no restart.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::guard::FileVersion;

/// `[gateway.tls]`: serve HTTPS. Both files or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// The certificate and its intermediate certificates, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<String>,
    /// Its private key, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The file that an error refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    Cert,
    Key,
}

/// A TLS acceptor with the current certificate.
#[derive(Debug)]
pub struct ReloadingTls {
    files: CertificateFiles,
    current: Mutex<(Stamps, Arc<ServerConfig>)>,
}

#[derive(Clone, Debug)]
struct CertificateFiles {
    cert: PathBuf,
    key: PathBuf,
}

type Stamps = [Option<FileVersion>; 2];

impl ReloadingTls {
    /// Reads both files; `~/` means the folder `user`.
    ///
    /// # Errors
    /// The file that cannot be used, and the reason.
    pub fn open(config: &TlsConfig, user: Option<&Path>) -> Result<Option<Self>, (TlsFile, String)> {
        let (cert, key) = match (&config.cert, &config.key) {
            (Some(cert), Some(key)) => (cert, key),
            (None, None) => return Ok(None),
            (Some(_), None) => return Err((TlsFile::Key, "it is not set, and gateway.tls.cert is".to_owned())),
            (None, Some(_)) => return Err((TlsFile::Cert, "it is not set, and gateway.tls.key is".to_owned())),
        };
        let absolute = |file, path: &str| {
            let path = crate::home::expand(path, Path::new(""), user);
            let wrong = || format!("{} is neither absolute nor begins with ~/", path.display());
            if path.is_absolute() { Ok(path.clone()) } else { Err((file, wrong())) }
        };
        let files = CertificateFiles { cert: absolute(TlsFile::Cert, cert)?, key: absolute(TlsFile::Key, key)? };
        let current = Mutex::new((files.stamps(), files.read()?));
        Ok(Some(Self { files, current }))
    }

    /// Performs the TLS handshake.
    ///
    /// # Errors
    /// The handshake fails, or takes longer than `limit`.
    pub async fn accept(&self, stream: TcpStream, limit: Duration) -> io::Result<TlsStream<TcpStream>> {
        let acceptor = TlsAcceptor::from(self.config());
        match tokio::time::timeout(limit, acceptor.accept(stream)).await {
            Ok(stream) => stream,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake took too long")),
        }
    }

    /// Returns the configuration from the files, or the previous one if the files are invalid now.
    fn config(&self) -> Arc<ServerConfig> {
        let stamps = self.files.stamps();
        let mut current = self.current.lock();
        if current.0 != stamps {
            current.0 = stamps;
            match self.files.read() {
                Ok(config) => {
                    tracing::info!(cert = %self.files.cert.display(), "the certificate was reloaded");
                    current.1 = config;
                }
                Err((_, reason)) => {
                    tracing::error!(reason, "the new certificate is invalid; the previous one stays in use");
                }
            }
        }
        current.1.clone()
    }
}

impl CertificateFiles {
    fn stamps(&self) -> Stamps {
        [FileVersion::of_target(&self.cert), FileVersion::of_target(&self.key)]
    }

    fn read(&self) -> Result<Arc<ServerConfig>, (TlsFile, String)> {
        let of_cert = |reason: String| (TlsFile::Cert, format!("{}: {reason}", self.cert.display()));
        let of_key = |reason: String| (TlsFile::Key, format!("{}: {reason}", self.key.display()));
        let chain: Vec<_> = CertificateDer::pem_file_iter(&self.cert)
            .and_then(Iterator::collect)
            .map_err(|error| of_cert(describe(&error, "certificate")))?;
        if chain.is_empty() {
            return Err(of_cert("it has no certificate".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| of_key(describe(&error, "private key")))?;
        let provider = Arc::new(ring::default_provider());
        // Building the configuration makes the same check, but does not say which file is wrong.
        CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => of_key("it is not the key of the certificate".to_owned()),
            rustls::Error::InvalidCertificate(_) => of_cert(format!("the certificate cannot be read: {error}")),
            error => of_key(format!("the key cannot be used: {error}")),
        })?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| of_cert(error.to_string()))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Describes an error without revealing the content of the file.
fn describe(error: &pem::Error, what: &str) -> String {
    match error {
        pem::Error::Io(error) => format!("cannot be read: {error}"),
        pem::Error::NoItemsFound => format!("it has no {what}"),
        _ => format!("it is not PEM, or its {what} is broken"),
    }
}
