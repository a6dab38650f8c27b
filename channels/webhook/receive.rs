//! The two routes of a webhook: a message in, and what became of it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::extract::{ConnectInfo, Path, Query, Request, State};
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode, header, request};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::StreamExt;
use jiff::Timestamp;
use memmap2::MmapMut;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::front::{Front, Outcome};
use super::rate::{Rate, WebhookLimits};
use super::signing::SignatureCheck;
use super::wire::{AcceptedBody, RepliedBody, StateBody, check_name};
use crate::body_budget::BodyShare;
use crate::channel::ChannelContext;
use crate::client::ClientAddr;
use crate::http_error::HttpError;
use crate::inbox::{Acceptance, Alongside, Inbox, MessageStatus, Refusal, Reply};
use crate::message::ErrorInfo;
use crate::settings::ByteSize;

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// What is read and thrown away, and for how long, of a body that is refused: a caller that writes all of it before it
/// reads would else see a broken connection in place of the answer.
const MAX_DISCARD: u64 = 64 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);
/// A body of up to so many bytes is kept in one piece while it arrives, ...
const SMALL: usize = 4 << 10;
/// ... and what is more in pieces of so many bytes.
const SEGMENT: usize = 128 << 10;
/// How long the inbox may take after a wait to say how things stand.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest `?wait`.
const MAX_WAIT: Duration = Duration::from_secs(300);
const DRAINING_RETRY: Duration = Duration::from_secs(5);

/// What both routes need of one webhook, whatever it is mounted on.
#[derive(Clone)]
pub struct Parts(Arc<Fixed>);

struct Fixed {
    front: Front,
    limits: WebhookLimits,
    rate: Option<Rate>,
    max_body: ByteSize,
}

impl Parts {
    pub fn new(front: Front, rate: Option<Rate>, max_body: ByteSize) -> Self {
        Self(Arc::new(Fixed { front, limits: WebhookLimits::new(rate), rate, max_body }))
    }
}

/// `POST /webhook/NAME` and `GET /webhook/NAME/messages/ID`.
pub fn routes(parts: &Parts, context: &ChannelContext) -> Router {
    let path = format!("/webhook/{}", parts.0.front.name());
    let door =
        Door { fixed: Arc::clone(&parts.0), inbox: Arc::clone(&context.inbox), shutdown: context.shutdown.clone() };
    Router::new()
        .route(&format!("{path}/messages/{{id}}"), get(look).fallback(async || not_allowed("GET, HEAD")))
        .route(&path, post(receive).fallback(async || not_allowed("POST")))
        .with_state(Arc::new(door))
}

/// A link that is followed, or fetched to be shown beside a chat, fires nothing.
fn not_allowed(methods: &'static str) -> Response {
    let message = format!("this address takes {methods} only");
    let mut response = HttpError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message).into_response();
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
    response
}

struct Door {
    fixed: Arc<Fixed>,
    inbox: Arc<dyn Inbox>,
    shutdown: CancellationToken,
}

/// How long to wait for the reply, and what is left to check of a request that was let in so far.
type Admitted = (Duration, Option<SignatureCheck>);

#[derive(Deserialize)]
struct WaitQuery {
    /// Seconds.
    wait: Option<u64>,
}

async fn receive(State(door): State<Arc<Door>>, request: Request) -> Result<Response, HttpError> {
    let (mut parts, body) = request.into_parts();
    let client = client_of(&parts.extensions);
    // Held as long as the body is.
    let share = parts.extensions.remove::<BodyShare>();
    let (wait, check) = match door.admit(&parts, client) {
        Ok(admitted) => admitted,
        Err(error) => {
            discard(&parts.headers, body, share);
            return Err(error);
        }
    };
    if let Some(share) = share.as_ref().filter(|_| door.fixed.front.verifier().proves_by_head()) {
        share.proven();
    }
    let body = door.collect(&parts.headers, body, check, client, share.as_ref()).await?;
    let outcome = door.fixed.front.read(&parts.headers, &parts.uri, &body)?;
    drop((body, share));
    match outcome {
        Outcome::Answer(answer) => Ok(Json(answer).into_response()),
        Outcome::Message(message) => {
            let acceptance = door
                .inbox
                .accept(*message, Alongside::default())
                .await
                .map_err(|refusal| HttpError::refused(&refusal))?;
            door.answer(&acceptance, wait).await
        }
    }
}

async fn look(State(door): State<Arc<Door>>, Path(id): Path<String>, request: Request) -> Result<Response, HttpError> {
    let client = client_of(request.extensions());
    let front = &door.fixed.front;
    let proof = front.verifier().without_body(request.headers(), client);
    proof.map_err(|words| door.fixed.failed(words, client))?;
    check_name("the id", &id)?;
    let state = door.inbox.state(front.channel(), &id).await.map_err(|refusal| HttpError::refused(&refusal))?;
    match state {
        Some(state) => Ok(Json(StateBody::from(&state)).into_response()),
        None => Err(HttpError::new(StatusCode::NOT_FOUND, "not_found", "there is no such message on this webhook")),
    }
}

