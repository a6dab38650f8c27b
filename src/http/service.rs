//! The service of every connection: checks before the routes, and conversion of errors to JSON after them.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use daoyou_channels::api::in_openai_form;
use daoyou_channels::{BodyBudget, ClientAddr, HttpError};
use futures_util::FutureExt;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use super::body::BoundedBody;
use super::connections::Connection;
use super::error;
use super::hosts::AllowedHosts;
use super::limits::ServerLimits;
use super::proxies::TrustedProxies;
use crate::metrics::Metrics;
use crate::text::panic_message;

/// The longest plain-text error that becomes the message of a JSON error, in bytes.
const MAX_MESSAGE: usize = 1_024;

/// The prefix of the paths whose clients expect errors in OpenAI's format.
const OPENAI_PATH: &str = "/v1/";

/// Answers the requests of all connections.
pub struct HttpService {
    routes: TowerToHyperService<Router>,
    hosts: AllowedHosts,
    proxies: TrustedProxies,
    limits: ServerLimits,
    budget: Arc<BodyBudget>,
    metrics: Arc<Metrics>,
    is_tls: bool,
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
    pub fn new(
        routes: Router,
        hosts: AllowedHosts,
        proxies: TrustedProxies,
        limits: ServerLimits,
        metrics: Arc<Metrics>,
        is_tls: bool,
    ) -> Self {
        let budget = BodyBudget::new(limits.body_budget);
        Self { routes: TowerToHyperService::new(routes), hosts, proxies, limits, budget, metrics, is_tls }
    }

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

    /// Returns true if a request is answered even if its client has closed its half of the connection. `/v1` recognizes a repeated
    /// request until the first one is answered, so it must not answer clients that have left.
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
        let answered = AssertUnwindSafe(self.routes.call(request)).catch_unwind().await;
        if let Some(error) = connection.take_body_error() {
            tracing::debug!(%method, client = %client.0, code = error.code, "the body of a request is refused");
            return error.closing();
        }
        let mut response = match answered {
            Ok(Ok(response)) => error_as_json(response, client).await,
            Ok(Err(never)) => match never {},
            Err(panic) => {
                tracing::error!(%method, panic = panic_message(&*panic), "the handler of a request panicked");
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
