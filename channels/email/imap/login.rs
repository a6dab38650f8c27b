//! Logs in by password or access token.

use std::cell::RefCell;

use imap::types::Capabilities;
use imap::{Authenticator, Client, Session};

use super::error::{ImapError, display_line};
use super::stream::ImapStream;
use crate::email::account::{Account, Login, MailServer, plain_response, redact, xoauth2_response};
use crate::email::certificate::MailTls;
use crate::settings::Secret;

/// Server address, TLS settings and credentials of one login.
#[derive(Clone)]
pub struct ImapAccess {
    pub server: MailServer,
    pub tls: MailTls,
    credential: Credential,
}

#[derive(Clone)]
enum Credential {
    Password(Secret),
    Token(Secret),
}

impl ImapAccess {
    /// Resolves the credentials of `account`; runs the token command if there is one.
    ///
    /// # Errors
    /// There is neither a token nor a password.
    pub async fn resolve(account: &Account) -> Result<Self, ImapError> {
        let credential = match &account.imap.login {
            Login::Password(password) => Credential::Password(password.clone()),
            Login::Token(command) => Credential::Token(command.token().await.map_err(ImapError::Login)?),
            Login::None => return Err(ImapError::Login("neither a password nor a token is set".to_owned())),
        };
        Ok(Self { server: account.imap.clone(), tls: account.tls.clone(), credential })
    }

    /// Logs in by a mechanism that `capabilities` lists.
    ///
    /// # Errors
    /// [`ImapError::Login`] if the refusal is final.
    pub fn log_in(
        &self,
        client: Client<ImapStream>,
        capabilities: &Capabilities,
        stream: &ImapStream,
    ) -> Result<Session<ImapStream>, ImapError> {
        let username = &self.server.username;
        match &self.credential {
            Credential::Token(token) => {
                if !capabilities.has_str("AUTH=XOAUTH2") {
                    return Err(ImapError::Login("the server accepts no access tokens (XOAUTH2)".to_owned()));
                }
                let xoauth2 = Xoauth2Auth { username, token, error: RefCell::default() };
                client
                    .authenticate("XOAUTH2", &xoauth2)
                    .map_err(|(error, _)| self.login_error(&error, stream, xoauth2.error.take()))
            }
            Credential::Password(password) => {
                let plain = capabilities.has_str("AUTH=PLAIN");
                let is_disabled = capabilities.has_str("LOGINDISABLED");
                if is_disabled && !plain {
                    return Err(ImapError::Login(
                        "the server allows no login by password here (LOGINDISABLED); it may require TLS, or an \
                         access token by token_command"
                            .to_owned(),
                    ));
                }
                // A quoted string is ASCII (RFC 3501, section 9); PLAIN is UTF-8 (RFC 4616).
                let is_utf8 = !username.is_ascii() || !password.expose().is_ascii();
                let result = if plain && (is_disabled || is_utf8) {
                    client.authenticate("PLAIN", &PlainAuth { username, password })
                } else {
                    client.login(username, password.expose())
                };
                result.map_err(|(error, _)| self.login_error(&error, stream, None))
            }
        }
    }

    fn login_error(&self, error: &imap::Error, stream: &ImapStream, detail: Option<String>) -> ImapError {
        // Response codes of temporary failures (RFC 5530, section 3).
        const TEMPORARY: [&str; 4] = ["[UNAVAILABLE]", "[INUSE]", "[LIMIT]", "[SERVERBUG]"];
        let (Credential::Password(secret) | Credential::Token(secret)) = &self.credential;
        let explanation = redact(&stream.explanation(), &self.server.username, secret);
        match error {
            imap::Error::No(_) | imap::Error::Bad(_) if TEMPORARY.iter().any(|code| explanation.contains(code)) => {
                ImapError::Disconnected(format!("no login is possible at the moment: {explanation}"))
            }
            imap::Error::No(_) => {
                let detail = detail.map(|detail| format!(" ({detail})")).unwrap_or_default();
                ImapError::Login(format!("the login of {} was refused: {explanation}{detail}", self.server.username))
            }
            imap::Error::Bad(_) => {
                ImapError::Login(format!("the login of {} was not understood: {explanation}", self.server.username))
            }
            other => stream.imap_error(other),
        }
    }
}

struct PlainAuth<'a> {
    username: &'a str,
    password: &'a Secret,
}

impl Authenticator for PlainAuth<'_> {
    type Response = String;

    fn process(&self, _challenge: &[u8]) -> String {
        plain_response(self.username, self.password)
    }
}

struct Xoauth2Auth<'a> {
    username: &'a str,
    token: &'a Secret,
    error: RefCell<Option<String>>,
}

impl Authenticator for Xoauth2Auth<'_> {
    type Response = String;

    fn process(&self, challenge: &[u8]) -> String {
        if challenge.is_empty() {
            return xoauth2_response(self.username, self.token);
        }
        // The challenge contains the error as JSON. The server sends NO after an empty response.
        let status = serde_json::from_slice::<serde_json::Value>(challenge)
            .ok()
            .and_then(|reason| Some(format!("status {}", reason.get("status")?.as_str()?)));
        *self.error.borrow_mut() = status.map(|status| display_line(status.as_bytes()));
        String::new()
    }
}