impl Fixed {
    /// What a caller is told who has not proven himself: why, or to come back later when that was too often.
    fn failed(&self, words: String, client: Option<ClientAddr>) -> HttpError {
        match self.limits.fail(client) {
            Ok(()) => HttpError::unauthorized(words),
            Err(wait) => too_many_failures(wait),
        }
    }

    fn over_rate(&self, wait: Duration) -> HttpError {
        let rate = self.rate.map(|rate| rate.to_string()).unwrap_or_default();
        HttpError::too_many(format!("this webhook takes {rate} and has had more; try again later"), wait)
    }
}

impl Door {
    /// All that can be refused before the body is read.
    fn admit(&self, parts: &request::Parts, client: Option<ClientAddr>) -> Result<Admitted, HttpError> {
        if self.shutdown.is_cancelled() {
            return Err(HttpError::refused(&Refusal::Draining { retry_after: DRAINING_RETRY }));
        }
        let Fixed { front, limits, max_body, .. } = &*self.fixed;
        if content_length(&parts.headers).is_some_and(|length| length > max_body.0) {
            return Err(too_large(*max_body));
        }
        // Checked before failures are counted: whoever proves who sends this is heard, whatever others at the same address
        // did.
        let now = Timestamp::now().as_second();
        let check = front
            .verifier()
            .before_body(&parts.headers, client, now)
            .map_err(|words| self.fixed.failed(words, client))?;
        let Query(query) = Query::<WaitQuery>::try_from_uri(&parts.uri)
            .map_err(|_| HttpError::unprocessable("\"wait\" is not a whole number of seconds"))?;
        match &check {
            None => limits.take(),
            // Whether the signature is right is not known yet, so this only looks; it is counted when it is.
            Some(_) => limits.check(),
        }
        .map_err(|wait| self.fixed.over_rate(wait))?;
        Ok((Duration::from_secs(query.wait.unwrap_or(0)).min(MAX_WAIT), check))
    }

    /// Reads a body, and checks its signature as it arrives.
    async fn collect(
        &self,
        headers: &HeaderMap,
        body: Body,
        mut check: Option<SignatureCheck>,
        client: Option<ClientAddr>,
        share: Option<&BodyShare>,
    ) -> Result<Vec<u8>, HttpError> {
        let max_body = self.fixed.max_body;
        let mut stream = body.into_data_stream();
        let mut whole = Segments::new(content_length(headers));
        let reading = async {
            while let Some(chunk) = stream.next().await {
                let chunk = chunk.map_err(|error| HttpError::bad_request(format!("the body broke off: {error}")))?;
                if (whole.length + chunk.len()) as u64 > max_body.0 {
                    return Err(too_large(max_body));
                }
                if let Some(check) = &mut check {
                    check.update(&chunk);
                }
                whole.push(&chunk).map_err(|error| {
                    tracing::warn!(%error, "no memory for a request's body");
                    HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "memory", "there is no memory left for the body")
                })?;
            }
            Ok(())
        };
        match tokio::time::timeout(BODY_TIMEOUT, reading).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                if let Some(share) = share {
                    share.discarded();
                }
                drain(stream);
                return Err(error);
            }
            Err(_) => return Err(HttpError::bad_request("the body did not arrive in time")),
        }
        if let Some(check) = check {
            check.finish().map_err(|words| self.fixed.failed(words, client))?;
            self.fixed.limits.take().map_err(|wait| self.fixed.over_rate(wait))?;
        }
        Ok(whole.join())
    }

    /// Tells the caller what became of the message; from here on it is accepted, whatever else happens.
    async fn answer(&self, acceptance: &Acceptance, wait: Duration) -> Result<Response, HttpError> {
        let (id, session, status, first_reply) = match acceptance {
            Acceptance::Accepted { id, session } => (*id, session, "accepted", None),
            Acceptance::Duplicate { id, session, reply } => (*id, session, "duplicate", reply.clone()),
        };
        let (reply, status) = match first_reply {
            _ if wait.is_zero() => (None, status),
            Some(reply) => (Some(reply), status),
            None => match self.wait(id, wait).await {
                // Whoever waited hears why he did so in vain.
                Waited::Resting => (None, "waiting"),
                Waited::Ended(reply) => (Some(reply), status),
                Waited::Open => (None, status),
            },
        };
        Ok(match reply {
            Some(reply) => Json(RepliedBody::new(id, session, Some(&reply))).into_response(),
            None => (StatusCode::ACCEPTED, Json(AcceptedBody { id, session, status })).into_response(),
        })
    }

    /// The reply, when there is one within `limit`. A drain does not cut this short: the turn may end within it, and
    /// the inbox says when it will not.
    async fn wait(&self, id: Uuid, limit: Duration) -> Waited {
        // The inbox keeps the limit, and then says how things stand; here it holds whatever the inbox does.
        let state = match tokio::time::timeout(limit + LOOK_TIMEOUT, self.inbox.wait(id, limit)).await {
            Ok(Ok(Some(state))) => state,
            Ok(Ok(None)) | Err(_) => return Waited::Open,
            Ok(Err(refusal)) => {
                tracing::warn!(message = %id, error = %refusal, "waiting for a reply failed");
                return Waited::Open;
            }
        };
        match state.status {
            MessageStatus::Done => Waited::Ended(state.reply.unwrap_or(Reply { content: String::new(), error: None })),
            MessageStatus::Dead => Waited::Ended(state.reply.unwrap_or_else(|| Reply {
                content: "This message could not be answered.".into(),
                error: Some(ErrorInfo { code: "dead".into() }),
            })),
            MessageStatus::Waiting => Waited::Resting,
            MessageStatus::Queued | MessageStatus::Running => Waited::Open,
        }
    }
}

