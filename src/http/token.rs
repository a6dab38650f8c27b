//! Authentication by the gateway's token.

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use daoyou_channels::settings::Secret;
use daoyou_channels::{BodyShare, ClientAddr, HttpError};
use parking_lot::Mutex;
use subtle::ConstantTimeEq;

use super::login_attempts::LoginAttempts;
use crate::guard::FileVersion;
use crate::home::Home;

/// Checks the token of requests.
#[derive(Debug)]
pub struct TokenAuth {
    token: TokenSource,
    attempts: LoginAttempts,
}

#[derive(Debug)]
enum TokenSource {
    Configured(Secret),
    File(TokenFile),
}

/// The file `token`, read again when it changes, so that a replaced token is invalid at once.
#[derive(Debug)]
struct TokenFile {
    home: Home,
    path: PathBuf,
    read: Mutex<Option<(FileVersion, Secret)>>,
}

impl TokenAuth {
    /// Takes the `configured` token, or the current content of the home's file.
    pub fn new(configured: Option<Secret>, home: Home) -> Arc<Self> {
        let token = match configured {
            // The token in a request is trimmed too.
            Some(token) => TokenSource::Configured(Secret::new(token.expose().trim())),
            None => TokenSource::File(TokenFile { path: home.token_file(), home, read: Mutex::default() }),
        };
        Arc::new(Self { token, attempts: LoginAttempts::default() })
    }

    /// Checks the token in `headers`.
    ///
    /// # Errors
    /// 401 for a missing or wrong token, 429 after too many wrong ones of `client`.
    pub fn authenticate(&self, client: ClientAddr, headers: &HeaderMap) -> Result<(), HttpError> {
        let unauthorized = |message| Err(HttpError::new(StatusCode::UNAUTHORIZED, "unauthorized", message));
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            return unauthorized("this needs the token of the gateway, as Authorization: Bearer TOKEN");
        };
        let token = bearer(value.as_bytes());
        // The right token is accepted before failures count, whatever other clients with this address did.
        if token.is_some_and(|token| self.token.matches(token)) {
            return Ok(());
        }
        match self.attempts.record_failure(client, token.unwrap_or_default()) {
            Ok(()) => unauthorized("this is not the token of the gateway"),
            Err(wait) => {
                let message = "this is not the token of the gateway, and too many wrong ones came from your address";
                let error = HttpError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_attempts", message);
                Err(HttpError { retry_after: Some(wait), ..error })
            }
        }
    }
}

/// Middleware that passes only requests with the token.
pub async fn require_token(State(auth): State<Arc<TokenAuth>>, request: Request, next: Next) -> Response {
    let Some(client) = request.extensions().get::<ClientAddr>().copied() else {
        tracing::error!("a request has no client address");
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    match auth.authenticate(client, request.headers()) {
        Ok(()) => {
            if let Some(share) = request.extensions().get::<BodyShare>() {
                share.proven();
            }
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

impl TokenSource {
    /// Compares in a time that depends only on the length.
    fn matches(&self, token: &[u8]) -> bool {
        match self {
            Self::Configured(secret) => secret.expose().as_bytes().ct_eq(token).into(),
            Self::File(file) => file.matches(token),
        }
    }
}

impl TokenFile {
    fn matches(&self, token: &[u8]) -> bool {
        // The stamp is read first, so that a write in between is noticed next time.
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
        read.as_ref().is_some_and(|(_, secret)| secret.expose().as_bytes().ct_eq(token).into())
    }
}

/// Returns the token of `Bearer TOKEN`; the case of the scheme does not matter (RFC 9110, section 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn status(auth: &TokenAuth, authorization: Option<&str>) -> u16 {
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        }
        let client = ClientAddr("192.0.2.7".parse().unwrap());
        auth.authenticate(client, &headers).map_or_else(|fault| fault.status.as_u16(), |()| 200)
    }

    #[test]
    fn only_the_right_token_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(Some(dir.path().to_owned())).unwrap();
        let auth = TokenAuth::new(Some(Secret::new("right")), home);
        for (value, expected) in [
            (Some("Bearer right"), 200),
            (Some("bearer right"), 200),
            (Some("Bearer wrong"), 401),
            (Some("Bearer righ"), 401),
            (Some("Bearer "), 401),
            (Some("right"), 401),
            (Some("Basic right"), 401),
            (None, 401),
        ] {
            assert_eq!(status(&auth, value), expected, "{value:?}");
        }
    }

    #[test]
    fn a_changed_token_file_is_used_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(Some(dir.path().to_owned())).unwrap();
        let old = format!("Bearer {}", home.token().unwrap().expose());
        let auth = TokenAuth::new(None, home.clone());
        assert_eq!(status(&auth, Some(&old)), 200);
        fs::write(home.token_file(), "another\n").unwrap();
        assert_eq!((status(&auth, Some(&old)), status(&auth, Some("Bearer another"))), (401, 200));
        let fresh = dir.path().join("fresh");
        fs::write(&fresh, "renamed\n").unwrap();
        fs::rename(&fresh, home.token_file()).unwrap();
        assert_eq!((status(&auth, Some("Bearer another")), status(&auth, Some("Bearer renamed"))), (401, 200));
        fs::remove_file(home.token_file()).unwrap();
        assert_eq!(status(&auth, Some("Bearer renamed")), 401);
    }
}
