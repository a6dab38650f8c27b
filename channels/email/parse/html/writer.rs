//! Markdown that grows from left to right: lines with what stands before them, and marks around words.

/// What stands before each line of a list's item or a quotation.
struct Prefix {
    /// Before the first line, where that differs.
    first: Option<String>,
    rest: String,
}

/// A mark that is open: it is written only before the first word that it is around.
struct Mark {
    sign: &'static str,
    start: Option<usize>,
}

/// The sign of a link's beginning.
pub const LINK: &str = "[";

/// Puts Markdown together, at most as much as it was made for.
pub struct Writer {
    out: String,
    max: usize,
    prefixes: Vec<Prefix>,
    marks: Vec<Mark>,
    /// Line breaks that come before the next word; two are an empty line.
    breaks: usize,
    /// How many prefixes the empty line has.
    shared: usize,
    has_space: bool,
    is_first: bool,
}

impl Writer {
    pub fn new(max: usize) -> Self {
        Self {
            out: String::new(),
            max,
            prefixes: Vec::new(),
            marks: Vec::new(),
            breaks: 0,
            shared: 0,
            has_space: false,
            is_first: true,
        }
    }

    pub fn is_full(&self) -> bool {
        self.out.len() >= self.max
    }

    pub fn finish(mut self) -> String {
        self.close_marks();
        self.out
    }

    /// What is written from now on stands on a new line, after an empty one if `count` is two.
    pub fn line(&mut self, count: usize) {
        self.close_marks();
        self.has_space = false;
        self.shared = if self.breaks == 0 { self.prefixes.len() } else { self.shared.min(self.prefixes.len()) };
        // An item's first words stand beside its sign.
        let is_item = self.prefixes.last().is_some_and(|prefix| prefix.first.is_some());
        self.breaks = self.breaks.max(if is_item { 1 } else { count });
    }

    /// A line break that was written as one: two of them are an empty line.
    pub fn hard_line(&mut self) {
        let count = if self.is_first { 0 } else { (self.breaks + 1).min(2) };
        self.line(count);
    }

    pub fn indent(&mut self, first: Option<String>, rest: &str) {
        self.prefixes.push(Prefix { first, rest: rest.to_owned() });
    }

    pub fn outdent(&mut self) {
        self.prefixes.pop();
        self.shared = self.shared.min(self.prefixes.len());
    }

    pub fn depth(&self) -> usize {
        self.prefixes.len()
    }

    /// Words; each run of white space is one space.
    pub fn text(&mut self, text: &str) {
        let mut words = text.split(char::is_whitespace).peekable();
        while let Some(word) = words.next() {
            // Joiners alone are filling that is not to be seen.
            if word.chars().any(|c| !matches!(c, '\u{200c}' | '\u{200d}' | '\u{200e}' | '\u{200f}')) {
                self.word(word);
            }
            if words.peek().is_some() {
                self.has_space = true;
            }
        }
    }

    /// Something that stands as it is, without line breaks in it.
    pub fn word(&mut self, word: &str) {
        if self.is_full() {
            return;
        }
        self.begin();
        self.push(word);
    }

    /// A line of its own, exactly so.
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
            self.marks.push(Mark { sign, start: None });
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

    /// Ends a link. Its address stands behind its text unless it says the same; without a text there is no link.
    pub fn close_link(&mut self, address: Option<&str>) {
        let Some(start) = self.marks.pop().and_then(|mark| mark.start) else { return };
        let Some(inner) = self.out.get(start + LINK.len()..) else { return };
        let plain = |text: &str| {
            let text = text.trim().trim_end_matches('/').to_lowercase();
            let schemes = ["https://", "http://", "mailto:", "tel:"];
            schemes.iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(&text).to_owned()
        };
        let end = match address {
            Some(address) if plain(address) != plain(inner) => {
                if inner.contains('\n') {
                    Err(format!(" ({address})"))
                } else {
                    Ok(format!("]({address})"))
                }
            }
            _ => Err(String::new()),
        };
        match end {
            Ok(end) => self.out.push_str(&end),
            Err(end) => {
                self.out.remove(start);
                self.out.push_str(&end);
            }
        }
    }

    /// As much of it as there is room for.
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

    /// Emphasis does not go over the end of a line; a link does.
    fn close_marks(&mut self) {
        for mark in self.marks.iter_mut().rev().filter(|mark| mark.sign != LINK) {
            if mark.start.take().is_some() {
                self.out.push_str(mark.sign);
            }
        }
    }
}
