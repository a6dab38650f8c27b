//! The frames of the protocol: headers with the length of a message, and the message.
//!
//! Own code: the reader of async-lsp allocates whatever length a server names, and ends at the first line that is not a header.

use serde_json::Value;

/// The longest accepted message, in bytes.
const MAX_MESSAGE: usize = 8_000_000;
/// The maximum number of bytes between two messages that belong to no frame.
const MAX_NOISE: usize = 64 * 1_024;
/// The only header that is used, in lower case.
const LENGTH_HEADER: &str = "content-length:";

/// Composes the frame of a message.
pub(super) fn frame(message: &Value) -> Vec<u8> {
    let body = message.to_string();
    format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// A decoder that splits the output of a server into messages. Lines that are not headers are skipped, since some servers print
/// to their standard output.
#[derive(Default)]
pub(super) struct FrameDecoder {
    buffer: Vec<u8>,
    /// The start of the bytes that were not returned yet.
    start: usize,
    /// The end of the bytes that were searched for a line break.
    searched: usize,
    /// The length that the headers of the message state.
    length: Option<usize>,
    in_body: bool,
    /// The number of bytes since the last message that belong to no frame.
    noise: usize,
}

impl FrameDecoder {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next message, or `None` if more bytes are needed.
    ///
    /// # Errors
    /// States why the server's output cannot be read any further.
    pub(super) fn next_message(&mut self) -> Result<Option<Vec<u8>>, String> {
        loop {
            if self.in_body {
                let end = self.start + self.length.unwrap_or(0);
                if self.buffer.len() < end {
                    return Ok(None);
                }
                let body = self.buffer[self.start..end].to_vec();
                (self.start, self.searched) = (end, end);
                (self.length, self.in_body, self.noise) = (None, false, 0);
                return Ok(Some(body));
            }
            let Some(line) = self.next_line()? else { return Ok(None) };
            self.read_header(&line)?;
        }
    }

    fn next_line(&mut self) -> Result<Option<String>, String> {
        let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.buffer.len();
            self.check_noise(self.buffer.len() - self.start)?;
            return Ok(None);
        };
        let end = self.searched + at;
        let line = String::from_utf8_lossy(&self.buffer[self.start..end]).trim().to_owned();
        (self.start, self.searched) = (end + 1, end + 1);
        Ok(Some(line))
    }

    fn read_header(&mut self, line: &str) -> Result<(), String> {
        if line.is_empty() {
            self.in_body = self.length.is_some();
            return Ok(());
        }
        let lower = line.to_ascii_lowercase();
        // Text that the server printed without a line break precedes the header.
        let Some(at) = lower.rfind(LENGTH_HEADER) else {
            self.noise += line.len() + 1;
            return self.check_noise(0);
        };
        let number = lower[at + LENGTH_HEADER.len()..].trim();
        let length = number.parse::<u64>().map_err(|_| "it sent a message without a valid length".to_owned())?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > MAX_MESSAGE {
            let (sent, most) = (length / 1_000_000, MAX_MESSAGE / 1_000_000);
            return Err(format!("it sent a message of {sent} MB, and at most {most} MB are read"));
        }
        self.length = Some(length);
        Ok(())
    }

    fn check_noise(&self, further: usize) -> Result<(), String> {
        if self.noise + further > MAX_NOISE {
            return Err("its output is not that of a language server".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn decode(chunks: &[&[u8]]) -> (Vec<String>, Option<String>) {
        let (mut decoder, mut found) = (FrameDecoder::default(), Vec::new());
        for chunk in chunks {
            decoder.push(chunk);
            loop {
                match decoder.next_message() {
                    Ok(Some(message)) => found.push(String::from_utf8(message).unwrap()),
                    Ok(None) => break,
                    Err(error) => return (found, Some(error)),
                }
            }
        }
        (found, None)
    }

    #[test]
    fn frames_are_read_among_noise() {
        let noise = "x".repeat(MAX_NOISE + 1);
        let lines = "noise\n".repeat(MAX_NOISE / 4);
        for (bytes, messages, fault) in [
            ("Content-Length: 2\r\n\r\n{}Content-Length: 2\r\n\r\n[]", &["{}", "[]"][..], None),
            ("content-length:2\n\n{}", &["{}"], None),
            ("Content-Type: x\r\nContent-Length: 2\r\n\r\n{}", &["{}"], None),
            ("Loading…\n\nwarning: x\nContent-Length: 2\r\n\r\n{}\nbye\n", &["{}"], None),
            ("no line breakContent-Length: 2\r\n\r\n{}", &["{}"], None),
            ("Content-Length: 0\r\n\r\nContent-Length: 2\r\n\r\n{}", &["", "{}"], None),
            ("Content-Length: 5\r\n\r\n{}", &[], None),
            ("Content-Length: 50000000\r\n\r\n{}", &[], Some("50 MB")),
            ("Content-Length: 99999999999999999999\r\n\r\n", &[], Some("valid length")),
            ("Content-Length: -1\r\n\r\n", &[], Some("valid length")),
            (&noise, &[], Some("not that of a language server")),
            (&lines, &[], Some("not that of a language server")),
        ] {
            let (found, error) = decode(&[bytes.as_bytes()]);
            assert_eq!(found, messages);
            assert_eq!(error.is_some(), fault.is_some(), "{error:?}");
            assert!(error.unwrap_or_default().contains(fault.unwrap_or_default()));
        }
    }

    proptest! {
        #[test]
        fn chunks_may_end_anywhere(texts in prop::collection::vec("\\PC{0,40}", 0..6), sizes in prop::collection::vec(1..30_usize, 1..20)) {
            let messages: Vec<Value> = texts.iter().map(|text| json!({"text": text})).collect();
            let bytes: Vec<u8> = messages.iter().flat_map(frame).collect();
            let (mut rest, mut chunks, mut sizes) = (&bytes[..], Vec::new(), sizes.iter().cycle());
            while !rest.is_empty() {
                let (chunk, after) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
                chunks.push(chunk);
                rest = after;
            }
            let (found, error) = decode(&chunks);
            prop_assert_eq!(error, None);
            prop_assert_eq!(found, messages.iter().map(Value::to_string).collect::<Vec<_>>());
        }

        #[test]
        fn any_bytes_end_with_a_message_or_an_error(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..10)) {
            let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            decode(&chunks);
        }
    }
}
