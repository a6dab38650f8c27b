//! The two routes of a webhook: accept a message, and return its state.

use std::collections::TryReserveError;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody};
use axum::extract::{ConnectInfo, Path, Query, Request, State};
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode, Uri, header, request};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::StreamExt;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::config::Rate;
use super::request_parser::{ParsedRequest, RequestParser};
use super::services::{EventService, canonical};
use super::verify::SignatureCheck;
use super::wire::{MessageBody, check_name};
use crate::body_budget::BodyShare;
use crate::channel::ChannelContext;
use crate::client::ClientAddr;
use crate::http_error::HttpError;
use crate::inbox::{AcceptExtras, Acceptance, Inbox, MessageState, MessageStatus, Refusal};
use crate::rate_limit::{Quota, RateLimiter};
use crate::settings::ByteSize;

/// The time limit for the arrival of a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// The time that the inbox may take to return the state after the wait.
const STATE_TIMEOUT: Duration = Duration::from_secs(1);
/// The maximum of `?wait`.
const MAX_WAIT: Duration = Duration::from_secs(300);
const DRAINING_RETRY: Duration = Duration::from_secs(5);
/// The quota of failed requests of one client that are answered with the reason. Further ones get 429.
const FAILURES: Quota = Quota::Steady { count: 600, period: Duration::from_secs(60) };
/// The maximum number of clients whose failures are counted separately. All other clients share one count.
const MAX_CLIENTS: usize = 4_096;

/// One webhook, independent of the server that mounts it.
pub struct WebhookEndpoint {
    parser: RequestParser,
    limits: WebhookLimits,
    max_body: ByteSize,
}

/// Returns the routes `POST /webhook/NAME` and `GET /webhook/NAME/messages/ID`.
pub fn routes(endpoint: &Arc<WebhookEndpoint>, context: &ChannelContext) -> Router {
    let path = format!("/webhook/{}", endpoint.parser.name());
    let state = WebhookState {
        endpoint: Arc::clone(endpoint),
        inbox: Arc::clone(&context.inbox),
        shutdown: context.shutdown.clone(),
    };
    Router::new()
        .route(&format!("{path}/messages/{{id}}"), get(message_state).fallback(async || not_allowed("GET, HEAD")))
        .route(&path, post(receive).fallback(async || not_allowed("POST")))
        .with_state(Arc::new(state))
}

/// Returns a 405 for other methods: following or previewing a link must not trigger anything.
fn not_allowed(methods: &'static str) -> Response {
    let message = format!("this address takes {methods} only");
    let mut response = HttpError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message).into_response();
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
    response
}

/// A mounted webhook.
struct WebhookState {
    endpoint: Arc<WebhookEndpoint>,
    inbox: Arc<dyn Inbox>,
    shutdown: CancellationToken,
}

/// The time to wait for the reply, and the signature check that needs the body.
type Admission = (Duration, Option<SignatureCheck>);

async fn receive(State(webhook): State<Arc<WebhookState>>, request: Request) -> Result<Response, HttpError> {
    let (mut parts, body) = request.into_parts();
    let client = client_of(&parts.extensions);
    // The share must live as long as the body.
    let share = parts.extensions.remove::<BodyShare>();
    let (wait, check) = webhook.admit(&parts, client)?;
    if let Some(share) = share.as_ref().filter(|_| webhook.endpoint.parser.verifier().proves_by_head()) {
        share.mark_authenticated();
    }
    let body = webhook.collect(body, check, client).await?;
    let outcome = webhook.endpoint.parser.read(&parts.headers, &parts.uri, &body)?;
    drop((body, share));
    match outcome {
        ParsedRequest::Answer(answer) => Ok(Json(answer).into_response()),
        ParsedRequest::Message(message) => {
            let acceptance = webhook.inbox.accept(*message, AcceptExtras::default()).await?;
            Ok(webhook.answer(acceptance, wait).await)
        }
    }
}

