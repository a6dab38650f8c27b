//! The token that opens what is the owner's alone.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use daoyou_channels::settings::Secret;
use daoyou_channels::{BodyShare, ClientAddr, HttpError};
use subtle::ConstantTimeEq;

use super::attempts::LoginAttempts;
use super::stamp::Stamp;
use crate::home::Home;

/// Asks for the token.
#[derive(Debug)]
pub struct TokenGate {
    token: Token,
    attempts: LoginAttempts,
}

#[derive(Debug)]
enum Token {
    Configured(Secret),
    File(TokenFile),
}

/// The file `token`, read again when it changes, so that one who changes it shuts out the old one at once.
#[derive(Debug)]
struct TokenFile {
    home: Home,
    path: PathBuf,
    read: Mutex<Option<(Stamp, Secret)>>,
}

impl TokenGate {
    /// The token is `configured`, or else what the home's file holds at any time.
    pub fn new(configured: Option<Secret>, home: Home) -> Arc<Self> {
        let token = match configured {
            // What is shown is trimmed, too.
            Some(token) => Token::Configured(Secret::new(token.expose().trim())),
            None => Token::File(TokenFile { path: home.token_file(), home, read: Mutex::default() }),
        };
        Arc::new(Self { token, attempts: LoginAttempts::default() })
    }

    /// Whether `client` may go on with these `headers`.
    ///
    /// # Errors
    /// 401 without the token, 429 for a wrong one after too many wrong ones.
    pub fn admit(&self, client: ClientAddr, headers: &HeaderMap) -> Result<(), HttpError> {
        let unauthorized = |message| Err(HttpError::new(StatusCode::UNAUTHORIZED, "unauthorized", message));
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            return unauthorized("this needs the token of the gateway, as Authorization: Bearer TOKEN");
        };
        let shown = bearer(value.as_bytes());
        // Compared before anything is counted: whoever shows the token gets in, whatever others at this address did.
        if shown.is_some_and(|shown| self.token.is(shown)) {
            return Ok(());
        }
        match self.attempts.record_failure(client, shown.unwrap_or_default()) {
            Ok(()) => unauthorized("this is not the token of the gateway"),
            Err(wait) => {
                let message = "this is not the token of the gateway, and too many wrong ones came from your address";
                let fault = HttpError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_attempts", message);
                Err(HttpError { retry_after: Some(wait), ..fault })
            }
        }
    }
}

/// Lets only those to the routes behind it who show the token.
pub async fn guard(State(gate): State<Arc<TokenGate>>, request: Request, next: Next) -> Response {
    let Some(client) = request.extensions().get::<ClientAddr>().copied() else {
        tracing::error!("a request without its client's address");
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    match gate.admit(client, request.headers()) {
        Ok(()) => {
            if let Some(share) = request.extensions().get::<BodyShare>() {
                share.proven();
            }
            next.run(request).await
        }
        Err(fault) => fault.into_response(),
    }
}

impl Token {
    /// Takes the same time for every wrong token of the right length.
    fn is(&self, shown: &[u8]) -> bool {
        match self {
            Self::Configured(token) => token.expose().as_bytes().ct_eq(shown).into(),
            Self::File(file) => file.is(shown),
        }
    }
}

impl TokenFile {
    fn is(&self, shown: &[u8]) -> bool {
        // Stamped before it is read: what is written in between is read again next time.
        let stamp = Stamp::of(&self.path);
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.as_ref().map(|(stamp, _)| *stamp) != stamp {
            *read = match (stamp, self.home.read_token()) {
                (Some(stamp), Ok(Some(token))) => Some((stamp, token)),
                (None, _) | (_, Ok(None)) => None,
                (_, Err(error)) => {
                    tracing::error!(%error, "the token cannot be read, so nobody is let in");
                    None
                }
            };
        }
        read.as_ref().is_some_and(|(_, token)| token.expose().as_bytes().ct_eq(shown).into())
    }
}

/// The token of `Bearer TOKEN`; the word's case does not matter (RFC 9110, section 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn status(gate: &TokenGate, authorization: Option<&str>) -> u16 {
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        }
        let client = ClientAddr("192.0.2.7".parse().unwrap());
        gate.admit(client, &headers).map_or_else(|fault| fault.status.as_u16(), |()| 200)
    }

    #[test]
    fn only_the_token_opens() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(Some(dir.path().to_owned())).unwrap();
        let gate = TokenGate::new(Some(Secret::new("right")), home);
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
            assert_eq!(status(&gate, value), expected, "{value:?}");
        }
    }

    #[test]
    fn a_changed_file_counts_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(Some(dir.path().to_owned())).unwrap();
        let old = format!("Bearer {}", home.token().unwrap().expose());
        let gate = TokenGate::new(None, home.clone());
        assert_eq!(status(&gate, Some(&old)), 200);
        fs::write(home.token_file(), "another\n").unwrap();
        assert_eq!((status(&gate, Some(&old)), status(&gate, Some("Bearer another"))), (401, 200));
        let fresh = dir.path().join("fresh");
        fs::write(&fresh, "renamed\n").unwrap();
        fs::rename(&fresh, home.token_file()).unwrap();
        assert_eq!((status(&gate, Some("Bearer another")), status(&gate, Some("Bearer renamed"))), (401, 200));
        fs::remove_file(home.token_file()).unwrap();
        assert_eq!(status(&gate, Some("Bearer renamed")), 401);
    }
}
