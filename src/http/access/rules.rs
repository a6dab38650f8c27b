//! The permissions of each scope: one function over methods and routes. Everything that it does not allow is refused.

use axum::http::Method;

use crate::query::access::TokenScope;

/// The permission of a scope on a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeRule {
    Allowed,
    /// Allowed if the session in the path is the client's own.
    OwnSession,
    /// Allowed if the session of the turn in the path is the client's own.
    OwnTurn,
    /// Allowed; the handler omits or refuses content that is not the client's own.
    OwnContent,
    Denied,
}

/// Returns the permission of a scope on a route, which is a path with parameter names.
pub fn scope_rule(scope: TokenScope, method: &Method, route: &str) -> ScopeRule {
    match scope {
        TokenScope::Admin => ScopeRule::Allowed,
        TokenScope::Chat => chat_rule(method, route),
        TokenScope::Read => read_rule(method, route),
    }
}

fn chat_rule(method: &Method, route: &str) -> ScopeRule {
    match (method.as_str(), route) {
        ("GET", "/v1/models") => ScopeRule::OwnContent,
        ("GET", route) if route.starts_with("/v1/models/") => ScopeRule::OwnContent,
        ("GET", "/api/me" | "/api/commands") | ("POST", "/api/logout") => ScopeRule::Allowed,
        ("GET", "/api/sessions" | "/api/events" | "/api/turns" | "/api/files/{id}")
        | ("POST", "/api/chat" | "/api/files" | "/v1/chat/completions" | "/v1/responses") => ScopeRule::OwnContent,
        ("GET" | "PATCH" | "DELETE", "/api/sessions/{key}")
        | ("GET", "/api/sessions/{key}/transcript" | "/api/sessions/{key}/live")
        | ("POST", "/api/sessions/{key}/stop") => ScopeRule::OwnSession,
        ("GET", "/api/turns/{id}") => ScopeRule::OwnTurn,
        _ => ScopeRule::Denied,
    }
}

