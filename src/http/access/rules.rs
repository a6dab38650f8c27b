//! What each scope may do: one function over methods and routes. What is not allowed here is refused.

use axum::http::Method;

use crate::query::access::TokenScope;

/// What a scope may do on a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessRule {
    Allowed,
    /// Only with the session in the path, if it is the client's own.
    OwnSession,
    /// Only with the turn in the path, if its session is the client's own.
    OwnTurn,
    /// The handler leaves out, and refuses, what is not the client's own.
    OwnContent,
    Denied,
}

/// Decides what a scope may do on a route, by its path with the names of parameters.
pub fn access_rule(scope: TokenScope, method: &Method, route: &str) -> AccessRule {
    match scope {
        TokenScope::Admin => AccessRule::Allowed,
        TokenScope::Chat => chat_rule(method, route),
        TokenScope::Read => read_rule(method, route),
    }
}

fn chat_rule(method: &Method, route: &str) -> AccessRule {
    match (method.as_str(), route) {
        ("GET", "/api/me" | "/api/commands") | ("POST", "/api/logout") => AccessRule::Allowed,
        ("GET", "/api/sessions" | "/api/events" | "/api/turns" | "/api/files/{id}")
        | ("POST", "/api/chat" | "/api/files") => AccessRule::OwnContent,
        ("GET" | "PATCH" | "DELETE", "/api/sessions/{key}")
        | ("GET", "/api/sessions/{key}/transcript" | "/api/sessions/{key}/live")
        | ("POST", "/api/sessions/{key}/stop") => AccessRule::OwnSession,
        ("GET", "/api/turns/{id}") => AccessRule::OwnTurn,
        _ => AccessRule::Denied,
    }
}

fn read_rule(method: &Method, route: &str) -> AccessRule {
    match (method.as_str(), route) {
        ("POST", "/api/logout") => AccessRule::Allowed,
        // Configuration, files, and requests that start or take something although they only read.
        (
            "GET",
            "/api/config"
            | "/api/files/{id}"
            | "/api/attach"
            | "/api/tokens"
            | "/api/channels/{name}/test"
            | "/api/mcp/{name}/test"
            | "/api/mcp/{name}/tools"
            | "/api/checks",
        ) => AccessRule::Denied,
        ("GET", route) if route.starts_with("/api/") => AccessRule::Allowed,
        _ => AccessRule::Denied,
    }
}
