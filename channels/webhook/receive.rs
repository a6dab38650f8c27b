//! The two routes of a webhook: a message in, and what became of it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::StreamExt;
use jiff::Timestamp;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::verify::{HEADER_ID, Pending, Verifier};
use super::wire::{AcceptedBody, EXTERNAL_ID, HttpError, NativeBody, RepliedBody, StateBody, check_name};
use crate::allow::AllowList;
use crate::channel::ChannelContext;
use crate::inbox::{Acceptance, Inbox, MessageStatus, Refusal, Reply};
use crate::message::{ErrorInfo, InboundMessage, SessionKey, Trust};

/// The largest body taken, in bytes: a million of content and room for what is around it.
const MAX_BODY: usize = 1 << 20;
/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// What is read and thrown away, and for how long, of a body that is refused: a caller that writes all of it before it
/// reads would else see a broken connection in place of the answer.
const MAX_DISCARD: usize = 64 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest `?wait`.
const MAX_WAIT: Duration = Duration::from_secs(300);
const DRAINING_RETRY: Duration = Duration::from_secs(5);

const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// What both routes need of one webhook, whatever it is mounted on.
#[derive(Clone)]
pub struct Parts(Arc<Fixed>);

struct Fixed {
    name: String,
    channel: String,
    verifier: Verifier,
    allow_from: Option<AllowList>,
}

impl Parts {
    pub fn new(name: &str, channel: &str, verifier: Verifier, allow_from: Option<AllowList>) -> Self {
        Self(Arc::new(Fixed { name: name.to_owned(), channel: channel.to_owned(), verifier, allow_from }))
    }
}

/// `POST /webhook/NAME` and `GET /webhook/NAME/messages/ID`.
pub fn routes(parts: &Parts, context: &ChannelContext) -> Router {
    let path = format!("/webhook/{}", parts.0.name);
    let door =
        Door { fixed: Arc::clone(&parts.0), inbox: Arc::clone(&context.inbox), shutdown: context.shutdown.clone() };
    Router::new()
        .route(&format!("{path}/messages/{{id}}"), get(look))
        .route(&path, post(receive))
        .with_state(Arc::new(door))
}

struct Door {
    fixed: Arc<Fixed>,
    inbox: Arc<dyn Inbox>,
    shutdown: CancellationToken,
}

#[derive(Deserialize)]
struct WaitQuery {
    /// Seconds.
    wait: Option<u64>,
}

async fn receive(State(door): State<Arc<Door>>, request: Request) -> Result<Response, HttpError> {
    let (parts, body) = request.into_parts();
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    let (wait, pending) = match door.admit(&parts.headers, &parts.uri, peer) {
        Ok(admitted) => admitted,
        Err(error) => {
            discard(&parts.headers, body).await;
            return Err(error);
        }
    };
    let body = collect(body).await?;
    if pending == Pending::Signature {
        door.fixed.verifier.with_body(&parts.headers, &body).map_err(HttpError::unauthorized)?;
    }
    let message = door.fixed.message(&parts.headers, &body)?;
    let acceptance = door.inbox.accept(message, None).await.map_err(|refusal| HttpError::refused(&refusal))?;
    door.answer(&acceptance, wait).await
}

async fn look(State(door): State<Arc<Door>>, Path(id): Path<String>, request: Request) -> Result<Response, HttpError> {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    door.fixed.verifier.without_body(request.headers(), peer).map_err(HttpError::unauthorized)?;
    check_name("the id", &id)?;
    let state = door.inbox.state(&door.fixed.channel, &id).await.map_err(|refusal| HttpError::refused(&refusal))?;
    match state {
        Some(state) => Ok(Json(StateBody::from(&state)).into_response()),
        None => Err(HttpError::new(StatusCode::NOT_FOUND, "not_found", "there is no such message on this webhook")),
    }
}

impl Door {
    /// All that can be refused before the body is read.
    fn admit(&self, headers: &HeaderMap, uri: &Uri, peer: Option<IpAddr>) -> Result<(Duration, Pending), HttpError> {
        if self.shutdown.is_cancelled() {
            return Err(HttpError::refused(&Refusal::Draining { retry_after: DRAINING_RETRY }));
        }
        if content_length(headers).is_some_and(|length| length > MAX_BODY) {
            return Err(too_large());
        }
        let now = Timestamp::now().as_second();
        let pending = self.fixed.verifier.before_body(headers, peer, now).map_err(HttpError::unauthorized)?;
        let Query(query) = Query::<WaitQuery>::try_from_uri(uri)
            .map_err(|_| HttpError::unprocessable("\"wait\" is not a whole number of seconds"))?;
        Ok((Duration::from_secs(query.wait.unwrap_or(0)).min(MAX_WAIT), pending))
    }

