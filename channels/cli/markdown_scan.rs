//! Finds the part of streamed Markdown that later text cannot change. Own code because pulldown-cmark parses whole texts
//! and does not report which of its blocks and marks are final.

/// Returns the end of the first block of `text`, once no later text can belong to that block.
pub(super) fn block_end(text: &str) -> Option<usize> {
    let mut block = MarkdownBlock::default();
    let mut at = 0;
    let mut was_blank = false;
    for line in text.split_inclusive('\n') {
        let is_whole = line.ends_with('\n');
        if line.trim().is_empty() && block.fence.is_none() {
            if is_whole && block.has_begun {
                if !block.is_list {
                    return Some(at + line.len());
                }
                was_blank = true;
            }
        } else {
            // After a blank line, a list item continues only with an indented line.
            let is_indented = line.starts_with("  ") || line.starts_with('\t');
            let ends_list = std::mem::take(&mut was_blank) && !is_indented;
            let ends_text = block.has_begun && block.fence.is_none() && !block.is_list && block.ends_before(line);
            if ends_list || ends_text {
                return Some(at);
            }
            if !is_whole {
                return None;
            }
            if block.take(line) {
                return Some(at + line.len());
            }
        }
        at += line.len();
    }
    None
}

#[derive(Clone, Copy, Default)]
struct MarkdownBlock {
    has_begun: bool,
    is_list: bool,
    is_quote: bool,
    /// The character and length of the open code fence.
    fence: Option<(char, usize)>,
}

impl MarkdownBlock {
    /// Adds a whole line; returns true if it ends the block.
    fn take(&mut self, line: &str) -> bool {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let trimmed = line.trim();
        match (self.fence, fence_of(trimmed)) {
            (Some((c, open)), Some((d, length))) if c == d && length >= open && trimmed.chars().all(|e| e == c) => {
                self.fence = None;
                return !self.is_list;
            }
            (Some(_), _) => return false,
            (None, fence @ Some(_)) => {
                self.fence = fence;
                return false;
            }
            (None, None) => {}
        }
        if is_first {
            self.is_list = is_item(line);
            self.is_quote = is_quote(line);
            return is_heading(line) || is_rule(line);
        }
        false
    }

    /// Returns true if a line, which may be incomplete, cannot continue this paragraph or quote.
    fn ends_before(&self, line: &str) -> bool {
        // A rule, fence or bullet that is not complete yet may become anything.
        let is_clear = line.ends_with('\n') || line.contains(char::is_alphabetic);
        let begins = is_heading(line) || is_item(line) || (is_quote(line) && !self.is_quote);
        let begins_whole = is_rule(line) || fence_of(line.trim()).is_some();
        (is_clear && begins) || (line.ends_with('\n') && begins_whole)
    }
}

fn is_quote(line: &str) -> bool {
    line.trim_start().starts_with('>')
}

/// Returns true if this line starts a list item or a heading; marks opened before such a line stay open.
fn begins_text(line: &str) -> bool {
    let line = line.trim_start_matches([' ', '>']);
    is_heading(line) || is_item(line)
}

pub(super) fn is_heading(line: &str) -> bool {
    let hashes = line.chars().take_while(|c| *c == '#').count();
    (1..=6).contains(&hashes) && line[hashes..].starts_with([' ', '\n'])
}

/// Returns true for a rule, or for the underline of a heading, which models use as a rule.
fn is_rule(line: &str) -> bool {
    let marks = line.trim();
    marks.len() >= 3 && ["-", "=", "*", "_"].iter().any(|mark| marks.replace(mark, "").is_empty())
}

fn is_item(line: &str) -> bool {
    let line = line.trim_start();
    let digits = line.chars().take_while(char::is_ascii_digit).count();
    let rest = match digits {
        0 => line.strip_prefix(['-', '*', '+']),
        1..=9 => line[digits..].strip_prefix(['.', ')']),
        _ => None,
    };
    rest.is_some_and(|rest| rest.starts_with([' ', '\t', '\n']))
}

