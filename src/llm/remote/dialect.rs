//! The protocol of a service, and the reading of its answers. Connections, deadlines and retries are the same for all.

use std::borrow::Cow;

use reqwest::Response;
use reqwest::header::{HeaderName, HeaderValue};
use serde::Serialize;
use serde_json::Value;

use super::ToolNames;
use super::attempt_error::{AttemptError, shorten};
use crate::llm::{ChatRequest, ChatResponse, DeltaSink};
use crate::sse::{EventTooLong, SseReader};
use crate::text::SurrogateJoiner;

/// The byte order mark, which some services put before an answer.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
/// The maximum number of bytes of an unreadable answer that its error may show.
const HEAD_LIMIT: usize = 1_000;
/// The fields of an event stream; a comment has an empty name.
const EVENT_FIELDS: [&str; 5] = ["", "data", "event", "id", "retry"];
/// The usual size of a request's body, in bytes: a buffer that begins small is copied several times while it grows.
const BODY_BYTES: usize = 16 << 10;

/// Serializes the body of a request.
///
/// # Errors
/// The body cannot be serialized.
pub fn serialize_body(body: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(BODY_BYTES);
    serde_json::to_writer(&mut bytes, body)?;
    Ok(bytes)
}

/// One protocol, which writes requests and reads answers. No IO.
pub trait Dialect: Send + Sync {
    /// Returns the path of chat requests, below the base URL.
    fn chat_path(&self) -> &'static [&'static str];

    /// Returns the header that carries the key, and its value.
    fn key_header(&self, key: &str) -> (HeaderName, String);

    /// Returns the headers of each request.
    fn headers(&self) -> &'static [(HeaderName, HeaderValue)];

    /// Returns the URL parameter that asks for the next page of a list of models; `None` after the last.
    fn next_models(&self, _list: &Value) -> Option<(&'static str, String)> {
        None
    }

    /// Returns the body of a request.
    ///
    /// # Errors
    /// The body cannot be written.
    fn body(&self, request: &ChatRequest, names: &ToolNames, stream: bool) -> serde_json::Result<Vec<u8>>;

    /// Learns from the refusal of the body `sent` which parts this model does not accept. [`body`](Self::body) then leaves them
    /// out. Returns a description if something new was learned.
    fn learn(&self, _model: &str, _sent: &Value, _refusal: &str) -> Option<&'static str> {
        None
    }

    /// Returns true if the model takes tools, as far as is known.
    fn takes_tools(&self, _model: &str) -> bool {
        true
    }

    /// Returns true if the model streams, as far as is known.
    fn streams(&self, _model: &str) -> bool {
        true
    }

    /// Returns a reader of the answer, which passes new pieces to `sink`; it takes at most `limit` bytes of text, reasoning and
    /// arguments together.
    fn assembler<'a>(&'a self, names: &'a ToolNames, limit: usize, sink: &'a dyn DeltaSink) -> Box<dyn Assemble + 'a>;
}

/// An answer that is being assembled.
pub trait Assemble: Send {
    /// Takes the data of one event of a stream, or a whole answer.
    ///
    /// # Errors
    /// The data cannot be read, or the service reports an error.
    fn push(&mut self, piece: &str) -> Result<(), AttemptError>;

    /// Returns true if an event has data, and does not only keep the connection alive.
    fn has_data(&self, _piece: &str) -> bool {
        true
    }

    /// Marks the answer as ended: no further data will come.
    fn set_done(&mut self);

    /// Returns true if no further data will come.
    fn is_done(&self) -> bool;

    /// Returns true if the answer is complete; the token count may still come.
    fn is_complete(&self) -> bool;

    /// Returns the answer. `asked` is the model's name for services that do not report theirs.
    ///
    /// # Errors
    /// The answer is not complete, or is none.
    fn into_response(self: Box<Self>, asked: &str) -> Result<ChatResponse, AttemptError>;
}

/// The body of one answer, while it arrives: an event stream or one JSON document. The first byte decides, whatever the request
/// asked for and whatever the content type says.
pub(in crate::llm) struct AnswerBody {
    form: BodyForm,
    limit: usize,
    /// The beginning of the body, without white space before it.
    head: Vec<u8>,
    has_events: bool,
    surrogates: SurrogateJoiner,
}

enum BodyForm {
    /// Only white space so far: services send it to keep a connection open. The head may hold a byte order mark, or a part of it.
    Unknown,
    Events(SseReader),
    Whole(Vec<u8>),
}

