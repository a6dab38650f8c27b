//! What each line of a mail's text is.

use super::phrases::{
    introduction, is_closing, is_contact, is_field_block, is_footer, is_forward, is_original, is_rule, is_sentence,
};
use crate::email::parse::clean::mark;

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// The writer's word.
    Own,
    Blank,
    Quoted,
    Signature,
    /// Of a mail that is handed on.
    Forwarded,
    /// One of [`mark`]: no text.
    Mark,
}

/// Says of each line what it is. With `hands_on` the subject says that the first mail below is forwarded, not answered.
pub fn kinds(lines: &[&str], hands_on: bool) -> Vec<Line> {
    let mut reading =
        Reading { lines, kinds: Vec::with_capacity(lines.len()), hands_on, quote: false, signature: false };
    while let Some(line) = lines.get(reading.kinds.len()) {
        reading.line(line);
    }
    let mut kinds = reading.kinds;
    signatures(lines, &mut kinds);
    kinds
}

struct Reading<'a> {
    lines: &'a [&'a str],
    kinds: Vec<Line>,
    hands_on: bool,
    /// Inside of what a program marked as a quotation.
    quote: bool,
    /// Inside of what a program marked as a signature.
    signature: bool,
}

impl Reading<'_> {
    /// Decides about the next line, or more.
    fn line(&mut self, line: &str) {
        let at = self.kinds.len();
        let rest = &self.lines[at..];
        let only = line.trim_start_matches(['>', ' ']).chars().next().filter(|c| mark::ALL.contains(c));
        match only {
            Some(mark::QUOTE) => {
                match self.announced(&rest[1..]) {
                    Some(Line::Forwarded) => return self.rest(Line::Forwarded),
                    _ => self.quote = true,
                }
                return self.kinds.push(Line::Mark);
            }
            Some(mark::HISTORY) => return self.history(),
            Some(c) => {
                self.quote &= c != mark::QUOTE_END;
                self.signature = c == mark::SIGNATURE;
                return self.kinds.push(Line::Mark);
            }
            None => {}
        }
        if self.quote {
            return self.kinds.push(Line::Quoted);
        }
        if line.trim().is_empty() {
            return self.kinds.push(Line::Blank);
        }
        if self.signature {
            return self.kinds.push(Line::Signature);
        }
        let begins_quote = line.starts_with('>') && self.kinds.last() != Some(&Line::Quoted);
        if is_forward(line) || (begins_quote && self.announced(rest) == Some(Line::Forwarded)) {
            return self.rest(Line::Forwarded);
        }
        if line.starts_with('>') {
            return self.kinds.push(Line::Quoted);
        }
        if is_original(line) || is_field_block(rest) {
            return self.history();
        }
        match introduction(rest) {
            Some((count, is_certain)) => {
                let next = rest[count..].iter().find(|line| !line.trim().is_empty());
                let is_quote = next.is_some_and(|next| next.starts_with(['>', mark::QUOTE]));
                if is_quote {
                    self.kinds.extend(std::iter::repeat_n(Line::Quoted, count));
                } else if is_certain && next.is_some() {
                    self.history();
                } else {
                    self.kinds.push(Line::Own);
                }
            }
            None => self.kinds.push(Line::Own),
        }
    }

    /// What the first line of a quotation announces.
    fn announced(&self, lines: &[&str]) -> Option<Line> {
        let first =
            lines.iter().map(|line| line.trim_start_matches(['>', ' '])).find(|line| !line.trim().is_empty())?;
        is_forward(first).then_some(Line::Forwarded)
    }

    /// From here on everything is history, or what is handed on.
    fn history(&mut self) {
        let is_first = !self.kinds.contains(&Line::Quoted);
        if self.hands_on && is_first {
            return self.rest(Line::Forwarded);
        }
        // The rule above it belongs to it.
        for at in (0..self.kinds.len()).rev() {
            match self.kinds[at] {
                Line::Blank | Line::Mark => {}
                Line::Own if is_rule(self.lines[at]) => self.kinds[at] = Line::Quoted,
                _ => break,
            }
        }
        self.rest(Line::Quoted);
    }

    fn rest(&mut self, kind: Line) {
        let lines = &self.lines[self.kinds.len()..];
        self.kinds.extend(lines.iter().map(|line| {
            let is_mark = line.trim_start_matches(['>', ' ']).starts_with(|c| mark::ALL.contains(&c));
            if is_mark { Line::Mark } else { kind }
        }));
    }
}

/// Finds the signature at the end of each stretch of the writer's own lines.
fn signatures(lines: &[&str], kinds: &mut [Line]) {
    let is_own = |kind: &Line| matches!(kind, Line::Own | Line::Blank);
    let mut start = 0;
    while start < kinds.len() {
        let length = kinds[start..].iter().take_while(|kind| is_own(kind)).count();
        let own = start..start + length;
        let from = signature(&lines[own.clone()]);
        for at in own.clone().skip(from) {
            if kinds[at] == Line::Own {
                kinds[at] = Line::Signature;
            }
        }
        start = own.end + 1;
    }
}

/// Where the signature of these lines begins; their number if there is none.
fn signature(lines: &[&str]) -> usize {
    /// A longer one is text under a line of two dashes.
    const MAX_SIGNATURE: usize = 25;
    let mut end = lines.len();
    // RFC 3676, section 4.3; many programs lose the space.
    let begins = |line: &str| line == "-- " || line == "--" || line == "\u{2014} " || line == "-- \u{a0}";
    let tail = lines.len().saturating_sub(MAX_SIGNATURE);
    if let Some(at) = lines[tail..].iter().position(|line| begins(line)) {
        // Without the space it may be a rule in the middle of a text.
        let is_rule = lines[tail + at] == "--" && lines[tail + at..].iter().any(|line| is_sentence(line));
        end = if is_rule { end } else { tail + at };
    }
    end = end.min(below_closing(&lines[..end]));
    for _ in 0..4 {
        let Some(last) = lines[..end].iter().rposition(|line| !line.trim().is_empty() && !is_frame(line)) else {
            break;
        };
        if !is_footer(lines[last]) {
            break;
        }
        end = last;
        // The card of NetEase's program stands above its line, in a frame of bars.
        if lines[last].contains("网易邮箱大师") {
            let above = last.saturating_sub(12);
            if let Some(frame) = lines[above..last].iter().position(|line| is_frame(line)) {
                end = above + frame;
            }
        }
        end = lines[..end].iter().rposition(|line| !line.trim().is_empty() && !is_frame(line)).map_or(0, |at| at + 1);
    }
    end
}

/// Where what stands below a closing formula and a name begins, if that tells how somebody is reached.
fn below_closing(lines: &[&str]) -> usize {
    const MAX_LINES: usize = 12;
    let tail = lines.len().saturating_sub(MAX_LINES);
    let Some(closing) = lines[tail..].iter().rposition(|line| is_closing(line)).map(|at| tail + at) else {
        return lines.len();
    };
    let Some(name) = (closing + 1..lines.len()).find(|at| !lines[*at].trim().is_empty()) else { return lines.len() };
    let below = &lines[name + 1..];
    let is_signature = below.iter().any(|line| is_contact(line)) && !below.iter().any(|line| is_sentence(line));
    if is_signature && !is_contact(lines[name]) { name + 1 } else { lines.len() }
}

/// `| |` and the like.
fn is_frame(line: &str) -> bool {
    line.contains('|') && line.chars().all(|c| c == '|' || c == '-' || c.is_whitespace())
}