fn fence_of(line: &str) -> Option<(char, usize)> {
    let c = line.chars().next().filter(|c| *c == '`' || *c == '~')?;
    let length = line.chars().take_while(|d| *d == c).count();
    let is_fence = length >= 3 && (c == '~' || !line[length..].contains('`'));
    is_fence.then_some((c, length))
}

/// Returns the end of the part of an open block that no later text can change. That part ends before the first open mark,
/// an incomplete line, or a possible table.
pub(super) fn final_end(text: &str) -> usize {
    let mut fence: Option<(char, usize)> = None;
    let mut block = MarkdownBlock::default();
    // The start of the running text, and the position of the scan.
    let (mut from, mut at) = (0, 0);
    for line in text.split_inclusive('\n') {
        let is_whole = line.ends_with('\n');
        // The line may be an incomplete bullet, rule or fence.
        let is_unclear = !is_whole && (fence.is_some() || !line.contains(char::is_alphabetic));
        if is_unclear || (fence.is_none() && line.contains('|')) {
            break;
        }
        if fence.is_none() && block.has_begun && !block.is_list && block.ends_before(line) {
            break;
        }
        if fence.is_none() && begins_text(line) {
            from = at;
        }
        if !block.has_begun && !line.trim().is_empty() {
            block.take(line);
        }
        let mark = fence_of(line.trim());
        at += line.len();
        match (fence, mark) {
            (Some((c, length)), Some((d, long))) if c == d && long >= length => (fence, from) = (None, at),
            (Some(_), _) => from = at,
            (None, Some(_)) => {
                let steady = from + final_inline(&text[from..at - line.len()]);
                if steady < at - line.len() {
                    return steady;
                }
                (fence, from) = (mark, at);
            }
            (None, None) => {}
        }
    }
    from + final_inline(&text[from..at])
}

/// Returns the end of the part of a running text that has no open mark.
fn final_inline(text: &str) -> usize {
    let chars: Vec<(usize, char)> = text.char_indices().collect();
    let mut i = 0;
    let mut marks: Vec<(char, usize)> = Vec::new();
    let mut steady = 0;
    while i < chars.len() {
        if marks.is_empty() {
            steady = chars[i].0;
        }
        let c = chars[i].1;
        let run = chars[i..].iter().take_while(|(_, d)| *d == c).count();
        let after = chars.get(i + run).map(|(_, c)| *c);
        let before = i.checked_sub(1).map(|before| chars[before].1);
        i = match c {
            '\\' if after.is_some() => i + 2,
            '`' => match closing_run(&chars, i + run, run) {
                Some(end) => end,
                None => return steady,
            },
            '*' | '_' | '~' => match after {
                None => return steady,
                Some(after) => {
                    mark(&mut marks, (c, run), before, after);
                    i + run
                }
            },
            '[' => match link_end(&chars, i) {
                Some(end) => end,
                None => return steady,
            },
            '<' if after.is_none_or(|c| c.is_alphanumeric() || c == '/' || c == '!') => {
                match chars[i..].iter().position(|(_, c)| *c == '>') {
                    Some(end) => i + end + 1,
                    None => return steady,
                }
            }
            '&' => match chars[i + 1..].iter().take(32).position(|(_, c)| !c.is_ascii_alphanumeric() && *c != '#') {
                Some(end) => i + end + 1,
                None if chars.len() - i > 32 => i + 1,
                None => return steady,
            },
            '\\' => return steady,
            // The whole run at once: a step for each character would take quadratic time.
            _ => i + run,
        };
    }
    if marks.is_empty() { text.len() } else { steady }
}

