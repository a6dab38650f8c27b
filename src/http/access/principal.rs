//! The authenticated client of a request.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use daoyou_channels::trust::{Author, SenderListing, trust_of};
use daoyou_channels::{HttpError, Trust};

use crate::http::error::internal;
use crate::memory::token_of_session;
use crate::query::access::TokenScope;
use crate::store::access::SecretHash;

/// The credential of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientCredential {
    /// The client uses the control socket.
    ControlSocket,
    /// The token of the gateway.
    GatewayToken(SecretHash),
    /// A named token.
    Token(SecretHash),
    /// A login of the page, by the id in its cookie.
    Login([u8; 32]),
}

/// The authenticated client of a request. It is an extension of each request behind the access check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The name of the client's token; `None` is the token of the gateway.
    pub token: Option<String>,
    pub scope: TokenScope,
    pub credential: ClientCredential,
}

impl Principal {
    /// Returns the owner at the control socket.
    pub fn owner() -> Self {
        Self { token: None, scope: TokenScope::Admin, credential: ClientCredential::ControlSocket }
    }

    /// Returns the name that the page shows.
    pub fn name(&self) -> &str {
        self.token.as_deref().unwrap_or("owner")
    }

    /// Returns the sender of the client's messages, and the trust in it. A token with only the scope `chat` is never the owner:
    /// another person may hold it.
    pub fn sender(&self) -> (String, Trust) {
        match (self.scope, &self.token) {
            (TokenScope::Admin, _) | (_, None) => ("owner".to_owned(), trust_of(Author::Owner, SenderListing::Owner)),
            (TokenScope::Chat | TokenScope::Read, Some(name)) => {
                (format!("token:{name}"), trust_of(Author::Holder, SenderListing::Listed))
            }
        }
    }

    /// Returns the prefix of the names of the client's own chats on the channel of the page. It is empty for the owner.
    pub fn chat_prefix(&self) -> String {
        match (self.scope, &self.token) {
            (TokenScope::Admin, _) | (_, None) => String::new(),
            // A token's name has no dot, so no prefix begins with another one.
            (TokenScope::Chat | TokenScope::Read, Some(name)) => format!("{name}."),
        }
    }

    /// Returns true if the client may see only the sessions that it created.
    pub fn is_confined(&self) -> bool {
        self.scope == TokenScope::Chat
    }

    /// Returns true if the client may use a session.
    pub fn may_use(&self, session: &str) -> bool {
        !self.is_confined() || self.token.as_deref().is_some_and(|name| token_of_session(session) == Some(name))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Principal {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, HttpError> {
        parts.extensions.get().cloned().ok_or_else(|| {
            tracing::error!(path = parts.uri.path(), "a route has no access check");
            internal()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chat_token_uses_its_own_chats_alone() {
        let principal = |token: Option<&str>, scope| Principal {
            token: token.map(str::to_owned),
            scope,
            credential: ClientCredential::ControlSocket,
        };
        let chat = principal(Some("bob"), TokenScope::Chat);
        for (session, expected) in [
            ("page:bob.1a2b", true),
            ("page:bob.x.y", true),
            ("page:bob.", false),
            ("page:bob", false),
            ("page:bobby.1", false),
            ("page:1a2b", false),
            ("pages:bob.1", false),
            ("cli:bob.1", false),
            ("cli:direct", false),
            ("fork:page:bob.1", false),
            ("", false),
        ] {
            assert_eq!(chat.may_use(session), expected, "{session:?}");
            assert!(principal(Some("bob"), TokenScope::Admin).may_use(session));
        }
        assert!(!principal(None, TokenScope::Chat).may_use("page:x"), "without a name there is no chat of its own");
        assert_eq!(chat.sender(), ("token:bob".to_owned(), Trust::Known));
        assert_eq!(principal(Some("bob"), TokenScope::Admin).sender(), ("owner".to_owned(), Trust::Owner));
        assert_eq!(Principal::owner().sender(), ("owner".to_owned(), Trust::Owner));
    }
}
