//! Logging in.

use std::cell::RefCell;
use std::sync::Arc;

use imap::types::Capabilities;
use imap::{Authenticator, Client, Session};
use rustls::ClientConfig;

use super::error::{Trouble, shown};
use super::stream::Stream;
use crate::email::account::{Account, Login, Server};
use crate::settings::Secret;

/// What a thread of its own needs to connect and log in.
#[derive(Clone)]
pub struct Access {
    pub server: Server,
    pub tls: Arc<ClientConfig>,
    proof: Proof,
}

#[derive(Clone)]
enum Proof {
    Password(Secret),
    Token(Secret),
}

impl Access {
    /// Gets the token, where one is wanted.
    ///
    /// # Errors
    /// There is no token, or no password.
    pub async fn to(account: &Account) -> Result<Self, Trouble> {
        let proof = match &account.imap.login {
            Login::Password(password) => Proof::Password(password.clone()),
            Login::Token(command) => Proof::Token(command.token().await.map_err(Trouble::Login)?),
            Login::None => return Err(Trouble::Login("there is neither a password nor a token".to_owned())),
        };
        Ok(Self { server: account.imap.clone(), tls: account.tls_config(), proof })
    }

    /// Logs in, the way that the server's capabilities leave.
    ///
    /// # Errors
    /// [`Trouble::Login`] where that is refused for good.
    pub fn log_in(
        &self,
        client: Client<Stream>,
        can: &Capabilities,
        stream: &Stream,
    ) -> Result<Session<Stream>, Trouble> {
        let username = &self.server.username;
        match &self.proof {
            Proof::Token(token) => {
                if !can.has_str("AUTH=XOAUTH2") {
                    return Err(Trouble::Login("the server takes no access tokens (XOAUTH2)".to_owned()));
                }
                let xoauth2 = Xoauth2 { username, token, error: RefCell::default() };
                client
                    .authenticate("XOAUTH2", &xoauth2)
                    .map_err(|(error, _)| self.refused(&error, stream, xoauth2.error.take()))
            }
            Proof::Password(password) => {
                let plain = can.has_str("AUTH=PLAIN");
                let disabled = can.has_str("LOGINDISABLED");
                if disabled && !plain {
                    return Err(Trouble::Login(
                        "the server lets nobody log in with a password here (LOGINDISABLED); it may want TLS, or an \
                         access token by token_command"
                            .to_owned(),
                    ));
                }
                // A quoted string has no other characters (RFC 3501, section 9); PLAIN is in UTF-8 (RFC 4616).
                let odd = !username.is_ascii() || !password.expose().is_ascii();
                let entered = if plain && (disabled || odd) {
                    client.authenticate("PLAIN", &Plain { username, password })
                } else {
                    client.login(username, password.expose())
                };
                entered.map_err(|(error, _)| self.refused(&error, stream, None))
            }
        }
    }

    fn refused(&self, error: &imap::Error, stream: &Stream, why: Option<String>) -> Trouble {
        // These say that another try may work (RFC 5530, section 3).
        const PASSING: [&str; 4] = ["[UNAVAILABLE]", "[INUSE]", "[LIMIT]", "[SERVERBUG]"];
        let said = self.hide(&stream.explanation());
        match error {
            imap::Error::No(_) | imap::Error::Bad(_) if PASSING.iter().any(|code| said.contains(code)) => {
                Trouble::Lost(format!("nobody can log in at the moment: {said}"))
            }
            imap::Error::No(_) => {
                let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
                Trouble::Login(format!("the login of {} was refused: {said}{why}", self.server.username))
            }
            imap::Error::Bad(_) => {
                Trouble::Login(format!("the login of {} was not understood: {said}", self.server.username))
            }
            other => super::session::trouble(other, stream),
        }
    }

    /// Some servers repeat what they did not understand.
    fn hide(&self, text: &str) -> String {
        match &self.proof {
            Proof::Password(secret) | Proof::Token(secret) if !secret.expose().is_empty() => {
                text.replace(secret.expose(), "(hidden)")
            }
            _ => text.to_owned(),
        }
    }
}

struct Plain<'a> {
    username: &'a str,
    password: &'a Secret,
}

impl Authenticator for Plain<'_> {
    type Response = String;

    fn process(&self, _challenge: &[u8]) -> String {
        format!("\0{}\0{}", self.username, self.password.expose())
    }
}

/// As Google and Microsoft describe it.
struct Xoauth2<'a> {
    username: &'a str,
    token: &'a Secret,
    error: RefCell<Option<String>>,
}

impl Authenticator for Xoauth2<'_> {
    type Response = String;

    fn process(&self, challenge: &[u8]) -> String {
        if challenge.is_empty() {
            return format!("user={}\u{1}auth=Bearer {}\u{1}\u{1}", self.username, self.token.expose());
        }
        // The reason, as JSON. It wants an empty answer before the server says NO.
        let status = serde_json::from_slice::<serde_json::Value>(challenge)
            .ok()
            .and_then(|reason| Some(format!("status {}", reason.get("status")?.as_str()?)));
        *self.error.borrow_mut() = status.map(|status| shown(status.as_bytes()));
        String::new()
    }
}