impl AnswerBody {
    pub(in crate::llm) fn new(limit: usize) -> Self {
        let (head, surrogates) = (Vec::new(), SurrogateJoiner::default());
        Self { form: BodyForm::Unknown, limit, head, has_events: false, surrogates }
    }

    /// Takes bytes that arrived; returns true if they hold data, and not only white space or comments.
    pub(in crate::llm) fn push(&mut self, bytes: &[u8], assembler: &mut dyn Assemble) -> Result<bool, AttemptError> {
        let mut bytes = Cow::Borrowed(bytes);
        if matches!(self.form, BodyForm::Unknown) {
            let begun = [std::mem::take(&mut self.head).as_slice(), &bytes].concat();
            // White space before an answer is ignored.
            let begun = begun.trim_ascii_start();
            let start = begun.strip_prefix(BYTE_ORDER_MARK).unwrap_or(begun).trim_ascii_start();
            if start.is_empty() || BYTE_ORDER_MARK.starts_with(begun) {
                // White space, of which a service may send any amount, is not kept.
                self.head = begun[..begun.len().min(BYTE_ORDER_MARK.len())].to_vec();
                return Ok(false);
            }
            bytes = Cow::Owned(start.to_vec());
            self.form = match bytes.first() {
                None => return Ok(false),
                Some(b'{') => BodyForm::Whole(Vec::new()),
                Some(b'<') => return Err(AttemptError::unusable("a web page came instead of an answer")),
                // The first byte of gzip (RFC 1952, section 2.3.1); neither JSON nor events begin like this.
                Some(0x1f) => {
                    return Err(AttemptError::unusable("the answer came compressed, which was not asked for"));
                }
                Some(_) => BodyForm::Events(SseReader::new(self.limit)),
            };
        }
        self.head.extend(bytes.iter().take(HEAD_LIMIT - self.head.len()));
        match &mut self.form {
            BodyForm::Events(events) => {
                events.push(&bytes);
                let is_read = push_events(events, &mut self.surrogates, assembler)?;
                self.has_events |= is_read;
                Ok(is_read || events.is_in_data())
            }
            BodyForm::Whole(body) => {
                body.extend_from_slice(&bytes);
                if body.len() > self.limit {
                    return Err(AttemptError::too_long(self.limit));
                }
                Ok(!bytes.trim_ascii().is_empty())
            }
            BodyForm::Unknown => Ok(false),
        }
    }

    /// Ends the body.
    ///
    /// # Errors
    /// The body is not an answer.
    pub(in crate::llm) fn end(mut self, assembler: &mut dyn Assemble) -> Result<(), AttemptError> {
        match self.form {
            BodyForm::Whole(body) => {
                assembler.push(&self.surrogates.join(&String::from_utf8_lossy(&body)))?;
                assembler.set_done();
                Ok(())
            }
            BodyForm::Unknown => Err(AttemptError::unusable("the answer is empty")),
            BodyForm::Events(_) if self.has_events || is_event_stream(&self.head) => Ok(()),
            BodyForm::Events(_) => {
                let words = shorten(&String::from_utf8_lossy(&self.head));
                Err(AttemptError::unusable(format!("unreadable answer: {words}")).publicly("unreadable answer"))
            }
        }
    }
}

/// Returns true if a body that begins like this is an event stream, which may have broken off before its first event.
fn is_event_stream(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    head.split(['\r', '\n']).any(|line| line.split_once(':').is_some_and(|(field, _)| EVENT_FIELDS.contains(&field)))
}

/// Reads at most `limit` bytes of a body. If the connection breaks, returns the bytes so far.
pub async fn read_capped(mut response: Response, limit: usize) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(bytes)) = response.chunk().await {
        let room = limit - body.len();
        body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if body.len() == limit {
            break;
        }
    }
    body
}

/// Passes the complete events to the assembler; returns true if one of them has data.
fn push_events(
    events: &mut SseReader,
    surrogates: &mut SurrogateJoiner,
    assembler: &mut dyn Assemble,
) -> Result<bool, AttemptError> {
    let too_long = |EventTooLong| AttemptError::unusable("one event of the answer is too long");
    let mut has_data = false;
    while let Some(data) = events.next_event().map_err(too_long)? {
        has_data |= assembler.has_data(&data);
        assembler.push(&surrogates.join(&data))?;
        if assembler.is_done() {
            break;
        }
    }
    Ok(has_data)
}