fn mark(marks: &mut Vec<(char, usize)>, this: (char, usize), before: Option<char>, after: char) {
    let space_before = before.is_none_or(char::is_whitespace);
    let space_after = after.is_whitespace();
    let in_word = this.0 == '_' && before.is_some_and(char::is_alphanumeric) && after.is_alphanumeric();
    if (space_before && space_after) || in_word {
        return;
    }
    if !space_before && marks.last() == Some(&this) {
        marks.pop();
    } else {
        marks.push(this);
    }
}

/// Returns the position after the run of `length` backticks that closes inline code.
fn closing_run(chars: &[(usize, char)], from: usize, length: usize) -> Option<usize> {
    let mut i = from;
    while i < chars.len() {
        let run = chars[i..].iter().take_while(|(_, c)| *c == '`').count();
        if run == length && i + run < chars.len() {
            return Some(i + run);
        }
        i += run.max(1);
    }
    None
}

/// Returns the position after `[…]` or `[…](…)`.
fn link_end(chars: &[(usize, char)], from: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut i = from;
    while i < chars.len() {
        match chars[i].1 {
            '\\' => i += 1,
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        i += 1;
        if depth == 0 {
            return match chars.get(i)?.1 {
                '(' => match chars[i..].iter().position(|(_, c)| matches!(c, ')' | '\n'))? {
                    end if chars[i + end].1 == ')' => Some(i + end + 1),
                    _ => Some(i),
                },
                _ => Some(i),
            };
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_end_where_the_next_begins() {
        let table: &[(&str, Option<&str>)] = &[
            ("text", None),
            ("text\n", None),
            ("text\nmore\n\n", Some("text\nmore\n\n")),
            ("text\n# Head\n", Some("text\n")),
            ("text\n---\n", Some("text\n")),
            ("# Head\n", Some("# Head\n")),
            ("text\n- item\n", Some("text\n")),
            ("text\n- it", Some("text\n")),
            ("text\n- ", None),
            ("text\n> quote\n", Some("text\n")),
            ("> quote\n> more\n", None),
            ("```\na\n\nb\n", None),
            ("```\na\n\nb\n```\n", Some("```\na\n\nb\n```\n")),
            ("````\n```\n", None),
            ("- a\n- b\n\n", None),
            ("- a\n\n- b", Some("- a\n\n")),
            ("- a\n\n  more\n", None),
            ("- a\n\n  more\n\nend", Some("- a\n\n  more\n\n")),
            ("1. a\n   ```\n   x\n\n   y\n   ```\n", None),
            ("\n\ntext\n\n", Some("\n\ntext\n\n")),
        ];
        for (text, expected) in table {
            assert_eq!(block_end(text).map(|end| &text[..end]), *expected, "{text:?}");
        }
    }

    #[test]
    fn open_marks_hold_back_what_follows() {
        let table: &[(&str, &str)] = &[
            ("plain text", "plain text"),
            ("a **b", "a "),
            ("a **b** c", "a **b** c"),
            ("a * b = 6", "a * b = 6"),
            ("snake_case_name here", "snake_case_name here"),
            ("a `code", "a "),
            ("a `code` b", "a `code` b"),
            ("see [text](http", "see "),
            ("see [text](http://x) now", "see [text](http://x) now"),
            ("a <b", "a "),
            ("a < b", "a < b"),
            ("x &am", "x "),
            ("a *b\nc* d\n", "a *b\nc* d\n"),
            ("text\n- ", "text\n"),
            ("a | b\n", ""),
            ("```\ncode `\nmore", "```\ncode `\n"),
            ("text *", "text "),
            ("- a `b\n- c` d", "- a `b\n- c"),
            ("text\n- item", "text\n"),
        ];
        for (text, expected) in table {
            assert_eq!(&text[..final_end(text)], *expected, "{text:?}");
        }
    }

    #[test]
    fn a_long_run_of_one_character_is_scanned_once() {
        let run = "=".repeat(2_000_000);
        assert_eq!(final_inline(&run), run.len());
        assert_eq!(final_inline(&format!("{run}*a")), run.len());
    }
}
