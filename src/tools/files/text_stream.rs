//! Reads a text in steps, so that a page of a large file needs no more memory than a page of a small file.

use std::io::{BufRead, ErrorKind, Read};

use encoding_rs::{Decoder, UTF_16LE};

use crate::guard::{StopSignal, WalkStop};
use crate::tools::encoding::TextEncoding;

/// The size of a step, in bytes. It is even, so that no code unit of UTF-16 is split.
const STEP: usize = 64 * 1_024;

/// A text that is read and decoded in steps.
pub(super) struct TextStream<'a, R> {
    input: R,
    encoding: TextEncoding,
    decoder: Decoder,
    buffer: Vec<u8>,
    /// The start of the part of the buffer that is neither skipped nor decoded yet.
    at: usize,
    filled: usize,
    is_ended: bool,
    stop: &'a StopSignal,
}

impl<'a, R: Read> TextStream<'a, R> {
    /// Creates the stream. `input` must be at the start of the text. The work ends early at `stop`.
    pub(super) fn new(input: R, encoding: TextEncoding, stop: &'a StopSignal) -> Self {
        let decoder = encoding.encoding.new_decoder_without_bom_handling();
        Self { input, encoding, decoder, buffer: vec![0; STEP], at: 0, filled: 0, is_ended: false, stop }
    }

    /// Skips to the start of line number `line`; the first is 1.
    ///
    /// # Errors
    /// The text has fewer lines, or cannot be read.
    pub(super) fn go_to_line(&mut self, line: usize) -> Result<(), String> {
        self.fill()?;
        self.at = self.encoding.mark.min(self.filled);
        let mut passed = 0;
        let mut is_open = false;
        while passed + 1 < line {
            if self.at == self.filled && !self.fill()? {
                break;
            }
            let end = self.line_end();
            is_open = end.is_none();
            passed += usize::from(!is_open);
            self.at = end.unwrap_or(self.filled);
        }
        let has_more = passed + 1 == line && (self.at < self.filled || self.fill()?);
        if has_more || line <= 1 {
            return Ok(());
        }
        let lines = passed + usize::from(is_open);
        Err(format!("offset {line} is past the end: the file has {lines} lines"))
    }

    /// Returns the next part of the text; `None` at its end.
    ///
    /// # Errors
    /// The text cannot be read, or the work was stopped.
    pub(super) fn next_text(&mut self) -> Result<Option<String>, String> {
        if self.is_ended {
            return Ok(None);
        }
        self.is_ended = self.at == self.filled && !self.fill()?;
        let bytes = &self.buffer[self.at..self.filled];
        let room = self.decoder.max_utf8_buffer_length(bytes.len()).unwrap_or(STEP * 4);
        let mut text = String::with_capacity(room);
        // The string has room for all bytes, and U+FFFD replaces invalid ones, so the result needs no check.
        let (_, _, _) = self.decoder.decode_to_string(bytes, &mut text, self.is_ended);
        self.at = self.filled;
        Ok(Some(text))
    }

    /// Returns the number of characters of the whole text.
    ///
    /// # Errors
    /// As [`Self::next_text`].
    pub(super) fn count_chars(mut self) -> Result<usize, String> {
        self.go_to_line(1)?;
        let mut chars = 0;
        while let Some(text) = self.next_text()? {
            chars += text.chars().count();
        }
        Ok(chars)
    }

    /// Reads the next step. Returns false at the end of the text.
    fn fill(&mut self) -> Result<bool, String> {
        if self.stop.is_stopped() {
            let why = match self.stop.reason() {
                Some(WalkStop::Cancelled) => "cancelled while the file was read",
                _ => "reading up to this place takes too long; use exec (such as tail or sed -n) instead",
            };
            return Err(why.to_owned());
        }
        (self.at, self.filled) = (0, 0);
        while self.filled < self.buffer.len() {
            match self.input.read(&mut self.buffer[self.filled..]) {
                Ok(0) => break,
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(self.filled > 0)
    }

    /// Returns the index after the next line break of the buffer.
    fn line_end(&self) -> Option<usize> {
        let bytes = &self.buffer[self.at..self.filled];
        if self.encoding.is_wide() {
            let line_feed = if self.encoding.encoding == UTF_16LE { [b'\n', 0] } else { [0, b'\n'] };
            let unit = bytes.chunks_exact(2).position(|unit| unit == line_feed)?;
            return Some(self.at + (unit + 1) * 2);
        }
        // No other supported encoding has this byte within a character.
        let mut rest = bytes;
        let passed = rest.skip_until(b'\n').ok()?;
        (passed > 0 && bytes[passed - 1] == b'\n').then_some(self.at + passed)
    }
}
