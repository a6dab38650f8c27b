//! Writes Markdown: lines with prefixes, and marks around words.

/// The prefix of each line of a list item or quotation.
struct LinePrefix {
    /// Prefix of the first line, if it differs.
    first: Option<String>,
    rest: String,
}

/// An open mark, which is written just before the first word inside it.
struct OpenMark {
    sign: &'static str,
    start: Option<usize>,
}

/// The mark that begins a link.
pub const LINK: &str = "[";

/// Writes Markdown of at most a given size.
#[derive(Default)]
pub struct MarkdownWriter {
    out: String,
    max: usize,
    prefixes: Vec<LinePrefix>,
    marks: Vec<OpenMark>,
    /// The number of line breaks before the next word; two make an empty line.
    breaks: usize,
    /// The number of prefixes on the empty line.
    shared: usize,
    has_space: bool,
    is_first: bool,
}

impl MarkdownWriter {
    pub fn new(max: usize) -> Self {
        Self { max, is_first: true, ..Self::default() }
    }

    pub fn is_full(&self) -> bool {
        self.out.len() >= self.max
    }

    pub fn finish(mut self) -> String {
        self.close_marks();
        self.out
    }

    /// Starts a new line, after an empty one if `count` is two.
    pub fn line(&mut self, count: usize) {
        self.close_marks();
        self.has_space = false;
        self.shared = if self.breaks == 0 { self.prefixes.len() } else { self.shared.min(self.prefixes.len()) };
        // The first words of an item follow its bullet on the same line.
        let is_item = self.prefixes.last().is_some_and(|prefix| prefix.first.is_some());
        self.breaks = self.breaks.max(if is_item { 1 } else { count });
    }

    /// Writes an explicit line break; two make an empty line.
    pub fn hard_line(&mut self) {
        let count = if self.is_first { 0 } else { (self.breaks + 1).min(2) };
        self.line(count);
    }

    pub fn indent(&mut self, first: Option<String>, rest: &str) {
        self.prefixes.push(LinePrefix { first, rest: rest.to_owned() });
    }

    pub fn outdent(&mut self) {
        self.prefixes.pop();
        self.shared = self.shared.min(self.prefixes.len());
    }

    pub fn depth(&self) -> usize {
        self.prefixes.len()
    }

    /// Writes words; each run of white space becomes one space.
    pub fn text(&mut self, text: &str) {
        let mut words = text.split(char::is_whitespace).peekable();
        while let Some(word) = words.next() {
            // A word that consists only of joiners is invisible filler.
            if word.chars().any(|c| !matches!(c, '\u{200c}' | '\u{200d}' | '\u{200e}' | '\u{200f}')) {
                self.word(word);
            }
            if words.peek().is_some() {
                self.has_space = true;
            }
        }
    }

    /// Writes a text without line breaks unchanged.
    pub fn word(&mut self, word: &str) {
        if self.is_full() {
            return;
        }
        self.begin();
        self.push(word);
    }

    /// Writes a separate line unchanged.
    pub fn raw_line(&mut self, line: &str) {
        self.line(1);
        if self.is_full() {
            return;
        }
        self.begin();
        self.push(line);
        self.line(1);
    }

    pub fn open(&mut self, sign: &'static str) -> bool {
        let is_new = !self.marks.iter().any(|mark| mark.sign == sign);
        if is_new {
            self.marks.push(OpenMark { sign, start: None });
        }
        is_new
    }

    pub fn close(&mut self) {
        if let Some(mark) = self.marks.pop()
            && mark.start.is_some()
        {
            self.out.push_str(mark.sign);
        }
    }

    /// Ends a link. Writes its URL unless the URL equals the text. Drops a link without text.
    pub fn close_link(&mut self, url: Option<&str>) {
        let Some(start) = self.marks.pop().and_then(|mark| mark.start) else { return };
        let Some(inner) = self.out.get(start + LINK.len()..) else { return };
        let plain = |text: &str| {
            let text = text.trim().trim_end_matches('/').to_lowercase();
            let schemes = ["https://", "http://", "mailto:", "tel:"];
            schemes.iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(&text).to_owned()
        };
        match url.filter(|url| plain(url) != plain(inner)) {
            Some(url) if !inner.contains('\n') => self.out.push_str(&format!("]({url})")),
            url => {
                self.out.remove(start);
                self.out.extend(url.map(|url| format!(" ({url})")));
            }
        }
    }

    /// Appends the part of `text` that fits.
    fn push(&mut self, text: &str) {
        let room = self.max.saturating_sub(self.out.len());
        self.out.push_str(&text[..text.floor_char_boundary(room)]);
    }

    fn begin(&mut self) {
        if self.is_first || self.breaks > 0 {
            if !self.is_first {
                for _ in 1..self.breaks {
                    self.out.push('\n');
                    let blank: String =
                        self.prefixes[..self.shared].iter().map(|prefix| prefix.rest.as_str()).collect();
                    self.out.push_str(blank.trim_end());
                }
                self.out.push('\n');
            }
            for prefix in &mut self.prefixes {
                let first = prefix.first.take();
                self.out.push_str(first.as_deref().unwrap_or(&prefix.rest));
            }
        } else if self.has_space {
            self.out.push(' ');
        }
        (self.is_first, self.breaks, self.has_space) = (false, 0, false);
        for mark in &mut self.marks {
            if mark.start.is_none() {
                mark.start = Some(self.out.len());
                self.out.push_str(mark.sign);
            }
        }
    }

    /// Closes the open marks at the end of a line, except links.
    fn close_marks(&mut self) {
        for mark in self.marks.iter_mut().rev().filter(|mark| mark.sign != LINK) {
            if mark.start.take().is_some() {
                self.out.push_str(mark.sign);
            }
        }
    }
}
