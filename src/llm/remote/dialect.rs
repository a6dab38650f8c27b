//! How a service wants to be spoken to. All else is the same for all of them: connections, deadlines, retries.

use reqwest::header::{HeaderName, HeaderValue};
use serde_json::Value;

use super::{Fault, ToolNames};
use crate::llm::{ChatRequest, ChatResponse, DeltaSink};

/// One protocol: what goes out, and how what comes back is read. No IO.
pub trait Dialect: Send + Sync {
    /// Where answers are asked for, below the base URL.
    fn chat_path(&self) -> &'static [&'static str];

    /// The header that carries the key, and its value.
    fn key_header(&self, key: &str) -> (HeaderName, String);

    /// Headers that go with each request.
    fn headers(&self) -> &'static [(HeaderName, HeaderValue)];

    /// What asks for the list of models that follows this one, as a parameter of the URL; `None`: this was the last.
    fn next_models(&self, _list: &Value) -> Option<(&'static str, String)> {
        None
    }

    /// The body of a request.
    ///
    /// # Errors
    /// Why it cannot be written.
    fn body(&self, request: &ChatRequest, names: &ToolNames, stream: bool) -> Result<Vec<u8>, Fault>;

    /// Notes what a refusal of the body `sent` says of how this model wants to be asked; [`body`](Self::body) heeds it
    /// from then on. The answer is what was learned, in words, where that is new.
    fn learn(&self, _model: &str, _sent: &[u8], _refusal: &str) -> Option<&'static str> {
        None
    }

    /// Whether the model is told of tools, as far as is known.
    fn takes_tools(&self, _model: &str) -> bool {
        true
    }

    /// Whether the model can be asked to stream, as far as is known.
    fn streams(&self, _model: &str) -> bool {
        true
    }

    /// What reads the answer; it takes at most `limit` bytes of text, reasoning and arguments together.
    fn assembler<'a>(&'a self, names: &'a ToolNames, limit: usize) -> Box<dyn Assemble + Send + 'a>;
}

/// An answer in the making.
pub trait Assemble {
    /// Takes the data of one event of a stream, and tells the sink what is new in it.
    ///
    /// # Errors
    /// It cannot be read, or the service says that it failed.
    fn push(&mut self, piece: &str, sink: &dyn DeltaSink) -> Result<(), Fault>;

    /// Whether the data of an event says more than that the connection lives.
    fn is_news(&self, _piece: &str) -> bool {
        true
    }

    /// Takes a whole answer, that of a request without streaming.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    fn push_whole(&mut self, body: &[u8], sink: &dyn DeltaSink) -> Result<(), Fault>;

    /// Nothing more will come.
    fn is_done(&self) -> bool;

    /// The model has said all; the count of tokens may still come.
    fn is_complete(&self) -> bool;

    /// The answer. `asked` is the model's name for services that do not tell theirs.
    ///
    /// # Errors
    /// It is not complete, or no answer.
    fn into_response(self: Box<Self>, asked: &str) -> Result<ChatResponse, Fault>;
}
