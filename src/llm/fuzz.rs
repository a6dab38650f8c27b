//! The entry of the fuzz target `model_stream`.

use reqwest::Url;

use super::anthropic::AnthropicDialect;
use super::openai::OpenaiDialect;
use super::provider::DeltaRecorder;
use super::remote::{AnswerBody, Dialect, ToolNames};
use super::{ChatResponse, ProviderConfig};

/// The maximum size, in bytes, of an answer; inputs are shorter.
const LIMIT: usize = 1 << 20;

/// Takes a byte that selects the dialect and the size of the pieces, and any bytes as the body of a service's answer. Asserts
/// that the split into pieces does not change the result, and that each call of an answer has a unique id.
pub fn stream(data: &[u8]) {
    let Some((first, body)) = data.split_first() else { return };
    let base = Url::parse("http://127.0.0.1/v1").expect("a URL");
    let dialect: Box<dyn Dialect> = if first & 1 == 0 {
        Box::new(OpenaiDialect::new("fuzzed", &base, &ProviderConfig::default()))
    } else {
        Box::new(AnthropicDialect::new("fuzzed", 0).expect("no thinking is allowed"))
    };
    let (whole, heard) = read(dialect.as_ref(), body, body.len().max(1));
    let (pieces, heard_in_pieces) = read(dialect.as_ref(), body, usize::from(first >> 1) % 16 + 1);
    assert_eq!(heard, heard_in_pieces);
    assert_eq!(whole.as_ref().map(shown), pieces.as_ref().map(shown));
    if let Some(response) = whole {
        let mut ids: Vec<_> = response.tool_calls.iter().map(|call| call.id.as_str()).collect();
        ids.sort_unstable();
        let count = ids.len();
        ids.dedup();
        assert!(ids.len() == count && ids.iter().all(|id| !id.is_empty()));
    }
}

/// Returns the answer, if the body is a valid one, and the pieces that the sink received.
fn read(dialect: &dyn Dialect, data: &[u8], piece: usize) -> (Option<ChatResponse>, Vec<String>) {
    let (names, heard) = (ToolNames::default(), DeltaRecorder::default());
    let mut assembler = dialect.assembler(&names, LIMIT, &heard);
    let mut body = AnswerBody::new(LIMIT);
    let read = data.chunks(piece).try_for_each(|bytes| {
        if assembler.is_done() { Ok(()) } else { body.push(bytes, assembler.as_mut()).map(drop) }
    });
    let read = read.and_then(|()| if assembler.is_done() { Ok(()) } else { body.end(assembler.as_mut()) });
    let response = read.and_then(|()| assembler.into_response("asked")).ok();
    (response, heard.0.into_inner())
}

/// Returns the parts of an answer that do not depend on ids, which may be new each time.
fn shown(response: &ChatResponse) -> String {
    let calls: Vec<_> = response.tool_calls.iter().map(|call| (&call.name, &call.arguments)).collect();
    format!("{:?} {:?} {:?} {calls:?}", response.model, response.text, response.usage)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_seeds_of_model_stream_pass() {
        crate::seeds::run("model_stream", super::stream);
    }
}
