//! Reads an event stream (`text/event-stream`, WHATWG HTML, section 9.2.6) that arrives in pieces of any size. This is own
//! code, because the crates for event streams have no limit for the size of an event, or fail on streams that services send.

use std::borrow::Cow;
use std::ops::Range;

/// A reader that takes bytes by [`push`](Self::push) and returns the data of complete events by
/// [`next_event`](Self::next_event). An event that the end of the stream cuts off is dropped, as the standard says.
///
/// Names, ids and retry times of events are ignored: services put everything into the data.
#[derive(Default)]
pub struct SseReader {
    received: Vec<u8>,
    /// The offset of the first unread line.
    line: usize,
    /// The offset before which no unread line ends.
    searched: usize,
    /// True if the last line ended with CR: an LF right after it belongs to the same line break.
    after_cr: bool,
    /// True once the first line is read: only this line may begin with a byte order mark.
    has_begun: bool,
    /// The data lines of the event being read.
    data: Vec<u8>,
    has_data: bool,
    /// True if `data` was returned to the caller.
    handed_out: bool,
    limit: usize,
}

/// The error for an event with more bytes than allowed.
#[derive(Debug, PartialEq)]
pub struct EventTooLong;

impl SseReader {
    /// Creates a reader; `limit` is the maximum number of bytes that one event may hold.
    pub fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// Returns the data of the next complete event, lines joined by LF, never empty; `None` if more bytes are needed.
    /// Comments and events without data are skipped.
    ///
    /// # Errors
    /// The event, or its current line, is longer than the limit of [`Self::new`].
    pub fn next_event(&mut self) -> Result<Option<Cow<'_, str>>, EventTooLong> {
        if std::mem::take(&mut self.handed_out) {
            self.data.clear();
        }
        while let Some(line) = self.next_line() {
            if line.is_empty() {
                self.has_data = false;
                if !self.data.is_empty() {
                    self.handed_out = true;
                    return Ok(Some(String::from_utf8_lossy(&self.data)));
                }
            } else if let Some(value) = data_value(&self.received[line]) {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            self.check_length()?;
        }
        self.forget_what_is_read();
        self.check_length()?;
        Ok(None)
    }

    /// Returns true if a data line has begun and not ended: the bytes that arrive now are data, however long the line is.
    pub fn is_in_data(&self) -> bool {
        self.received[self.line..].starts_with(b"data:")
    }

    /// Returns the next line without its end (LF, CRLF or CR).
    fn next_line(&mut self) -> Option<Range<usize>> {
        if self.after_cr && self.line < self.received.len() {
            self.after_cr = false;
            if self.received[self.line] == b'\n' {
                self.line += 1;
            }
        }
        let from = self.searched.max(self.line);
        let Some(length) = self.received[from..].iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
            self.searched = self.received.len();
            return None;
        };
        let end = from + length;
        let mut start = self.line;
        self.after_cr = self.received[end] == b'\r';
        self.line = end + 1;
        if !std::mem::replace(&mut self.has_begun, true) && self.received[start..end].starts_with(b"\xEF\xBB\xBF") {
            start += 3;
        }
        Some(start..end)
    }

    fn forget_what_is_read(&mut self) {
        self.received.drain(..self.line);
        self.searched -= self.line.min(self.searched);
        self.line = 0;
    }

    fn check_length(&self) -> Result<(), EventTooLong> {
        let unread_line = if self.searched == self.received.len() { self.searched - self.line } else { 0 };
        if self.data.len() + unread_line > self.limit { Err(EventTooLong) } else { Ok(()) }
    }
}

/// Returns the value of a `data` line; `None` for any other line.
fn data_value(line: &[u8]) -> Option<&[u8]> {
    match line.strip_prefix(b"data")? {
        [] => Some(&[]),
        [b':', b' ', value @ ..] | [b':', value @ ..] => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<String> {
        let mut reader = SseReader::new(1_000);
        let mut events = Vec::new();
        for piece in pieces {
            reader.push(piece);
            while let Some(event) = reader.next_event().unwrap() {
                events.push(event.into_owned());
            }
        }
        events
    }

    #[test]
    fn streams_and_their_events() {
        let table: &[(&str, &[&str])] = &[
            ("data: a\n\ndata: b\n\n", &["a", "b"]),
            ("data:a\r\n\r\ndata:  b\r\n\r\n", &["a", " b"]),
            ("data: a\r\rdata: b\r\r", &["a", "b"]),
            ("\u{feff}data: a\n\n", &["a"]),
            (": ping\n\n: ping\n\ndata: a\n: in between\n\n", &["a"]),
            ("event: delta\nid: 7\nretry: 10\ndata: a\n\n", &["a"]),
            ("data: a\ndata\ndata: b\n\n", &["a\n\nb"]),
            ("data\n\ndata:\n\n\n\n", &[]),
            ("database: no\n\n data: no\n\ndata: 世界 😀\n\n", &["世界 😀"]),
            ("data: cut off", &[]),
            ("data: cut off\n", &[]),
        ];
        for (stream, events) in table {
            assert_eq!(read(&[stream.as_bytes()]), *events, "{stream:?}");
        }
        assert_eq!(read(&[b"data: \xff\n\n"]), ["\u{fffd}"], "broken UTF-8 spoils its character alone");
    }

    #[test]
    fn one_event_has_a_limit_and_comments_count_for_nothing_once_read() {
        let mut reader = SseReader::new(8);
        for _ in 0..10 {
            reader.push(b": ping\n\ndata: 12345678\n\n");
            assert!(reader.next_event().unwrap().is_some());
        }
        for too_long in ["data: 123456789\n\n", "data: 1234\ndata: 5678\n\n", ": a comment without end"] {
            let mut reader = SseReader::new(8);
            reader.push(too_long.as_bytes());
            assert_eq!(reader.next_event(), Err(EventTooLong), "{too_long:?}");
        }
    }

    #[test]
    fn an_unfinished_data_line_is_data_and_an_unfinished_comment_is_not() {
        for (piece, is_data) in
            [("data: {\"a", true), (": pi", false), ("data: a\n\n", false), ("data: a\n: pi", false)]
        {
            let mut reader = SseReader::new(100);
            reader.push(piece.as_bytes());
            while reader.next_event().unwrap().is_some() {}
            assert_eq!(reader.is_in_data(), is_data, "{piece:?}");
        }
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_events(
            parts in proptest::collection::vec(
                prop_oneof![
                    Just("data: "), Just("data:"), Just("data"), Just(":"), Just(" "), Just("\n"), Just("\n\n"), Just("\r\n"),
                    Just("\r"), Just("\u{feff}"), Just("世界"), Just("😀é"), Just("event: x"), Just("{\"a\":1}"), Just("[DONE]"),
                ],
                0..60,
            ),
            cuts in proptest::collection::vec(0usize..400, 0..40),
        ) {
            let stream = parts.concat();
            let bytes = stream.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            let whole = read(&[bytes]);
            prop_assert_eq!(&read(&pieces), &whole);
            prop_assert_eq!(&read(&single), &whole);
        }
    }
}
