//! Pages of a text: numbered lines, and a note about where the text continues.

use std::io::Read;

use super::text_stream::TextStream;
use crate::tools::OutputLimit;

/// The requested part of a text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PageRequest {
    /// The first line, starting from 1.
    pub line: usize,
    /// The first character of that line, starting from 1.
    pub column: usize,
    /// The maximum size of the page. The characters include the line numbers.
    pub limit: OutputLimit,
    /// True if the text is read to its end, so that its lines can be counted.
    pub counts_lines: bool,
}

/// A page, and facts about the whole text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TextPage {
    pub text: String,
    /// True if some bytes are invalid in the encoding.
    pub has_invalid: bool,
    /// True if the page leaves no part of the text out.
    pub is_whole: bool,
}

/// Reads a page. `size` describes a text whose lines are not counted.
///
/// # Errors
/// The text has no such line or column, or cannot be read.
pub(super) fn read_page<R: Read>(
    mut stream: TextStream<'_, R>,
    request: PageRequest,
    size: &str,
) -> Result<TextPage, String> {
    stream.go_to_line(request.line)?;
    let mut page = TextPageBuilder::new(request);
    'text: while let Some(text) = stream.next_text()? {
        for piece in text.split_inclusive('\n') {
            page.push(piece)?;
            if page.next.is_some() && !request.counts_lines {
                break 'text;
            }
        }
    }
    page.finish(size)
}

#[derive(Default)]
struct TextPageBuilder {
    request: PageRequest,
    shown: String,
    /// The number of characters on the page.
    chars: usize,
    lines: usize,
    /// The number of the line that is being read, and its shown part.
    line: usize,
    part: String,
    part_chars: usize,
    /// The number of characters of the line that must still be skipped.
    skip: usize,
    /// True if the line has begun.
    is_open: bool,
    /// The line and column where the text continues, once the page is full.
    next: Option<(usize, usize)>,
    has_invalid: bool,
}

impl TextPageBuilder {
    fn new(request: PageRequest) -> Self {
        Self { request, line: request.line, skip: request.column - 1, ..Self::default() }
    }

    /// Adds a line or a part of a line.
    fn push(&mut self, piece: &str) -> Result<(), String> {
        let (body, is_end) = match piece.strip_suffix('\n') {
            Some(body) => (body, true),
            None => (piece, false),
        };
        if self.next.is_none() && !piece.is_empty() {
            if !self.is_open && self.lines == self.request.limit.lines {
                self.next = Some((self.line, 1));
            } else {
                self.take(body);
            }
        }
        self.is_open |= !piece.is_empty();
        if is_end {
            self.end_line()?;
        }
        Ok(())
    }

    fn take(&mut self, body: &str) {
        let mut chars = body.chars();
        while self.skip > 0 && chars.next().is_some() {
            self.skip -= 1;
        }
        let prefix = self.line.to_string().len() + 1;
        let room = self.request.limit.chars.saturating_sub(self.chars + prefix + self.part_chars);
        let rest = chars.as_str();
        let taken = rest.char_indices().nth(room).map_or(rest, |(at, _)| &rest[..at]);
        self.part_chars += taken.chars().count();
        self.part.push_str(taken);
        if taken.len() == rest.len() {
            return;
        }
        if self.lines > 0 {
            self.next = Some((self.line, 1));
            self.part.clear();
        } else {
            // A line that is longer than a page continues on the next page.
            self.next = Some((self.line, self.request.column + self.part_chars));
            self.show();
        }
    }

    fn end_line(&mut self) -> Result<(), String> {
        if self.next.is_none() {
            if self.skip > 0 || (self.request.column > 1 && self.lines == 0 && self.part.is_empty()) {
                let PageRequest { line, column, .. } = self.request;
                return Err(format!("column {column} is past the end of line {line}"));
            }
            self.show();
        }
        self.line += 1;
        self.is_open = false;
        Ok(())
    }

    /// Adds the line to the page.
    fn show(&mut self) {
        let text = self.part.strip_suffix('\r').unwrap_or(&self.part);
        self.has_invalid |= text.contains(char::REPLACEMENT_CHARACTER);
        let numbered = format!("{}\t{text}\n", self.line);
        self.chars += numbered.chars().count();
        self.shown.push_str(&numbered);
        self.lines += 1;
        self.part.clear();
        self.part_chars = 0;
    }

