//! Classifies the lines of a mail's text.

use super::phrases::{
    is_closing, is_contact, is_field_block, is_footer, is_forward_line, is_original_line, is_rule, is_sentence,
    parse_introduction,
};
use crate::sanitize::marker;

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// The author's own text.
    Own,
    Blank,
    Quoted,
    Signature,
    /// Part of a forwarded mail.
    Forwarded,
    /// One of [`marker`], which is not text.
    Marker,
}

/// Classifies each line. `is_forward_subject` means that the first mail below is forwarded and not answered.
pub fn classify_lines(lines: &[&str], is_forward_subject: bool) -> Vec<LineKind> {
    let mut classifier = LineClassifier {
        lines,
        kinds: Vec::with_capacity(lines.len()),
        is_forward_subject,
        in_quote: false,
        in_signature: false,
    };
    while let Some(line) = lines.get(classifier.kinds.len()) {
        classifier.classify_next(line);
    }
    let mut kinds = classifier.kinds;
    mark_signatures(lines, &mut kinds);
    kinds
}

struct LineClassifier<'a> {
    lines: &'a [&'a str],
    kinds: Vec<LineKind>,
    is_forward_subject: bool,
    /// True inside a quotation between markers.
    in_quote: bool,
    /// True inside a signature between markers.
    in_signature: bool,
}

impl LineClassifier<'_> {
    /// Classifies the next line, or several lines.
    fn classify_next(&mut self, line: &str) {
        let at = self.kinds.len();
        let rest = &self.lines[at..];
        let mark = line.trim_start_matches(['>', ' ']).chars().next().filter(|c| marker::ALL.contains(c));
        match mark {
            Some(marker::QUOTE) if announces_forward(&rest[1..]) => return self.classify_rest(LineKind::Forwarded),
            Some(marker::QUOTE) => {
                self.in_quote = true;
                return self.kinds.push(LineKind::Marker);
            }
            Some(marker::HISTORY) => return self.classify_history(),
            Some(c) => {
                self.in_quote &= c != marker::QUOTE_END;
                self.in_signature = c == marker::SIGNATURE;
                return self.kinds.push(LineKind::Marker);
            }
            None => {}
        }
        if self.in_quote {
            return self.kinds.push(LineKind::Quoted);
        }
        if line.trim().is_empty() {
            return self.kinds.push(LineKind::Blank);
        }
        if self.in_signature {
            return self.kinds.push(LineKind::Signature);
        }
        let begins_quote = line.starts_with('>') && self.kinds.last() != Some(&LineKind::Quoted);
        if is_forward_line(line) || (begins_quote && announces_forward(rest)) {
            return self.classify_rest(LineKind::Forwarded);
        }
        if line.starts_with('>') {
            return self.kinds.push(LineKind::Quoted);
        }
        if is_original_line(line) || is_field_block(rest) {
            return self.classify_history();
        }
        match parse_introduction(rest) {
            Some((count, is_certain)) => {
                let next = rest[count..].iter().find(|line| !line.trim().is_empty());
                let is_quote = next.is_some_and(|next| next.starts_with(['>', marker::QUOTE]));
                if is_quote {
                    self.kinds.extend(std::iter::repeat_n(LineKind::Quoted, count));
                } else if is_certain && next.is_some() {
                    self.classify_history();
                } else {
                    self.kinds.push(LineKind::Own);
                }
            }
            None => self.kinds.push(LineKind::Own),
        }
    }

    /// Classifies all remaining lines as history or as a forwarded mail.
    fn classify_history(&mut self) {
        let is_first = !self.kinds.contains(&LineKind::Quoted);
        if self.is_forward_subject && is_first {
            return self.classify_rest(LineKind::Forwarded);
        }
        // A horizontal rule above the history belongs to it.
        for at in (0..self.kinds.len()).rev() {
            match self.kinds[at] {
                LineKind::Blank | LineKind::Marker => {}
                LineKind::Own if is_rule(self.lines[at]) => self.kinds[at] = LineKind::Quoted,
                _ => break,
            }
        }
        self.classify_rest(LineKind::Quoted);
    }

    fn classify_rest(&mut self, kind: LineKind) {
        let lines = &self.lines[self.kinds.len()..];
        self.kinds.extend(lines.iter().map(|line| {
            let is_marker = line.trim_start_matches(['>', ' ']).starts_with(|c| marker::ALL.contains(&c));
            if is_marker { LineKind::Marker } else { kind }
        }));
    }
}

/// Returns true if the first line of a quotation announces a forwarded mail.
fn announces_forward(lines: &[&str]) -> bool {
    let mut lines = lines.iter().map(|line| line.trim_start_matches(['>', ' ']));
    lines.find(|line| !line.trim().is_empty()).is_some_and(is_forward_line)
}

/// Marks the signature at the end of each run of own lines.
fn mark_signatures(lines: &[&str], kinds: &mut [LineKind]) {
    let is_own = |kind: &LineKind| matches!(kind, LineKind::Own | LineKind::Blank);
    let mut start = 0;
    while start < kinds.len() {
        let length = kinds[start..].iter().take_while(|kind| is_own(kind)).count();
        let own = start..start + length;
        let from = signature_start(&lines[own.clone()]);
        for at in own.clone().skip(from) {
            if kinds[at] == LineKind::Own {
                kinds[at] = LineKind::Signature;
            }
        }
        start = own.end + 1;
    }
}

/// Returns the position where the signature of these lines begins, or the number of lines if there is none.
fn signature_start(lines: &[&str]) -> usize {
    /// The longest signature, in lines. A longer one is ordinary text below two dashes.
    const MAX_SIGNATURE: usize = 25;
    let mut end = lines.len();
    // RFC 3676, section 4.3; many programs drop the space.
    let is_separator = |line: &str| line == "-- " || line == "--" || line == "\u{2014} " || line == "-- \u{a0}";
    let tail = lines.len().saturating_sub(MAX_SIGNATURE);
    if let Some(at) = lines[tail..].iter().position(|line| is_separator(line)) {
        // Without the space, the line may be a rule inside the text.
        let is_rule = lines[tail + at] == "--" && lines[tail + at..].iter().any(|line| is_sentence(line));
        end = if is_rule { end } else { tail + at };
    }
    end = end.min(after_closing(&lines[..end]));
    for _ in 0..4 {
        let Some(last) = lines[..end].iter().rposition(|line| !line.trim().is_empty() && !is_frame(line)) else {
            break;
        };
        if !is_footer(lines[last]) {
            break;
        }
        end = last;
        // NetEase Mail Master writes a contact card, framed with bars, above its line.
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

/// Returns the position where the contact details below a closing formula and a name begin, or the number of lines.
fn after_closing(lines: &[&str]) -> usize {
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

/// Returns true for `| |` and the like.
fn is_frame(line: &str) -> bool {
    line.contains('|') && line.chars().all(|c| c == '|' || c == '-' || c.is_whitespace())
}