async fn message_state(
    State(webhook): State<Arc<WebhookState>>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, HttpError> {
    let client = client_of(request.extensions());
    let parser = &webhook.endpoint.parser;
    let proof = parser.verifier().without_body(request.headers(), client);
    proof.map_err(|reason| webhook.endpoint.limits.failed(reason, client))?;
    check_name("the id", &id)?;
    let mut found = webhook.inbox.state(parser.channel(), &id).await?;
    if found.is_none() && parser.verifier().service() == Some(EventService::Github) {
        // A delivery's id is stored in its canonical form.
        found = webhook.inbox.state(parser.channel(), &canonical(&id)).await?;
    }
    let state = found.ok_or_else(|| HttpError::not_found("there is no such message on this webhook"))?;
    let follow_ups = webhook.inbox.follow_ups(parser.channel(), state.id).await?;
    let follow_ups = follow_ups.iter().map(MessageBody::from).collect();
    Ok(Json(MessageBody { follow_ups, ..MessageBody::from(&state) }).into_response())
}

impl WebhookEndpoint {
    pub fn new(parser: RequestParser, rate: Option<Rate>, max_body: ByteSize) -> Self {
        Self { parser, limits: WebhookLimits::new(rate), max_body }
    }
}

/// The limits of one webhook. Requests that fail to authenticate are counted separately, for each client, so that they
/// never use up the quota of authenticated requests.
struct WebhookLimits {
    rate: Option<Rate>,
    requests: RateLimiter,
    failures: RateLimiter<Option<IpAddr>>,
}

impl WebhookLimits {
    /// Creates the limits. Without a rate, authenticated requests are not limited.
    fn new(rate: Option<Rate>) -> Self {
        Self { rate, requests: RateLimiter::new(1), failures: RateLimiter::new(MAX_CLIENTS) }
    }

    /// Checks whether one more authenticated request is allowed now. The error is a 429.
    fn check(&self) -> Result<(), HttpError> {
        self.rate.map_or(Ok(()), |rate| self.requests.check(&(), rate.quota()).map_err(|wait| over_rate(rate, wait)))
    }

    /// Counts an authenticated request. The error is a 429.
    fn take(&self) -> Result<(), HttpError> {
        self.rate.map_or(Ok(()), |rate| self.requests.take(&(), rate.quota()).map_err(|wait| over_rate(rate, wait)))
    }

    /// Counts a request of `client` that failed to authenticate. Returns its response: 401 with the reason, or 429 after
    /// too many failures.
    fn failed(&self, reason: String, client: Option<ClientAddr>) -> HttpError {
        match self.failures.take(&client.map(ClientAddr::bucket), FAILURES) {
            Ok(()) => HttpError::unauthorized(reason),
            Err(wait) => {
                let message = "too many requests from your address have failed to prove who sends them";
                HttpError::too_many(message, wait)
            }
        }
    }
}

fn over_rate(rate: Rate, wait: Duration) -> HttpError {
    HttpError::too_many(format!("this webhook takes {rate} and has had more; try again later"), wait)
}

impl WebhookState {
    /// Performs all checks that do not need the body.
    fn admit(&self, parts: &request::Parts, client: Option<ClientAddr>) -> Result<Admission, HttpError> {
        if self.shutdown.is_cancelled() {
            return Err(Refusal::Draining { retry_after: DRAINING_RETRY }.into());
        }
        let WebhookEndpoint { parser, limits, max_body } = &*self.endpoint;
        if content_length(&parts.headers).is_some_and(|length| length > max_body.0) {
            return Err(HttpError::too_large(*max_body));
        }
        // The check comes before the count of failures, so that an authenticated request passes whatever other callers at
        // the same address did.
        let now = Timestamp::now().as_second();
        let check = parser
            .verifier()
            .before_body(&parts.headers, client, now)
            .map_err(|reason| limits.failed(reason, client))?;
        let wait = wait_of(&parts.uri)?;
        match &check {
            None => limits.take(),
            // The signature is not verified yet, so this does not count. A request counts once its signature is verified.
            Some(_) => limits.check(),
        }?;
        Ok((wait, check))
    }

    /// Reads a body and checks its signature while it arrives.
    async fn collect(
        &self,
        body: Body,
        mut check: Option<SignatureCheck>,
        client: Option<ClientAddr>,
    ) -> Result<Vec<u8>, HttpError> {
        let max_body = self.endpoint.max_body;
        let announced = body.size_hint().lower();
        if announced > max_body.0 {
            return Err(HttpError::too_large(max_body));
        }
        let mut stream = body.into_data_stream();
        // A buffer that grows leaves places behind, which the budget for bodies does not count. What is announced and does not
        // arrive takes no memory, because the system provides a page when it is written.
        let mut whole = Vec::new();
        whole.try_reserve_exact(usize::try_from(announced).unwrap_or(usize::MAX)).map_err(|error| no_memory(&error))?;
        let reading = async {
            while let Some(chunk) = stream.next().await {
                let chunk = chunk.map_err(|error| HttpError::bad_request(format!("the body broke off: {error}")))?;
                if (whole.len() + chunk.len()) as u64 > max_body.0 {
                    return Err(HttpError::too_large(max_body));
                }
                if let Some(check) = &mut check {
                    check.update(&chunk);
                }
                if whole.capacity() - whole.len() < chunk.len() {
                    // Without an announced length, the buffer grows by little more than what has arrived.
                    whole.try_reserve_exact(chunk.len().max(whole.len() / 4)).map_err(|error| no_memory(&error))?;
                }
                whole.extend_from_slice(&chunk);
            }
            Ok(())
        };
        let late = |_| HttpError::bad_request("the body did not arrive in time");
        tokio::time::timeout(BODY_TIMEOUT, reading).await.map_err(late)??;
        if let Some(check) = check {
            let limits = &self.endpoint.limits;
            check.finish().map_err(|reason| limits.failed(reason, client))?;
            limits.take()?;
        }
        Ok(whole)
    }

    /// Builds the response for an accepted message, with its reply if the reply comes within `wait`.
    async fn answer(&self, acceptance: Acceptance, wait: Duration) -> Response {
        let (id, session, status, first_reply) = match acceptance {
            Acceptance::Accepted { id, session } => (id, session, "accepted", None),
            Acceptance::Duplicate { id, session, reply } => (id, session, "duplicate", reply),
        };
        let (reply, state) = match first_reply {
            _ if wait.is_zero() => (None, None),
            Some(reply) => (Some(reply), None),
            None => {
                let state = self.wait(id, wait).await;
                (state.as_ref().and_then(MessageState::final_reply), state)
            }
        };
        let body = MessageBody::new(id, &session);
        if let Some(reply) = &reply {
            return Json(body.with_reply(reply)).into_response();
        }
        // The status tells the caller why there is no reply yet.
        let body = match &state {
            Some(state) if state.status_for_sender() == MessageStatus::Waiting => {
                MessageBody { id, ..MessageBody::from(state) }
            }
            _ => MessageBody { status: Some(status), ..body },
        };
        (StatusCode::ACCEPTED, Json(body)).into_response()
    }

    /// Waits until the message has ended, at most for `limit`, and returns its state if it is known. If the message answers a
    /// question, it is the state of the turn that continues. A drain does not end the wait: the turn may end during the drain,
    /// and the inbox reports if it will not.
    async fn wait(&self, id: Uuid, limit: Duration) -> Option<MessageState> {
        let until = Instant::now() + limit;
        let mut id = id;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            // The inbox returns the state after the limit; the timeout holds even if the inbox does not.
            let waited = tokio::time::timeout(left + STATE_TIMEOUT, self.inbox.wait(id, left)).await.ok()?;
            let state = waited
                .inspect_err(|refusal| tracing::warn!(message = %id, error = %refusal, "waiting for a reply failed"))
                .ok()??;
            match state.continues {
                Some(asked) if asked != id => id = asked,
                _ => return Some(state),
            }
        }
    }
}