/// What became of a message that somebody waited for.
enum Waited {
    Ended(Reply),
    /// It waits itself, for something that is not there.
    Resting,
    Open,
}

/// Who calls, as the server says; of a server that says nothing, the other end of the connection.
fn client_of(extensions: &Extensions) -> Option<ClientAddr> {
    let connection = || Some(ClientAddr(extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip().to_canonical()));
    extensions.get::<ClientAddr>().copied().or_else(connection)
}

fn too_many_failures(wait: Duration) -> HttpError {
    HttpError::too_many("too many requests from your address have failed to prove who sends them", wait)
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(max_body: ByteSize) -> HttpError {
    HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", format!("the body is larger than {max_body}"))
}

/// What has arrived of a body. Memory grows with what arrives, whatever was announced. What is more than a small body is
/// mapped from the system and goes back to it at once: from the heap, pieces of many bodies that end at different times
/// would never do so.
struct Segments {
    first: Vec<u8>,
    maps: Vec<MmapMut>,
    length: usize,
}

impl Segments {
    fn new(announced: Option<u64>) -> Self {
        let first = announced.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(SMALL).min(SMALL);
        Self { first: Vec::with_capacity(first), maps: Vec::new(), length: 0 }
    }

    /// # Errors
    /// The system gives no more memory.
    fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (head, mut rest) = bytes.split_at(bytes.len().min(self.first.capacity() - self.first.len()));
        self.first.extend_from_slice(head);
        self.length += bytes.len();
        while !rest.is_empty() {
            let mapped = self.length - self.first.len() - rest.len();
            let (at, from) = (mapped / SEGMENT, mapped % SEGMENT);
            if at == self.maps.len() {
                self.maps.push(MmapMut::map_anon(SEGMENT)?);
            }
            let (head, tail) = rest.split_at(rest.len().min(SEGMENT - from));
            self.maps[at][from..from + head.len()].copy_from_slice(head);
            rest = tail;
        }
        Ok(())
    }

    fn join(self) -> Vec<u8> {
        let mut whole = self.first;
        if !self.maps.is_empty() {
            whole.reserve_exact(self.length - whole.len());
            for map in self.maps {
                let left = self.length - whole.len();
                whole.extend_from_slice(&map[..left.min(SEGMENT)]);
            }
        }
        whole
    }
}

/// Reads on for a caller that would not see the refusal otherwise. One who asked first (`Expect: 100-continue`), or
/// announced more than this is worth, gets nothing but the refusal.
fn discard(headers: &HeaderMap, body: Body, share: Option<BodyShare>) {
    if let Some(share) = share {
        share.discarded();
    }
    let asks_first = headers.contains_key(header::EXPECT);
    let hopeless = content_length(headers).is_some_and(|length| length > MAX_DISCARD);
    if !asks_first && !hopeless {
        drain(body.into_data_stream());
    }
}

/// In a task of its own: the refusal goes out at once, and who has yet to send his body hears it before he does.
fn drain(mut stream: BodyDataStream) {
    tokio::spawn(async move {
        let reading = async {
            let mut read = 0;
            while let Some(Ok(chunk)) = stream.next().await {
                read += chunk.len() as u64;
                if read > MAX_DISCARD {
                    return;
                }
            }
        };
        if tokio::time::timeout(DISCARD_TIMEOUT, reading).await.is_err() {
            tracing::debug!("a refused body did not end in time");
        }
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_body_is_what_arrived(
            announced in prop::option::of(0_u64..600_000),
            chunks in prop::collection::vec((any::<u8>(), 0_usize..200_000), 0..6),
        ) {
            let mut segments = Segments::new(announced);
            let mut expected = Vec::new();
            for (byte, count) in chunks {
                let chunk: Vec<u8> = (0..count).map(|at| byte.wrapping_add((at % 251) as u8)).collect();
                segments.push(&chunk).unwrap();
                expected.extend(chunk);
            }
            prop_assert!(segments.join() == expected);
        }
    }
}
