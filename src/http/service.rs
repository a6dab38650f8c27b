//! The service of every connection: checks before the routes, and conversion of errors to JSON after them. The check of `Host`
//! rejects web pages whose name was made to resolve to this machine (DNS rebinding); the check of `Origin` rejects requests of
//! pages from other sites.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use daoyou_channels::api::in_openai_form;
use daoyou_channels::text::{catch_panic, truncate};
use daoyou_channels::{BodyBudget, ClientAddr, HttpError};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use super::body::BoundedBody;
use super::connections::Connection;
use super::error;
use super::limits::ServerLimits;
use super::proxies::TrustedProxies;
use crate::metrics::Metrics;

/// The longest plain-text error that becomes the message of a JSON error, in bytes.
const MAX_MESSAGE: usize = 1_024;

/// The prefix of the paths whose clients expect errors in OpenAI's format.
const OPENAI_PATH: &str = "/v1/";

/// Answers the requests of all connections.
pub struct HttpService {
    pub(super) routes: TowerToHyperService<Router>,
    pub(super) hosts: AllowedHosts,
    pub(super) proxies: TrustedProxies,
    pub(super) limits: ServerLimits,
    pub(super) budget: Arc<BodyBudget>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) is_tls: bool,
}

/// Whether the client uses HTTPS, with this server or with a trusted proxy. It is an extension of each request.
#[derive(Clone, Copy, Debug)]
pub struct RequestScheme {
    pub is_https: bool,
}

/// The addresses of both ends of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionAddrs {
    pub peer: SocketAddr,
    pub local: SocketAddr,
}

/// Notifies the connection when the body of a response was sent or abandoned.
struct AnswerGuard(Arc<Connection>);

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        self.0.answered();
    }
}

impl HttpService {
    /// Answers a request. `head` is the error of a head that the stream rejected.
    pub async fn answer(
        &self,
        head: Result<(), HttpError>,
        request: Request<Incoming>,
        connection: &Arc<Connection>,
        addrs: ConnectionAddrs,
    ) -> Response {
        let is_openai = request.uri().path().starts_with(OPENAI_PATH);
        let admitted = head.and_then(|()| self.hosts.admit(request.uri(), request.headers(), addrs.local));
        let response = match admitted {
            Ok(()) => self.route(request, connection, addrs).await,
            Err(error) => {
                self.metrics.http.rejected(error.code);
                error.closing()
            }
        };
        let response = if is_openai { in_openai_form(response) } else { response };
        let guard = AnswerGuard(connection.clone());
        // The closure keeps the guard alive as long as the body.
        response.map(|body| Body::new(body.inspect_err(move |_| _ = &guard)))
    }

    /// Returns true if a request is answered even if its client has closed its half of the connection. `/v1` recognizes a
    /// repeated request until the first one is answered, so it must not answer clients that have left.
    pub fn allows_half_close(request: &Request<Incoming>) -> bool {
        !request.uri().path().starts_with(OPENAI_PATH)
    }

