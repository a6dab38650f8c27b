//! Certificates from files, read again when they change, so that renewing them needs no restart.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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

use super::stamp::Stamp;

/// `[gateway.tls]`: serve HTTPS. Both files or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// The certificate and those that lead up to its authority, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<String>,
    /// Its private key, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Which of the two files a fault is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    Cert,
    Key,
}

/// Makes encrypted streams.
#[derive(Debug)]
pub struct Tls {
    files: Files,
    current: Mutex<(Stamps, Arc<ServerConfig>)>,
}

#[derive(Clone, Debug)]
struct Files {
    cert: PathBuf,
    key: PathBuf,
}

type Stamps = [Option<Stamp>; 2];

impl Tls {
    /// Reads both files; `~/` is the folder of the user, `user`.
    ///
    /// # Errors
    /// Which file is of no use, why, and what would be right.
    pub fn open(config: &TlsConfig, user: Option<&Path>) -> Result<Option<Self>, (TlsFile, String)> {
        let (cert, key) = match (&config.cert, &config.key) {
            (Some(cert), Some(key)) => (cert, key),
            (None, None) => return Ok(None),
            (Some(_), None) => return Err((TlsFile::Key, "it is not set, and gateway.tls.cert is".to_owned())),
            (None, Some(_)) => return Err((TlsFile::Cert, "it is not set, and gateway.tls.key is".to_owned())),
        };
        let whole = |file, path: &str| {
            let path = crate::home::expand(path, Path::new(""), user);
            let wrong = || format!("{} is neither absolute nor begins with ~/", path.display());
            if path.is_absolute() { Ok(path.clone()) } else { Err((file, wrong())) }
        };
        let files = Files { cert: whole(TlsFile::Cert, cert)?, key: whole(TlsFile::Key, key)? };
        let current = Mutex::new((files.stamps(), files.read()?));
        Ok(Some(Self { files, current }))
    }

    /// Shakes hands.
    ///
    /// # Errors
    /// The client does not, or not within `limit`.
    pub async fn accept(&self, stream: TcpStream, limit: Duration) -> io::Result<TlsStream<TcpStream>> {
        let acceptor = TlsAcceptor::from(self.config());
        match tokio::time::timeout(limit, acceptor.accept(stream)).await {
            Ok(shaken) => shaken,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no TLS handshake in time")),
        }
    }

    /// What the files hold now; while that is of no use, what they held before.
    fn config(&self) -> Arc<ServerConfig> {
        let stamps = self.files.stamps();
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.0 != stamps {
            current.0 = stamps;
            match self.files.read() {
                Ok(config) => {
                    tracing::info!(cert = %self.files.cert.display(), "the certificate was read anew");
                    current.1 = config;
                }
                Err((_, reason)) => {
                    tracing::error!(reason, "the new certificate is of no use; the one before stays");
                }
            }
        }
        current.1.clone()
    }
}

impl Files {
    fn stamps(&self) -> Stamps {
        [Stamp::of(&self.cert), Stamp::of(&self.key)]
    }

    fn read(&self) -> Result<Arc<ServerConfig>, (TlsFile, String)> {
        let of_cert = |reason: String| (TlsFile::Cert, format!("{}: {reason}", self.cert.display()));
        let of_key = |reason: String| (TlsFile::Key, format!("{}: {reason}", self.key.display()));
        let chain: Vec<_> = CertificateDer::pem_file_iter(&self.cert)
            .and_then(Iterator::collect)
            .map_err(|error| of_cert(describe(&error, "certificate")))?;
        if chain.is_empty() {
            return Err(of_cert("it holds no certificate".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| of_key(describe(&error, "private key")))?;
        let provider = Arc::new(ring::default_provider());
        // Building the configuration checks it all, but does not say which file is to blame.
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

/// The key itself never stands in an error.
fn describe(error: &pem::Error, what: &str) -> String {
    match error {
        pem::Error::Io(error) => format!("cannot be read: {error}"),
        pem::Error::NoItemsFound => format!("it holds no {what}"),
        _ => format!("it is not PEM, or its {what} is broken"),
    }
}
