//! The protocol of a service. Connections, deadlines and retries are the same for all.

use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value;

use super::{AttemptError, ToolNames};
use crate::llm::{ChatRequest, ChatResponse, DeltaSink};

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

    /// Returns a reader of the answer; it takes at most `limit` bytes of text, reasoning and arguments together.
    fn assembler<'a>(&'a self, names: &'a ToolNames, limit: usize) -> Box<dyn Assemble + Send + 'a>;
}

/// An answer that is being assembled.
pub trait Assemble {
    /// Takes the data of one event of a stream, and passes new pieces to the sink.
    ///
    /// # Errors
    /// The data cannot be read, or the service reports an error.
    fn push(&mut self, piece: &str, sink: &dyn DeltaSink) -> Result<(), AttemptError>;

    /// Returns true if an event has data, and does not only keep the connection alive.
    fn has_data(&self, _piece: &str) -> bool {
        true
    }

    /// Takes a whole answer, which was not streamed.
    ///
    /// # Errors
    /// The same as those of [`push`](Self::push).
    fn push_whole(&mut self, body: &[u8], sink: &dyn DeltaSink) -> Result<(), AttemptError> {
        self.push(&String::from_utf8_lossy(body), sink)?;
        self.set_done();
        Ok(())
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