    async fn route(
        &self,
        request: Request<Incoming>,
        connection: &Arc<Connection>,
        addrs: ConnectionAddrs,
    ) -> Response {
        let client = self.proxies.client(addrs.peer.ip(), request.headers());
        let is_https = self.is_tls || self.proxies.is_https(addrs.peer.ip(), request.headers());
        let (mut counted, mut end) = (None, None);
        let mut request = request.map(|body| {
            if body.is_end_stream() {
                return Body::empty();
            }
            let share = self.budget.share();
            let bounded = BoundedBody::new(body, &self.limits, share.clone(), connection.clone());
            (counted, end) = (Some(share), Some(bounded.end()));
            Body::new(bounded)
        });
        if let Some(share) = counted {
            request.extensions_mut().insert(share);
        }
        request.extensions_mut().insert(client);
        request.extensions_mut().insert(RequestScheme { is_https });
        // Routes that know nothing of proxies see the client as the peer.
        request.extensions_mut().insert(ConnectInfo(SocketAddr::new(client.0, addrs.peer.port())));
        let method = request.method().clone();
        let answered = catch_panic(self.routes.call(request)).await;
        if let Some(error) = connection.take_body_error() {
            tracing::debug!(%method, client = %client.0, code = error.code, "the body of a request is refused");
            return error.closing();
        }
        let mut response = match answered {
            Ok(Ok(response)) => error_as_json(response, client).await,
            Ok(Err(never)) => match never {},
            Err(panic) => {
                tracing::error!(%method, panic, "the handler of a request panicked");
                error::internal().into_response()
            }
        };
        if end.is_some_and(|end| !end.load(Ordering::Relaxed)) && connection.is_receiving() {
            // hyper closes such a connection without announcing it, and a client would lose its next request.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Converts a plain-text error to JSON; a short text becomes the message.
async fn error_as_json(response: Response, client: ClientAddr) -> Response {
    let status = response.status();
    if !(status.is_client_error() || status.is_server_error()) || !is_plain_text(response.headers()) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let text = axum::body::to_bytes(body, MAX_MESSAGE).await.ok();
    let text = text.as_deref().and_then(|bytes| std::str::from_utf8(bytes).ok()).map(str::trim).unwrap_or_default();
    let message = match text {
        "" if status == StatusCode::METHOD_NOT_ALLOWED => {
            "this address does not take that method; Allow names those it takes"
        }
        "" => status.canonical_reason().unwrap_or("the request was refused"),
        text => text,
    };
    tracing::debug!(%status, client = %client.0, message, "refused");
    let error = HttpError::new(status, error::code(status), message.to_owned()).into_response();
    let (new, body) = error.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.remove(header::CONTENT_TYPE);
    parts.headers.extend(new.headers);
    parts.extensions.extend(new.extensions);
    Response::from_parts(parts, body)
}

fn is_plain_text(headers: &HeaderMap) -> bool {
    let plain = |value: &HeaderValue| value.as_bytes().starts_with(b"text/plain");
    headers.get(header::CONTENT_TYPE).is_none_or(plain)
}

/// `gateway.hosts`: the allowed names in addition to those that follow from the address.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts {
    names: Vec<String>,
}

impl AllowedHosts {
    /// Creates the list from `gateway.hosts`; [`AllowedHosts::is_valid`] accepts each name.
    pub fn new(names: &[String]) -> Self {
        Self { names: names.iter().map(|name| normalized(name)).collect() }
    }

    /// Returns true if `name` is a host name or an IP address, without scheme, port or path.
    pub fn is_valid(name: &str) -> bool {
        let name = without_final_dot(name);
        let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        parse_ip(name).is_some() || (!name.is_empty() && name.len() <= 253 && name.chars().all(letters))
    }

    /// Checks the `Host` and `Origin` of a request to the address `local` of this machine.
    ///
    /// # Errors
    /// 400 or 403, with the name and the configuration key that would allow it.
    pub fn admit(&self, uri: &Uri, headers: &HeaderMap, local: SocketAddr) -> Result<(), HttpError> {
        let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (name, _) = split_port(host).ok_or_else(|| HttpError::bad_request("Host is not a host name"))?;
        for name in [Some(name), uri.authority().map(Authority::host)].into_iter().flatten() {
            if !self.is_own_name(name, local.ip()) {
                return Err(HttpError::forbidden(format!(
                    "this server does not answer to the name {:?}; its owner can add it to gateway.hosts",
                    truncate(name, 100)
                )));
            }
        }
        for origin in headers.get_all(header::ORIGIN) {
            if !origin.to_str().is_ok_and(|origin| self.is_own_origin(origin, host, local)) {
                return Err(HttpError::forbidden(format!(
                    "requests from pages of {:?} are not taken; the owner can add its name to gateway.hosts",
                    truncate(&String::from_utf8_lossy(origin.as_bytes()), 100)
                )));
            }
        }
        Ok(())
    }

    /// Returns true if `name` is localhost, a loopback address, a listed name, or `local`, the address that the client connected
    /// to. Unlike a name, an address cannot be rebound.
    fn is_own_name(&self, name: &str, local: IpAddr) -> bool {
        let name = normalized(name);
        let is_own_address = parse_ip(&name).is_some_and(|ip| ip.is_loopback() || ip == local.to_canonical());
        is_own_address || name == "localhost" || self.names.contains(&name)
    }

    fn is_listed(&self, name: &str) -> bool {
        self.names.contains(&normalized(name))
    }

    /// Returns true if `origin` is this server: the requested `host`, another name of its address with the same port, or a listed
    /// name. Another port of this machine is another program.
    fn is_own_origin(&self, origin: &str, host: &str, local: SocketAddr) -> bool {
        let (authority, usual) = match origin.split_once("://") {
            Some(("http", rest)) => (rest, 80),
            Some(("https", rest)) => (rest, 443),
            _ => return false,
        };
        let Some((name, port)) = split_port(authority) else { return false };
        let same = |(host, own): (&str, Option<u16>)| {
            host.eq_ignore_ascii_case(name) && own.unwrap_or(usual) == port.unwrap_or(usual)
        };
        split_port(host).is_some_and(same)
            || self.is_listed(name)
            || (port.unwrap_or(usual) == local.port() && self.is_own_name(name, local.ip()))
    }
}

/// Removes the dot that may end a fully qualified name.
fn without_final_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Parses an IP address; an IPv6 address may be in brackets.
fn parse_ip(name: &str) -> Option<IpAddr> {
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    bare.parse().ok().map(|ip: IpAddr| ip.to_canonical())
}

/// Returns the form in which names are compared. The same IPv6 address can be written in several ways.
fn normalized(name: &str) -> String {
    let name = without_final_dot(name);
    parse_ip(name).map_or_else(|| name.to_ascii_lowercase(), |ip| ip.to_string())
}

/// Splits `host[:port]`; an IPv6 address keeps its brackets.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let end = match authority.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (name, rest) = authority.split_at(end);
    let port = match rest.strip_prefix(':') {
        Some("") => None,
        Some(port) => Some(port.parse().ok()?),
        None if rest.is_empty() => None,
        None => return None,
    };
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':' | '[' | ']');
    (!name.is_empty() && name.chars().all(good)).then_some((name, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(uri: &str, host: &str, origin: Option<&str>) -> u16 {
        let hosts =
            AllowedHosts::new(&["Chat.example.org", "192.0.2.9", "2001:db8::9", "[2001:db8::a]"].map(str::to_owned));
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        let local = "10.1.2.3:18790".parse().unwrap();
        hosts.admit(&uri.parse().unwrap(), &headers, local).map_or_else(|fault| fault.status.as_u16(), |()| 200)
    }

    #[test]
    fn requests_for_other_hosts_are_refused() {
        for (host, expected) in [
            ("localhost:18790", 200),
            ("LOCALHOST.", 200),
            ("127.0.0.1:18790", 200),
            ("127.8.9.1", 200),
            ("127.0.0.1.:80", 200),
            ("[::1]:18790", 200),
            ("[::ffff:127.0.0.1]", 200),
            ("10.1.2.3:8080", 200),
            ("chat.example.org", 200),
            ("chat.example.org.:443", 200),
            ("192.0.2.9", 200),
            ("[2001:db8::9]:18790", 200),
            ("[2001:DB8:0::9]", 200),
            ("[2001:db8::a]", 200),
            ("[2001:db8::b]", 403),
            ("10.1.2.4:18790", 403),
            ("evil.example", 403),
            ("localhost.evil.example", 403),
            ("127.0.0.1.evil.example", 403),
            ("2130706433", 403),
            ("", 400),
            (":80", 400),
            ("localhost:99999", 400),
            ("localhost@evil.example", 400),
            ("localhost, evil.example", 400),
            ("[::1", 400),
        ] {
            assert_eq!(status("/", host, None), expected, "{host:?}");
        }
        assert_eq!(status("http://evil.example/", "localhost", None), 403);
        assert_eq!(status("http://localhost/", "localhost", None), 200);
    }

    #[test]
    fn requests_of_other_origins_are_refused() {
        for (host, origin, expected) in [
            ("127.0.0.1:18790", "http://127.0.0.1:18790", 200),
            ("127.0.0.1:18790", "http://localhost:18790", 200),
            ("localhost:8080", "http://localhost:8080", 200),
            ("chat.example.org", "https://chat.example.org", 200),
            ("127.0.0.1:18790", "https://chat.example.org", 200),
            ("127.0.0.1:18790", "http://[2001:db8::9]:18790", 200),
            ("127.0.0.1:18790", "http://[2001:db8::b]:18790", 403),
            ("127.0.0.1:18790", "http://localhost:3000", 403),
            ("127.0.0.1:18790", "http://localhost", 403),
            ("127.0.0.1:18790", "https://evil.example", 403),
            ("127.0.0.1:18790", "http://127.0.0.1.evil.example:18790", 403),
            ("127.0.0.1:18790", "null", 403),
            ("127.0.0.1:18790", "file://", 403),
            ("127.0.0.1:18790", "chrome-extension://localhost", 403),
        ] {
            assert_eq!(status("/", host, Some(origin)), expected, "{host} {origin}");
        }
    }

    #[test]
    fn a_valid_host_is_a_bare_name() {
        for (name, expected) in [
            ("chat.example.org", true),
            ("10.0.0.7", true),
            ("::1", true),
            ("[::1]", true),
            ("https://chat.example.org", false),
            ("chat.example.org:80", false),
            ("chat.example.org/", false),
            ("*", false),
            ("", false),
        ] {
            assert_eq!(AllowedHosts::is_valid(name), expected, "{name:?}");
        }
    }
}
