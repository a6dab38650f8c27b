//! Parses and edits the text of MEMORY.md: finds, removes and adds bullets, and keeps all else byte for byte.

use std::ops::Range;

use crate::memory::MemoryOwner;
use crate::text::one_line;

/// A bullet, with the lines that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bullet {
    /// The range of its whole lines, in bytes.
    pub range: Range<usize>,
    /// The owner that the heading above it names.
    pub owner: MemoryOwner,
    /// The text on one line, without the bullet mark.
    pub text: String,
}

/// The headings above private bullets. Such a heading alone means the gateway's owner; a colon and a name after it mean the
/// person with that name.
const PRIVATE: [&str; 2] = ["Private", "私人"];

/// Returns the bullets of a text, in order, without those in code and in comments. `owner_of` returns the owner that a name in
/// a heading means.
pub fn parse_bullets(text: &str, owner_of: impl Fn(&str) -> MemoryOwner) -> Vec<Bullet> {
    parse(text, owner_of).0
}

/// Removes these ranges from a text.
pub fn remove_ranges(text: &str, ranges: &[Range<usize>]) -> String {
    let mut left = String::with_capacity(text.len());
    let mut at = 0;
    let mut ranges = ranges.to_vec();
    ranges.sort_by_key(|range| range.start);
    for range in ranges {
        left.push_str(&text[at..range.start.max(at)]);
        at = range.end.max(at);
    }
    left.push_str(&text[at..]);
    left
}

/// Adds bullets after those of the same owner. `heading` begins a new section if the owner has none. The section of the
/// gateway's owner stays last, so that the owner can append a bullet at the end of the file.
pub fn insert_bullets(
    text: &str,
    owner: &MemoryOwner,
    more: &[String],
    heading: &str,
    owner_of: impl Fn(&str) -> MemoryOwner,
) -> String {
    if more.is_empty() {
        return text.to_owned();
    }
    let eol = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let (bullets, headings) = parse(text, owner_of);
    let heading_of =
        |owner: &MemoryOwner| headings.iter().find(|heading| heading.0 == *owner).map(|heading| &heading.1);
    let last = bullets.iter().rfind(|bullet| bullet.owner == *owner).map(|bullet| bullet.range.end);
    let lines: String = more.iter().map(|line| format!("- {line}{eol}")).collect();
    let section = format!("## {heading}{eol}{eol}{lines}");
    let (at, lines) = match (last, heading_of(owner)) {
        (Some(at), _) => (at, lines),
        (None, Some(own)) => (own.end, format!("{eol}{lines}")),
        (None, None) if *owner == MemoryOwner::everyone() => match headings.first() {
            Some((_, first)) => (first.start, format!("{lines}{eol}")),
            None => (text.len(), format!("{eol}{lines}")),
        },
        (None, None) => match heading_of(&MemoryOwner::gateway()).filter(|_| *owner != MemoryOwner::gateway()) {
            Some(private) => (private.start, format!("{section}{eol}")),
            None => (text.len(), format!("{eol}{section}")),
        },
    };
    let (before, after) = text.split_at(at);
    let break_before = if before.is_empty() || before.ends_with('\n') { "" } else { eol };
    format!("{before}{break_before}{lines}{after}")
}

/// Returns the bullets, and the headings of private sections.
fn parse(text: &str, owner_of: impl Fn(&str) -> MemoryOwner) -> (Vec<Bullet>, Vec<(MemoryOwner, Range<usize>)>) {
    let mut bullets: Vec<Bullet> = Vec::new();
    let mut headings: Vec<(MemoryOwner, Range<usize>)> = Vec::new();
    let mut owner = MemoryOwner::everyone();
    let (mut fence, mut is_comment, mut is_open) = (None::<&str>, false, false);
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let range = at..at + line.len();
        at = range.end;
        let words = line.trim();
        let was_open = std::mem::replace(&mut is_open, false);
        if is_comment {
            is_comment = !words.contains("-->");
        } else if let Some(mark) = fence {
            if words.starts_with(mark) {
                fence = None;
            }
        } else if let Some(mark) = ["```", "~~~"].into_iter().find(|mark| words.starts_with(mark)) {
            fence = Some(mark);
        } else if words.starts_with("<!--") {
            is_comment = !words.contains("-->");
        } else if words.starts_with('#') {
            if let Some(name) = private_heading(words.trim_matches(['#', ' '])) {
                owner = if name.is_empty() { MemoryOwner::gateway() } else { owner_of(name) };
                headings.push((owner.clone(), range));
            }
        } else if let Some(text) = bullet_text(words) {
            bullets.push(Bullet { range, owner: owner.clone(), text: one_line(text) });
            is_open = true;
        } else if let Some(last) = bullets.last_mut().filter(|_| was_open && is_indented(line)) {
            last.range.end = range.end;
            last.text = one_line(&format!("{} {words}", last.text));
            is_open = true;
        }
    }
    (bullets, headings)
}

