//! Removes quoted history and signatures from a mail's text.

use super::line_kinds::{LineKind, classify_lines};
use super::phrases::{is_request_about_text, is_rule};
use crate::sanitize::marker;

/// The line that replaces a quotation between two answers.
const OMITTED: &str = "[…]";

/// A mail's text, separated from quotations and signature.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StrippedText {
    pub text: String,
    /// Quoted history and signature.
    pub removed: String,
    /// The text contains another person's text: it forwards that text or asks for an action on it.
    pub is_forward: bool,
}

/// Removes quotations and the signature from a text. Keeps forwarded mail, a quotation that the author's last sentence asks
/// about, and everything in a mail without own text or that is not a reply. Below a slash command that is the only own text,
/// it removes all, since nobody reads it.
/// `is_forward_subject` is true if the subject marks a forwarded mail; `is_reply` is true if the header or the subject
/// marks a reply.
pub fn strip_quotes(text: &str, is_forward_subject: bool, is_reply: bool) -> StrippedText {
    let lines: Vec<&str> = text.split('\n').collect();
    let kinds = classify_lines(&lines, is_forward_subject);
    let is_forward = kinds.contains(&LineKind::Forwarded);
    let has_own_text = kinds.iter().any(|kind| matches!(kind, LineKind::Own | LineKind::Forwarded));
    if !has_own_text {
        // A mail that consists of a quotation is another person's text.
        let is_forward = kinds.contains(&LineKind::Quoted);
        return StrippedText { text: join_lines(lines.iter().copied()), removed: String::new(), is_forward };
    }
    let last = kinds.iter().rposition(|kind| *kind == LineKind::Own).unwrap_or(0);
    let is_command = is_command_alone(&lines, &kinds);
    // The first mail of a thread has no history.
    let is_reply = is_reply || is_command;
    let is_asked_for = !is_reply || (!is_command && asks_about_quote(&lines, &kinds, last));
    // A quoted person's text does not have the author's authority.
    let asks_about = |at: usize| kinds[at] == LineKind::Quoted && is_asked_for && (at > last || !is_reply);
    let is_forward = is_forward || (0..lines.len()).any(asks_about);
    let stays = |at: usize| match kinds[at] {
        LineKind::Own | LineKind::Forwarded | LineKind::Blank => true,
        LineKind::Quoted => asks_about(at),
        LineKind::Signature | LineKind::Marker => false,
    };
    let first = kinds.iter().position(|kind| *kind == LineKind::Own).unwrap_or(0);
    let is_between = |at: usize| kinds[at] == LineKind::Quoted && (first..last).contains(&at);
    let kept = (0..lines.len()).filter_map(|at| match stays(at) {
        true => Some(lines[at]),
        false => (is_between(at) && begins_block(&kinds[..at])).then_some(OMITTED),
    });
    let mut text = join_lines(kept);
    let removed = join_lines((0..lines.len()).filter(|at| !stays(*at)).map(|at| lines[at]));
    // Remove a rule that only separated the removed part.
    if !removed.is_empty() {
        while let Some(line) = text.lines().last().filter(|line| is_rule(line)) {
            text.truncate(text.len() - line.len());
            text.truncate(text.trim_end().len());
        }
    }
    StrippedText { text, removed, is_forward }
}

/// Returns true if the text begins with a slash command, and contains nothing else but quotations and a signature below it.
fn is_command_alone(lines: &[&str], kinds: &[LineKind]) -> bool {
    let is_name = |c: char| c.is_ascii_alphabetic() || c == '_' || c == '-';
    let is_command = |line: &str| {
        let name = line.trim().strip_prefix('/').and_then(|rest| rest.split_whitespace().next());
        name.is_some_and(|name| name.chars().all(is_name))
    };
    let mut texts = (0..kinds.len()).filter(|at| !matches!(kinds[*at], LineKind::Blank | LineKind::Marker));
    texts.next().is_some_and(|first| kinds[first] == LineKind::Own && is_command(lines[first]))
        && texts.all(|at| matches!(kinds[at], LineKind::Quoted | LineKind::Signature))
}

/// Returns true if the author's last text, which ends at line `last`, asks for an action on the quotation below it.
fn asks_about_quote(lines: &[&str], kinds: &[LineKind], last: usize) -> bool {
    let below = (last + 1..kinds.len()).find(|at| !matches!(kinds[*at], LineKind::Blank | LineKind::Marker));
    // Introductions and header fields come from a mail program and begin history; only `>` lines can be pasted.
    let is_pasted = below.is_some_and(|at| kinds[at] == LineKind::Quoted && lines[at].starts_with('>'));
    is_pasted && is_request_about_text(lines[last])
}

/// Returns true if a quoted line below these lines begins a quotation.
fn begins_block(above: &[LineKind]) -> bool {
    let is_text = |kind: &&LineKind| !matches!(kind, LineKind::Blank | LineKind::Marker);
    above.iter().rev().find(is_text) != Some(&LineKind::Quoted)
}

/// Joins lines; drops markers, repeated empty lines, and empty lines at both ends.
fn join_lines<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let mut out = String::new();
    let mut blanks = 0;
    for line in lines {
        let line = line.trim_end();
        if line.is_empty() {
            blanks += 1;
            continue;
        }
        if line.contains(|c| marker::ALL.contains(&c)) {
            continue;
        }
        if !out.is_empty() {
            out.push_str(if blanks > 0 { "\n\n" } else { "\n" });
        }
        blanks = 0;
        out.push_str(line);
    }
    out
}
