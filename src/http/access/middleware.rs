//! The access check in front of the routes.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use daoyou_channels::{BodyShare, ClientAddr, ClientSender, HttpError};
use percent_encoding::percent_decode_str;

use super::authenticator::Authenticator;
use super::principal::{ClientCredential, Principal};
use super::rules::{ScopeRule, scope_rule};
use crate::http::error::{FOREIGN_CHAT, internal, out_of_scope};
use crate::store::{Connection, Store, checkpoints, inbox};

/// The header of all requests from the page. A page of another origin cannot set it without our consent, which we never give.
const PAGE_HEADER: &str = "x-daoyou";
const PAGE_HEADER_VALUE: &str = "page";

/// The stream of a terminal, which receives deliveries.
const TERMINAL_ROUTE: &str = "/api/attach";

/// The dependencies of the access check.
#[derive(Clone)]
pub struct AccessCheck {
    pub auth: Arc<Authenticator>,
    pub store: Store,
}

/// Middleware that passes on only authorized requests, with their [`Principal`].
pub async fn require_access(State(check): State<AccessCheck>, mut request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str).to_owned();
    let client = request.extensions().get::<ClientAddr>().copied();
    match check.admit(client, request.method(), request.headers(), (request.uri(), &route)).await {
        Ok(principal) => {
            if let Some(share) = request.extensions().get::<BodyShare>() {
                share.mark_authenticated();
            }
            let (id, trust) = principal.sender();
            request.extensions_mut().insert(ClientSender { id, trust, is_confined: principal.is_confined() });
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

impl AccessCheck {
    async fn admit(
        &self,
        client: Option<ClientAddr>,
        method: &Method,
        headers: &HeaderMap,
        (uri, route): (&Uri, &str),
    ) -> Result<Principal, HttpError> {
        let Some(client) = client else {
            tracing::error!("a request has no client address");
            return Err(internal());
        };
        let principal = self.auth.authenticate(client, headers).await?;
        if matches!(principal.credential, ClientCredential::Login(_)) {
            check_page_request(method, headers, route)?;
        }
        let rule = scope_rule(principal.scope, method, route);
        let is_allowed = match rule {
            ScopeRule::Allowed | ScopeRule::OwnContent => true,
            ScopeRule::Denied => false,
            ScopeRule::OwnSession => principal.may_use(&path_parameter(uri, route)),
            ScopeRule::OwnTurn => self.is_own_turn(&principal, path_parameter(uri, route)).await?,
        };
        if is_allowed {
            return Ok(principal);
        }
        let message = match rule {
            ScopeRule::Denied => format!("a token with the scope {} may not do this", principal.scope.as_str()),
            _ => FOREIGN_CHAT.to_owned(),
        };
        Err(out_of_scope(message))
    }

    async fn is_own_turn(&self, principal: &Principal, turn: String) -> Result<bool, HttpError> {
        let find = move |connection: &Connection| {
            let found = checkpoints::separate_store_errors(checkpoints::find_turn(connection, &turn))?;
            let Ok(turn) = found else { return Ok(None) };
            Ok(inbox::of_turn(connection, turn)?.into_iter().next().map(|row| row.session))
        };
        Ok(self.store.read(find).await?.is_some_and(|session| principal.may_use(&session)))
    }
}

/// Rejects a request that another site makes with the page's cookie. The server has already rejected foreign origins.
fn check_page_request(method: &Method, headers: &HeaderMap, route: &str) -> Result<(), HttpError> {
    let refused = |message: &'static str| Err(HttpError::new(StatusCode::FORBIDDEN, "csrf", message));
    // For a browser, another port of this machine is the same site, so its pages send our cookie along.
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    if site.is_some_and(|site| !matches!(site, b"same-origin" | b"none")) {
        return refused("this is for the page itself alone, and another page asks");
    }
    if route == TERMINAL_ROUTE {
        return refused("a terminal uses the token of the gateway");
    }
    if matches!(*method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    let is_of_page = headers.get(PAGE_HEADER).is_some_and(|value| value == PAGE_HEADER_VALUE);
    if is_of_page && headers.contains_key(header::ORIGIN) {
        return Ok(());
    }
    refused("a change with the cookie of the page needs the header X-Daoyou: page and an Origin")
}

/// Returns the name in the path segment of the route's first parameter.
fn path_parameter(uri: &Uri, route: &str) -> String {
    let at = route.split('/').position(|segment| segment.starts_with('{'));
    let segment = at.and_then(|at| uri.path().split('/').nth(at)).unwrap_or_default();
    percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use daoyou_channels::settings::Secret;
    use uuid::Uuid;

    use super::*;
    use crate::home::Home;
    use crate::query::access::TokenScope;
    use crate::store::Durability;

    #[tokio::test]
    async fn an_unreadable_store_is_not_a_foreign_turn() {
        let (folder, store) = Store::temporary();
        let home = Home::open(Some(folder.path().to_owned())).unwrap();
        let auth = Authenticator::new(Some(Secret::new("right")), home, store.clone(), 18_790);
        let check = AccessCheck { auth, store: store.clone() };
        let credential = ClientCredential::ControlSocket;
        let principal = Principal { token: Some("bob".to_owned()), scope: TokenScope::Chat, credential };
        let turn = Uuid::nil().to_string();
        assert_eq!(check.is_own_turn(&principal, turn.clone()).await, Ok(false));
        let break_table =
            |connection: &Connection| Ok(connection.execute_batch("ALTER TABLE inbox RENAME TO elsewhere")?);
        store.write(Durability::Logged, break_table).await.unwrap();
        let error = check.is_own_turn(&principal, turn).await.unwrap_err();
        assert_eq!((error.status, error.code), (StatusCode::INTERNAL_SERVER_ERROR, "store"));
    }
}