/// Returns the owner that a heading names: empty for the gateway's owner, `None` if it is not a private heading.
fn private_heading(title: &str) -> Option<&str> {
    let rest = PRIVATE.iter().find_map(|word| {
        let (start, rest) = title.split_at_checked(word.len())?;
        start.eq_ignore_ascii_case(word).then_some(rest)
    })?;
    if rest.is_empty() {
        return Some(rest);
    }
    rest.trim_start().strip_prefix([':', '：']).map(str::trim)
}

fn bullet_text(words: &str) -> Option<&str> {
    ["- ", "* ", "+ "].iter().find_map(|mark| words.strip_prefix(mark)).filter(|text| !text.trim().is_empty())
}

fn is_indented(line: &str) -> bool {
    (line.starts_with("  ") || line.starts_with('\t')) && !line.trim().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Memory\r\n\r\nHello\r\n- one\r\n  goes on\r\n* two\r\n<!-- - none\r\n- none -->\r\n```\r\n- none\r\n```\r\n\
                        ## private\r\n\r\n- three\r\n\r\nafter";

    fn owner_of(name: &str) -> MemoryOwner {
        MemoryOwner::named(name)
    }

    #[test]
    fn only_bullets_are_parsed() {
        let page = format!(
            "{PAGE}\n### Hobbies\n- four\n## 私人： ann\n- five\n# Private:  bob #\n+ six\n## Privateer\n- seven"
        );
        let found: Vec<_> =
            parse_bullets(&page, owner_of).into_iter().map(|bullet| (bullet.text, bullet.owner)).collect();
        let (ann, bob) = (MemoryOwner::named("ann"), MemoryOwner::named("bob"));
        let expected = [
            ("one goes on", MemoryOwner::everyone()),
            ("two", MemoryOwner::everyone()),
            ("three", MemoryOwner::gateway()),
            ("four", MemoryOwner::gateway()),
            ("five", ann),
            ("six", bob.clone()),
            ("seven", bob),
        ];
        assert_eq!(found, expected.map(|(text, owner)| (text.to_owned(), owner)));
        for nothing in ["", "-", "- ", "---", "-x", "# - x", "text\n  more"] {
            assert_eq!(parse_bullets(nothing, owner_of), [], "{nothing:?}");
        }
    }

    #[test]
    fn edits_keep_all_else_byte_for_byte() {
        let all = parse_bullets(PAGE, owner_of);
        assert_eq!(
            remove_ranges(PAGE, &[all[0].range.clone(), all[2].range.clone()]),
            PAGE.replace("- one\r\n  goes on\r\n", "").replace("- three\r\n", "")
        );
        let (everyone, own, ann) = (MemoryOwner::everyone(), MemoryOwner::gateway(), MemoryOwner::named("ann"));
        let more = insert_bullets(PAGE, &everyone, &["four".to_owned()], "", owner_of);
        let more = insert_bullets(&more, &own, &["five".to_owned()], "Private", owner_of);
        let expected = PAGE.replace("* two\r\n", "* two\r\n- four\r\n").replace("- three\r\n", "- three\r\n- five\r\n");
        assert_eq!(more, expected);
        let more = insert_bullets(&more, &ann, &["six".to_owned()], "Private: ann", owner_of);
        assert_eq!(more, expected.replace("## private", "## Private: ann\r\n\r\n- six\r\n\r\n## private"));
        for (text, owner, expected) in [
            ("", &everyone, "\n- x\n"),
            ("# M\n", &everyone, "# M\n\n- x\n"),
            ("# M", &own, "# M\n\n## 私人\n\n- x\n"),
            ("a\n## 私人\nb", &everyone, "a\n- x\n\n## 私人\nb"),
            ("a\n## 私人: ann\n- y\n## 私人\nb", &everyone, "a\n- x\n\n## 私人: ann\n- y\n## 私人\nb"),
            ("a\n## 私人: ann\n- y\n## 私人\nb", &ann, "a\n## 私人: ann\n- y\n- x\n## 私人\nb"),
            ("a\n## 私人: ann\n", &own, "a\n## 私人: ann\n\n## 私人\n\n- x\n"),
            ("a\n## 私人", &own, "a\n## 私人\n\n- x\n"),
            ("- a", &everyone, "- a\n- x\n"),
        ] {
            assert_eq!(insert_bullets(text, owner, &["x".to_owned()], "私人", owner_of), expected, "{text:?}");
        }
    }
}
