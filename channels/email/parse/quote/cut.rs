//! Decides what of a mail is cut.

use super::lines::{Line, kinds};
use crate::email::parse::clean::mark;

/// A quotation of at most so many lines with an answer below it stays: the answer may not be understood without it.
const SHORT_QUOTE: usize = 12;

/// A mail's text in two parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    pub text: String,
    /// Quoted history and signature.
    pub cut: String,
    /// Somebody else's words stand in the text: it hands them on, or asks for something to be done with them.
    pub is_forward: bool,
}

/// Cuts quoted history and the signature from a text. What is answered piece by piece stays with its quotations, what is
/// handed on stays, what the writer's last words ask for, and all of a mail that says nothing else or answers none. `hands_on`: the
/// subject says that it forwards; `answers`: header or subject say that it answers a mail.
pub fn cut(text: &str, hands_on: bool, answers: bool) -> Cut {
    let lines: Vec<&str> = text.split('\n').collect();
    let kinds = kinds(&lines, hands_on);
    let is_forward = kinds.contains(&Line::Forwarded);
    let has_word = kinds.iter().any(|kind| matches!(kind, Line::Own | Line::Forwarded));
    if !has_word {
        return Cut { text: joined(lines.iter().copied()), ..Cut::default() };
    }
    let last = kinds.iter().rposition(|kind| *kind == Line::Own).unwrap_or(0);
    let answered = blocks(&kinds[..last]);
    let keep = answered.len() >= 2 || answered.iter().all(|block| block.len() <= SHORT_QUOTE);
    // In the first mail of a thread nothing is history.
    let is_asked_for = !answers || asks_for_quote(&lines, &kinds, last);
    // Who quotes a stranger gives no order in the stranger's words.
    let asks_about = |at: usize| kinds[at] == Line::Quoted && is_asked_for && (at > last || !answers);
    let is_forward = is_forward || (0..lines.len()).any(asks_about);
    let stays = |at: usize| match kinds[at] {
        Line::Own | Line::Forwarded | Line::Blank => true,
        Line::Quoted => (keep && at < last) || asks_about(at),
        Line::Signature | Line::Mark => false,
    };
    let part =
        |kept: bool| joined(lines.iter().enumerate().filter(|(at, _)| stays(*at) == kept).map(|(_, line)| *line));
    let (mut text, cut) = (part(true), part(false));
    // A rule that only set off what was cut.
    if !cut.is_empty() {
        while let Some(line) = text.lines().last().filter(|line| super::phrases::is_rule(line)) {
            text.truncate(text.len() - line.len());
            text.truncate(text.trim_end().len());
        }
    }
    Cut { text, cut, is_forward }
}

/// Whether the writer's last words, which end at line `last`, ask for something to be done with the quotation right below them.
fn asks_for_quote(lines: &[&str], kinds: &[Line], last: usize) -> bool {
    let below = (last + 1..kinds.len()).find(|at| !matches!(kinds[*at], Line::Blank | Line::Mark));
    // A line that says who wrote it, or fields, are a program's: so begins history.
    let is_pasted = below.is_some_and(|at| kinds[at] == Line::Quoted && lines[at].starts_with('>'));
    is_pasted && super::phrases::asks_for_text(lines[last])
}

/// The stretches of quoted lines.
fn blocks(kinds: &[Line]) -> Vec<std::ops::Range<usize>> {
    let mut blocks: Vec<std::ops::Range<usize>> = Vec::new();
    let mut is_open = false;
    for (at, kind) in kinds.iter().enumerate() {
        match kind {
            Line::Quoted => match blocks.last_mut() {
                Some(block) if is_open => block.end = at + 1,
                _ => {
                    blocks.push(at..at + 1);
                    is_open = true;
                }
            },
            Line::Own | Line::Signature => is_open = false,
            Line::Blank | Line::Mark | Line::Forwarded => {}
        }
    }
    blocks
}

/// Lines as a text: no more than one empty line after another, none at the ends, no marks.
fn joined<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let mut out = String::new();
    let mut blanks = 0;
    for line in lines {
        let line = line.trim_end();
        if line.is_empty() {
            blanks += 1;
            continue;
        }
        if line.contains(|c| mark::ALL.contains(&c)) {
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
