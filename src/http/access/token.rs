//! The token of the gateway.

use std::path::PathBuf;

use daoyou_channels::settings::Secret;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::guard::FileVersion;
use crate::home::Home;
use crate::query::access::secret_hash;
use crate::store::access::SecretHash;

/// The source of the gateway's token.
#[derive(Debug)]
pub enum TokenSource {
    Configured(Secret),
    File(TokenFile),
}

/// The file `token`. It is read again when it changes, so that a replaced token is invalid at once.
#[derive(Debug)]
pub struct TokenFile {
    home: Home,
    path: PathBuf,
    read: Mutex<Option<(FileVersion, Secret)>>,
}

impl TokenSource {
    /// Returns the `configured` token, or else the current content of the home's file.
    pub fn new(configured: Option<Secret>, home: Home) -> Self {
        match configured {
            // The token in a request is trimmed as well.
            Some(token) => Self::Configured(Secret::new(token.expose().trim())),
            None => Self::File(TokenFile { path: home.token_file(), home, read: Mutex::default() }),
        }
    }

    /// Returns the version of the token's file; `None` without a file. Another version may be another token.
    pub fn version(&self) -> Option<FileVersion> {
        match self {
            Self::Configured(_) => None,
            Self::File(file) => FileVersion::of_target(&file.path),
        }
    }

    /// Compares a token in a time that depends only on its length.
    pub fn matches(&self, token: &[u8]) -> bool {
        self.with(|secret| secret.expose().as_bytes().ct_eq(token).into()).unwrap_or(false)
    }

    /// Returns true if this is the SHA-256 of the current token.
    pub fn matches_hash(&self, hash: &SecretHash) -> bool {
        self.with(|secret| secret_hash(secret.expose().as_bytes()).ct_eq(hash).into()).unwrap_or(false)
    }

    /// Returns the hash that binds a login with this id to the current token; `None` if there is no token.
    pub fn login_binding(&self, id: &[u8; 32]) -> Option<SecretHash> {
        self.with(|secret| Sha256::new().chain_update(id).chain_update(secret.expose()).finalize().into())
    }

    fn with<T>(&self, work: impl FnOnce(&Secret) -> T) -> Option<T> {
        match self {
            Self::Configured(secret) => Some(work(secret)),
            Self::File(file) => file.with(work),
        }
    }
}

impl TokenFile {
    fn with<T>(&self, work: impl FnOnce(&Secret) -> T) -> Option<T> {
        // The version is read first, so that a concurrent write is noticed the next time.
        let stamp = FileVersion::of_target(&self.path);
        let mut read = self.read.lock();
        if read.as_ref().map(|(stamp, _)| *stamp) != stamp {
            *read = match (stamp, self.home.read_token()) {
                (Some(stamp), Ok(Some(token))) => Some((stamp, token)),
                (None, _) | (_, Ok(None)) => None,
                (_, Err(error)) => {
                    tracing::error!(%error, "the token cannot be read; every request is refused");
                    None
                }
            };
        }
        read.as_ref().map(|(_, secret)| work(secret))
    }
}