fn read_rule(method: &Method, route: &str) -> ScopeRule {
    match (method.as_str(), route) {
        ("POST", "/api/logout") => ScopeRule::Allowed,
        // Configuration, files, and requests that start or receive something although they only read.
        (
            "GET",
            "/api/config"
            | "/api/files/{id}"
            | "/api/attach"
            | "/api/tokens"
            | "/api/logs"
            | "/api/channels/{name}/test"
            | "/api/mcp/{name}/test"
            | "/api/mcp/{name}/tools"
            | "/api/checks",
        ) => ScopeRule::Denied,
        ("GET", route) if route.starts_with("/api/") => ScopeRule::Allowed,
        _ => ScopeRule::Denied,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Every route behind the check, with the permissions of `chat` and `read`: `+` allowed, `s` own session, `t` own turn, `o` own
    /// content, `-` denied.
    const ROUTES: &str = "
        GET    /api/openapi.json                - +
        GET    /api/me                          + +
        POST   /api/logout                      + +
        GET    /api/commands                    + +
        POST   /api/chat                        o -
        GET    /api/events                      o +
        POST   /api/files                       o -
        GET    /api/files/{id}                  o -
        GET    /api/sessions                    o +
        POST   /api/sessions                    - -
        GET    /api/sessions/{key}              s +
        PATCH  /api/sessions/{key}              s -
        DELETE /api/sessions/{key}              s -
        GET    /api/sessions/{key}/transcript   s +
        GET    /api/sessions/{key}/live         s +
        POST   /api/sessions/{key}/stop         s -
        GET    /api/turns                       o +
        GET    /api/turns/{id}                  t +
        POST   /api/turns/{id}/restore          - -
        POST   /api/turns/{id}/fork             - -
        POST   /api/messages                    - -
        GET    /api/messages/{id}               - +
        GET    /api/queue                       - +
        GET    /api/queue/{id}                  - +
        DELETE /api/queue/{id}                  - -
        POST   /api/queue/{id}/retry            - -
        POST   /api/queue/retry                 - -
        GET    /api/approvals                   - +
        POST   /api/approvals/{id}/approve      - -
        POST   /api/approvals/{id}/deny         - -
        POST   /api/losses/acknowledge          - -
        GET    /api/cron                        - +
        POST   /api/cron                        - -
        POST   /api/cron/preview                - -
        GET    /api/cron/export                 - +
        POST   /api/cron/import                 - -
        GET    /api/cron/{job}                  - +
        PATCH  /api/cron/{job}                  - -
        DELETE /api/cron/{job}                  - -
        POST   /api/cron/{job}/enable           - -
        POST   /api/cron/{job}/disable          - -
        POST   /api/cron/{job}/run              - -
        GET    /api/cron/{job}/history          - +
        GET    /api/memory                      - +
        POST   /api/memory                      - -
        GET    /api/memory/search               - +
        GET    /api/memory/stats                - +
        GET    /api/memory/export               - +
        POST   /api/memory/forget               - -
        POST   /api/memory/import               - -
        GET    /api/memory/{id}                 - +
        PATCH  /api/memory/{id}                 - -
        DELETE /api/memory/{id}                 - -
        GET    /api/search                      - +
        GET    /api/status                      - +
        GET    /api/channels                    - +
        GET    /api/channels/{name}/test        - -
        GET    /api/models                      - +
        GET    /api/tools                       - +
        POST   /api/tools/{name}/run            - -
        GET    /api/skills                      - +
        GET    /api/skills/{name}               - +
        GET    /api/agents                      - +
        GET    /api/agents/{name}               - +
        GET    /api/mcp                         - +
        GET    /api/mcp/{name}/tools            - -
        GET    /api/mcp/{name}/test             - -
        GET    /api/prompt                      - +
        GET    /api/checks                      - -
        GET    /api/logs                        - -
        GET    /api/cost                        - +
        GET    /api/config                      - -
        GET    /api/tokens                      - -
        POST   /api/tokens                      - -
        DELETE /api/tokens/{name}               - -
        GET    /api/attach                      - -
        GET    /api/terminal                    - +
        GET    /mcp                             - -
        POST   /mcp                             - -
        DELETE /mcp                             - -
        POST   /v1/chat/completions             o -
        POST   /v1/responses                    o -
        GET    /v1/models                       o -
        GET    /v1/models/{name}                o -
        GET    /metrics                         - -
    ";

    /// The routes that need no token of the gateway.
    const OPEN: [&str; 9] = [
        "/",
        "/favicon.ico",
        "/assets/{file}",
        "/healthz",
        "/readyz",
        "/login",
        "/api/login",
        "/webhook/{name}",
        "/webhook/{name}/messages/{id}",
    ];

    #[test]
    fn each_scope_is_allowed_what_the_table_says() {
        for row in ROUTES.trim().lines() {
            let [method, route, chat, read] = row.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{row}") };
            let method: Method = method.parse().unwrap();
            let sign = |scope| match scope_rule(scope, &method, route) {
                ScopeRule::Allowed => "+",
                ScopeRule::OwnSession => "s",
                ScopeRule::OwnTurn => "t",
                ScopeRule::OwnContent => "o",
                ScopeRule::Denied => "-",
            };
            assert_eq!([TokenScope::Chat, TokenScope::Read, TokenScope::Admin].map(sign), [chat, read, "+"], "{row}");
        }
        for (method, route) in
            [(Method::GET, ""), (Method::POST, "/api/new"), (Method::PUT, "/api/me"), (Method::GET, "/v1/x")]
        {
            assert_eq!(scope_rule(TokenScope::Chat, &method, route), ScopeRule::Denied, "{method} {route}");
            assert_eq!(scope_rule(TokenScope::Read, &method, route), ScopeRule::Denied, "{method} {route}");
        }
    }

    #[test]
    fn the_table_has_every_route() {
        // A test compares that file with the code.
        let described = include_str!("../api/openapi.txt").lines().filter(|line| !line.starts_with('#'));
        let described = described.filter_map(|line| {
            let (method, rest) = line.split_once(' ')?;
            Some((method, rest.split([' ', '?']).next()?))
        });
        let described: BTreeSet<_> = described.filter(|(_, route)| !OPEN.contains(route)).collect();
        let row = |row: &'static str| {
            let mut words = row.split_whitespace();
            Some((words.next()?, words.next()?))
        };
        let in_table: BTreeSet<_> = ROUTES.trim().lines().filter_map(row).collect();
        assert_eq!(in_table, described, "decide who may use each route");
    }
}