    fn finish(mut self, size: &str) -> Result<TextPage, String> {
        if self.is_open {
            self.end_line()?;
        }
        let total = self.line - 1;
        let PageRequest { line: first, column, counts_lines, .. } = self.request;
        let last = first + self.lines.saturating_sub(1);
        let of = if self.next.is_none() || counts_lines { total.to_string() } else { size.to_owned() };
        let note = match self.next {
            Some((line, 1)) => format!("[lines {first}-{last} of {of}; continue with offset={line}]"),
            Some((line, next)) => {
                let end = next - 1;
                format!("[line {line} of {of}, characters {column}-{end}; continue with offset={line}, column={next}]")
            }
            None if total == 0 => "(the file is empty)".to_owned(),
            None if first > 1 || column > 1 => format!("[lines {first}-{last} of {of}]"),
            None => String::new(),
        };
        self.shown.push_str(&note);
        let text = self.shown.strip_suffix('\n').unwrap_or(&self.shown).to_owned();
        let is_whole = self.next.is_none() && first == 1 && column == 1;
        Ok(TextPage { text, has_invalid: self.has_invalid, is_whole })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::guard::StopSignal;
    use crate::tools::encoding::TextEncoding;

    fn page(bytes: &[u8], line: usize, column: usize, limit: OutputLimit) -> Result<String, String> {
        let encoding = TextEncoding::detect(bytes, true).unwrap();
        let stop = StopSignal::new(Duration::from_secs(60), CancellationToken::new());
        let stream = TextStream::new(bytes, encoding, &stop);
        let request = PageRequest { line, column, limit, counts_lines: true };
        read_page(stream, request, "?").map(|page| page.text)
    }

    #[test]
    fn each_page_says_where_the_text_continues() {
        let small = OutputLimit { lines: 2, chars: 20 };
        for (text, line, column, expected) in [
            ("", 1, 1, Ok("(the file is empty)")),
            ("\u{feff}", 1, 1, Ok("(the file is empty)")),
            ("\n", 1, 1, Ok("1\t")),
            ("a\nb", 1, 1, Ok("1\ta\n2\tb")),
            ("\u{feff}a\r\nb\r\n", 1, 1, Ok("1\ta\n2\tb")),
            ("a\nb\nc\n", 1, 1, Ok("1\ta\n2\tb\n[lines 1-2 of 3; continue with offset=3]")),
            ("a\nb\nc", 3, 1, Ok("3\tc\n[lines 3-3 of 3]")),
            ("a\nb\nc", 4, 1, Err("offset 4 is past the end: the file has 3 lines")),
            ("a\nb\nc\n", 4, 1, Err("offset 4 is past the end: the file has 3 lines")),
            ("a\nb\nc\n", 9, 1, Err("offset 9 is past the end: the file has 3 lines")),
            ("", 2, 1, Err("offset 2 is past the end: the file has 0 lines")),
            ("0123456789ab\n0123456789ab\n", 1, 1, Ok("1\t0123456789ab\n[lines 1-1 of 2; continue with offset=2]")),
            (
                "界界界界界界界界界界界界界界界界界界界界界界\nb",
                1,
                1,
                Ok("1\t界界界界界界界界界界界界界界界界界界\n\
                    [line 1 of 2, characters 1-18; continue with offset=1, column=19]"),
            ),
            ("界界界界界界界界界界界界界界界界界界界界界界\nb", 1, 19, Ok("1\t界界界界\n2\tb\n[lines 1-2 of 2]")),
            ("abc\nb", 1, 4, Err("column 4 is past the end of line 1")),
            ("abc", 1, 9, Err("column 9 is past the end of line 1")),
        ] {
            let got = page(text.as_bytes(), line, column, small);
            assert_eq!(got.as_deref().map_err(String::as_str), expected, "{text:?} {line}:{column}");
        }
        let wide: Vec<u8> = "一\n二\n三\n".encode_utf16().flat_map(u16::to_be_bytes).collect();
        let wide = [b"\xfe\xff".as_slice(), &wide].concat();
        assert_eq!(page(&wide, 3, 1, small).unwrap(), "3\t三\n[lines 3-3 of 3]");
    }

    #[test]
    fn work_ends_when_the_turn_is_cancelled_or_the_time_is_over() {
        let cancel = CancellationToken::new();
        cancel.cancel();
        let ended = [
            StopSignal::new(Duration::from_secs(9), cancel),
            StopSignal::new(Duration::ZERO, CancellationToken::new()),
        ];
        for (stop, expected) in ended.into_iter().zip(["cancelled", "takes too long"]) {
            let encoding = TextEncoding::detect(b"", true).unwrap();
            let error = TextStream::new(std::io::repeat(b'a'), encoding, &stop).go_to_line(2).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    proptest! {
        #[test]
        fn pages_together_are_the_text(text in "([a-c界\t ]{0,30}\n?){0,30}", lines in 1_usize..6, chars in 12_usize..60) {
            let limit = OutputLimit { lines, chars };
            let (mut line, mut column, mut whole) = (1, 1, String::new());
            for _ in 0..2_000 {
                let shown = page(text.as_bytes(), line, column, limit).unwrap();
                prop_assert!(shown.lines().filter(|line| !line.starts_with('[')).count() <= lines);
                let mut next = None;
                for row in shown.lines() {
                    if let Some((_, rest)) = row.split_once("continue with offset=") {
                        let numbers = rest.trim_end_matches(']').replace(" column=", "");
                        let mut numbers = numbers.split(',').map(|number| number.parse::<usize>().unwrap());
                        next = Some((numbers.next().unwrap(), numbers.next().unwrap_or(1)));
                    } else if let Some((_, body)) = row.split_once('\t') {
                        whole.push_str(body);
                        whole.push('\n');
                    }
                }
                match next {
                    Some((_, 1)) => {}
                    Some(_) => { whole.pop(); }
                    None => break,
                }
                (line, column) = next.unwrap();
            }
            let expected = text.strip_suffix('\n').unwrap_or(&text);
            let whole = whole.strip_suffix('\n').unwrap_or(&whole);
            prop_assert_eq!(whole, expected);
        }
    }
}