    /// Tells the caller what became of the message; from here on it is accepted, whatever else happens.
    async fn answer(&self, acceptance: &Acceptance, wait: Duration) -> Result<Response, HttpError> {
        let (id, session, status, first_reply) = match acceptance {
            Acceptance::Accepted { id, session } => (*id, session, "accepted", None),
            Acceptance::Duplicate { id, session, reply } => (*id, session, "duplicate", reply.clone()),
        };
        let reply = match first_reply {
            _ if wait.is_zero() => None,
            Some(reply) => Some(reply),
            None => self.wait(id, wait).await,
        };
        Ok(match reply {
            Some(reply) => Json(RepliedBody::new(id, session, Some(&reply))).into_response(),
            None => (StatusCode::ACCEPTED, Json(AcceptedBody { id, session, status })).into_response(),
        })
    }

    /// The reply, when there is one within `limit`. A drain does not cut this short: the turn may end within it, and
    /// the inbox says when it will not.
    async fn wait(&self, id: Uuid, limit: Duration) -> Option<Reply> {
        // The inbox keeps the limit too; here it holds whatever the inbox does.
        let state = match tokio::time::timeout(limit, self.inbox.wait(id, limit)).await {
            Ok(Ok(state)) => state?,
            Ok(Err(refusal)) => {
                tracing::warn!(message = %id, error = %refusal, "waiting for a reply failed");
                return None;
            }
            Err(_) => return None,
        };
        match state.status {
            MessageStatus::Done => Some(state.reply.unwrap_or(Reply { content: String::new(), error: None })),
            MessageStatus::Dead => Some(state.reply.unwrap_or_else(|| Reply {
                content: "This message could not be answered.".into(),
                error: Some(ErrorInfo { code: "dead".into() }),
            })),
            MessageStatus::Queued | MessageStatus::Running | MessageStatus::Waiting => None,
        }
    }
}

impl Fixed {
    /// The message that an authenticated request carries.
    fn message(&self, headers: &HeaderMap, body: &[u8]) -> Result<InboundMessage, HttpError> {
        let native = NativeBody::read(body)?;
        let chat_id = native.chat_id.as_deref().unwrap_or("default");
        let sender = native.sender.as_deref().unwrap_or(&self.channel);
        if self.allow_from.as_ref().is_some_and(|list| !list.allows(sender)) {
            return Err(HttpError::forbidden(format!("this webhook does not listen to the sender {sender:?}")));
        }
        let external_id = match (header_id(headers, HEADER_ID)?, header_id(headers, IDEMPOTENCY_KEY)?) {
            (Some(id), _) | (None, Some(id)) => Some(id),
            (None, None) => native.id,
        };
        let session = native.session.map(|key| self.session(key)).transpose()?;
        let mut message = InboundMessage::text(&self.channel, chat_id, sender, Trust::Known, native.content);
        if let Some(id) = &external_id {
            message.metadata.insert(EXTERNAL_ID.into(), id.as_str().into());
        }
        Ok(InboundMessage { external_id, session, ..message })
    }

    /// A session below this webhook's own; a bare name is put there.
    fn session(&self, key: String) -> Result<SessionKey, HttpError> {
        let own = format!("{}:", self.channel);
        match key.strip_prefix(&own) {
            Some(rest) if !rest.trim().is_empty() => Ok(key.into()),
            None if !key.contains(':') => Ok(format!("{own}{key}").into()),
            _ => Err(HttpError::forbidden(format!("\"session\" is not a plain name or a key below {own}"))),
        }
    }
}

/// The id in a header; an empty one is none.
fn header_id(headers: &HeaderMap, name: &str) -> Result<Option<String>, HttpError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let text = value.to_str().map_err(|_| HttpError::unprocessable(format!("{name} is not plain text")))?.trim();
    if text.is_empty() {
        return Ok(None);
    }
    check_name(name, text)?;
    Ok(Some(text.to_owned()))
}

fn content_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large() -> HttpError {
    HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", format!("the body is larger than {MAX_BODY} bytes"))
}

