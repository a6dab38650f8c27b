//! Reads an answer, which is an event stream or one JSON document. The first byte decides, whatever the request asked for and
//! whatever the content type says.

use reqwest::Response;

use super::attempt_error::AttemptError;
use super::dialect::Assemble;
use crate::llm::DeltaSink;
use crate::sse::{EventTooLong, SseReader};

/// The body of one answer, while it arrives.
pub(in crate::llm) struct AnswerBody {
    form: BodyForm,
    limit: usize,
}

enum BodyForm {
    /// Only white space so far: services send it to keep a connection open.
    Unknown,
    Events(SseReader),
    Whole(Vec<u8>),
}

impl AnswerBody {
    pub(in crate::llm) fn new(limit: usize) -> Self {
        Self { form: BodyForm::Unknown, limit }
    }

    /// Takes bytes that arrived; returns true if they hold data, and not only white space or comments.
    pub(in crate::llm) fn push(
        &mut self,
        bytes: &[u8],
        assembler: &mut dyn Assemble,
        sink: &dyn DeltaSink,
    ) -> Result<bool, AttemptError> {
        let mut bytes = bytes;
        if matches!(self.form, BodyForm::Unknown) {
            // White space before an answer is ignored.
            bytes = bytes.trim_ascii_start();
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
        match &mut self.form {
            BodyForm::Events(events) => push_events(events, bytes, assembler, sink),
            BodyForm::Whole(body) => {
                body.extend_from_slice(bytes);
                if body.len() > self.limit {
                    return Err(AttemptError::too_long(self.limit));
                }
                Ok(!bytes.trim_ascii().is_empty())
            }
            BodyForm::Unknown => Ok(false),
        }
    }

    /// Ends the body.
    pub(in crate::llm) fn end(self, assembler: &mut dyn Assemble, sink: &dyn DeltaSink) -> Result<(), AttemptError> {
        match self.form {
            BodyForm::Whole(body) => assembler.push_whole(&body, sink),
            BodyForm::Events(_) | BodyForm::Unknown => Ok(()),
        }
    }
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

fn push_events(
    events: &mut SseReader,
    bytes: &[u8],
    assembler: &mut dyn Assemble,
    sink: &dyn DeltaSink,
) -> Result<bool, AttemptError> {
    let too_long = |EventTooLong| AttemptError::unusable("one event of the answer is too long");
    let mut has_data = false;
    events.push(bytes);
    while let Some(data) = events.next_event().map_err(too_long)? {
        has_data |= assembler.has_data(&data);
        assembler.push(&data, sink)?;
        if assembler.is_done() {
            break;
        }
    }
    Ok(has_data || events.is_in_data())
}