/// Returns the client that the server determined, or else the peer of the connection.
fn client_of(extensions: &Extensions) -> Option<ClientAddr> {
    let connection = || Some(ClientAddr(extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip().to_canonical()));
    extensions.get::<ClientAddr>().copied().or_else(connection)
}

/// Returns the wait for the reply that an address asks for with `?wait=SECONDS`, at most [`MAX_WAIT`].
fn wait_of(uri: &Uri) -> Result<Duration, HttpError> {
    let Query(query) = Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map_err(|_| HttpError::bad_request("the query of the address cannot be read"))?;
    let mut waits = query.iter().filter(|(name, _)| name == "wait").map(|(_, value)| value);
    let Some(wait) = waits.next() else { return Ok(Duration::ZERO) };
    if waits.next().is_some() {
        return Err(HttpError::unprocessable("\"wait\" stands in the address more than once"));
    }
    if wait.is_empty() || !wait.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(HttpError::unprocessable("\"wait\" is not a whole number of seconds"));
    }
    // The only numbers that cannot be parsed are too large ones.
    Ok(wait.parse().map_or(MAX_WAIT, Duration::from_secs).min(MAX_WAIT))
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn no_memory(error: &TryReserveError) -> HttpError {
    tracing::warn!(%error, "no memory for a request's body");
    HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "memory", "there is no memory left for the body")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_one_whole_number_and_has_a_limit() {
        for (query, expected) in [
            ("", Ok(0)),
            ("?page=2", Ok(0)),
            ("?wait=0", Ok(0)),
            ("?wait=30&page=2", Ok(30)),
            ("?wait=301", Ok(300)),
            ("?wait=18446744073709551615", Ok(300)),
            ("?wait=18446744073709551616", Ok(300)),
            ("?wait=", Err("not a whole number")),
            ("?wait=soon", Err("not a whole number")),
            ("?wait=1.5", Err("not a whole number")),
            ("?wait=-1", Err("not a whole number")),
            ("?wait=5&wait=6", Err("more than once")),
        ] {
            let found = wait_of(&format!("/webhook/n{query}").parse().unwrap());
            match expected {
                Ok(secs) => assert_eq!(found, Ok(Duration::from_secs(secs)), "{query}"),
                Err(words) => {
                    let error = found.unwrap_err();
                    assert!(error.status == 422 && error.message.contains(words), "{query}: {error:?}");
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_counted_for_each_client_and_never_against_the_others() {
        let client = |n: u32| Some(ClientAddr(std::net::Ipv4Addr::from(n).into()));
        let limits = WebhookLimits::new(Some("1/h".parse().unwrap()));
        let fail = |n: u32| limits.failed("wrong".to_owned(), client(n)).status.as_u16();
        let failed = (0..1_000).filter(|_| fail(1) == 401).count();
        assert_eq!((failed, fail(1), fail(2)), (600, 429, 401));
        assert_eq!(limits.check(), Ok(()), "the good ones are not touched");
        for n in 0..20_000 {
            fail(n);
        }
        assert!((0..10_000).all(|_| WebhookLimits::new(None).take().is_ok()));
        assert!(limits.failures.key_count() <= MAX_CLIENTS, "bounded");
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!((fail(1), fail(30_000)), (401, 401));
    }
}