async fn collect(body: Body) -> Result<Bytes, HttpError> {
    let mut stream = body.into_data_stream();
    let mut whole = Vec::new();
    let reading = async {
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|error| HttpError::bad_request(format!("the body broke off: {error}")))?;
            if whole.len() + chunk.len() > MAX_BODY {
                return Err(too_large());
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(())
    };
    match tokio::time::timeout(BODY_TIMEOUT, reading).await {
        Ok(Ok(())) => Ok(whole.into()),
        Ok(Err(error)) => {
            drain(&mut stream, MAX_DISCARD).await;
            Err(error)
        }
        Err(_) => Err(HttpError::bad_request("the body did not arrive in time")),
    }
}

/// Reads on for a caller that would not see the refusal otherwise. One who asked first (`Expect: 100-continue`), or
/// announced more than this is worth, gets it at once.
async fn discard(headers: &HeaderMap, body: Body) {
    let asks_first = headers.contains_key(header::EXPECT);
    let hopeless = content_length(headers).is_some_and(|length| length > MAX_DISCARD);
    if !asks_first && !hopeless {
        drain(&mut body.into_data_stream(), MAX_DISCARD).await;
    }
}

async fn drain(stream: &mut axum::body::BodyDataStream, limit: usize) {
    let reading = async {
        let mut read = 0;
        while let Some(Ok(chunk)) = stream.next().await {
            read += chunk.len();
            if read > limit {
                return;
            }
        }
    };
    if tokio::time::timeout(DISCARD_TIMEOUT, reading).await.is_err() {
        tracing::debug!("a refused body did not end in time");
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::MAX_NAME_CHARS;
    use super::*;

    fn fixed(allow_from: Option<&[&str]>) -> Fixed {
        let allow_from = allow_from.map(|names| AllowList::new(names.iter().map(|s| (*s).to_owned()).collect()));
        Fixed { name: "n".into(), channel: "webhook:n".into(), verifier: Verifier::Loopback, allow_from }
    }

    #[test]
    fn a_message_is_named_by_header_key_or_body() {
        let body = br#"{"content":"hi","id":"body"}"#;
        let anonymous = br#"{"content":"hi"}"#;
        for (pairs, body, expected) in [
            (&[][..], &anonymous[..], None),
            (&[], body, Some("body")),
            (&[("idempotency-key", "key")], body, Some("key")),
            (&[("idempotency-key", " ")], body, Some("body")),
            (&[("idempotency-key", "key"), ("webhook-id", "header")], body, Some("header")),
        ] {
            let headers: HeaderMap = pairs.iter().map(|(k, v)| (k.parse().unwrap(), v.parse().unwrap())).collect();
            let message = fixed(None).message(&headers, body).unwrap();
            assert_eq!(message.external_id.as_deref(), expected, "{pairs:?}");
            assert_eq!((message.chat_id.as_str(), message.sender.as_str()), ("default", "webhook:n"));
            assert_eq!(message.session_key().as_str(), "webhook:n:default");
        }
        let headers =
            HeaderMap::from_iter([("webhook-id".parse().unwrap(), "x".repeat(MAX_NAME_CHARS + 1).parse().unwrap())]);
        assert_eq!(fixed(None).message(&headers, body).unwrap_err().status, 422);
    }

    #[test]
    fn a_session_stays_below_its_webhook() {
        for (key, expected) in [
            ("a", Some("webhook:n:a")),
            ("webhook:n:a:b", Some("webhook:n:a:b")),
            ("webhook:n:", None),
            ("webhook:other:a", None),
            ("webhook:n2:a", None),
            ("cli:direct", None),
        ] {
            let session = fixed(None).session(key.to_owned());
            match expected {
                Some(expected) => assert_eq!(session.unwrap().as_str(), expected),
                None => assert_eq!(session.unwrap_err().status, 403, "{key}"),
            }
        }
    }

    #[test]
    fn only_senders_on_the_list_are_heard() {
        let body = br#"{"content":"hi","sender":"ann"}"#;
        for (list, allowed) in [
            (None, true),
            (Some(&["ann"][..]), true),
            (Some(&["bob"]), false),
            (Some(&["*"]), true),
            (Some(&[]), false),
        ] {
            let outcome = fixed(list).message(&HeaderMap::new(), body);
            assert_eq!(outcome.map_err(|error| error.status.as_u16()).err(), (!allowed).then_some(403), "{list:?}");
        }
    }
}
