//! Splits a text into parts that stay or are removed as a whole: definitions of code, paragraphs under their headings, lines.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::lines::TextLines;
use crate::text::pattern;

/// The maximum number of lines of a part. A longer part is split at empty lines, or after this many lines.
const LONG_PART: usize = 30;
const LONGEST_PART: usize = 60;
/// The maximum number of lines above a definition that are searched for its comments and attributes.
const MAX_COMMENT: usize = 40;

/// The kind of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    Code,
    /// Headings and paragraphs.
    Prose,
    /// Entries of one line.
    Lines,
}

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextSection {
    pub lines: Range<usize>,
    /// The lines of the headings or definitions above the section, the outermost first.
    pub above: Vec<usize>,
    /// The line of the definition with which the section begins, if there is one.
    pub definition: Option<usize>,
}

/// A line that defines something in Rust, Python, JavaScript, TypeScript, Go, Java, C, C++, C#, Ruby, PHP, Kotlin, Swift or a shell.
static DEFINITION: LazyLock<Regex> = LazyLock::new(|| {
    let modifiers = r"(?:(?:pub(?:\([a-z :]+\))?|export|default|declare|async|unsafe|extern(?:\s*\x22C\x22)?|const|static|public|private|protected|internal|abstract|final|override|virtual|inline|synchronized|open|sealed|data)\s+)*";
    let words = r"(?:fn|struct|enum|union|trait|impl|mod|type|macro_rules!|def|class|interface|namespace|function\*?|func|fun|protocol|extension|object|module|record|package)\b";
    let constants =
        r"(?:pub(?:\([a-z :]+\))?\s+)?(?:const|static|type|let|var|export\s+const)\s+[A-Za-z_$][\w$]*\s*[:=]";
    let arrow = r"(?:export\s+)?(?:const|let|var)\s+[\w$]+\s*=\s*(?:async\s*)?(?:function|\(|[\w$]+\s*=>)";
    let member = r"(?:static\s+|async\s+|get\s+|set\s+|public\s+|private\s+|protected\s+)*[\w$#]+\s*\([^;{}]*\)\s*(?::\s*[^;{}]+)?\{\s*$";
    let c_like = r"[A-Za-z_][\w:<>,*&\[\]\s~]*[\s*&][\w:~]+\s*\([^;]*\)?\s*(?:const\s*)?(?:noexcept\s*)?(?:throws\s+[\w., ]+)?\{?\s*$";
    let define = r"#\s*define\s+\w+";
    let pattern = format!(
        r"^\s*(?:{modifiers}{words}|{arrow}|{define})|^{constants}|^\s{{0,8}}(?:{member})|^\s{{0,8}}(?:{c_like})"
    );
    Regex::new(&pattern).expect("a constant pattern is valid")
});

pattern!(
    /// A line for the C preprocessor. It begins like a comment of other languages, and is not a comment.
    PREPROCESSOR,
    r#"^#((include|define|undef|if|ifdef|ifndef|elif|else|endif|pragma|error|warning|import|line)\b|\s*include\s*[<"]|\s*define\s+[A-Z_]\w*)"#
);

/// The first words of statements that look like definitions of members.
const STATEMENTS: &[&str] =
    &["if", "for", "while", "switch", "return", "else", "catch", "match", "with", "elif", "do", "try", "}"];

/// Returns true for a line that defines something.
pub fn is_definition(line: &str) -> bool {
    let first = line.trim_start();
    let word = first.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '}')).next().unwrap_or_default();
    !STATEMENTS.contains(&word) && first.len() < 400 && DEFINITION.is_match(line)
}

/// Returns the level of a Markdown or underlined heading (1 is the highest).
pub fn heading_level(lines: &[&str], at: usize) -> Option<usize> {
    let line = lines[at].trim_start();
    let marks = line.bytes().take_while(|byte| *byte == b'#').count();
    if (1..=6).contains(&marks) && line[marks..].starts_with(' ') {
        return Some(marks);
    }
    let under = lines.get(at + 1)?.trim();
    let sign = under.chars().next()?;
    let level = "=-~^\"'".find(sign)? + 1;
    let is_rule = under.chars().count() >= 3 && under.chars().all(|c| c == sign);
    (is_rule && !line.is_empty() && line.chars().count() <= under.chars().count() + 4).then_some(level)
}

/// Returns the parts of a text, which cover all of its lines.
pub fn sections(lines: &TextLines<'_>, kind: TextKind) -> Vec<TextSection> {
    match kind {
        TextKind::Code => code_sections(&lines.bodies),
        TextKind::Prose => prose_sections(&lines.bodies),
        TextKind::Lines => {
            let line = |at: usize| TextSection { lines: at..at + 1, above: Vec::new(), definition: None };
            (0..lines.len()).map(line).collect()
        }
    }
}

fn prose_sections(lines: &[&str]) -> Vec<TextSection> {
    let mut found: Vec<TextSection> = Vec::new();
    // The level and the line of each heading above the current line.
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut is_fenced = false;
    let mut begin = 0;
    let close = |begin: usize, end: usize, open: &[(usize, usize)], found: &mut Vec<TextSection>| {
        if begin < end {
            let above = open.iter().map(|(_, line)| *line).filter(|line| *line < begin).collect();
            found.push(TextSection { lines: begin..end, above, definition: None });
        }
    };
    for at in 0..lines.len() {
        let line = lines[at].trim();
        if line.starts_with("```") || line.starts_with("~~~") {
            is_fenced = !is_fenced;
        }
        let level = if is_fenced { None } else { heading_level(lines, at) };
        if let Some(level) = level {
            close(begin, at, &open, &mut found);
            begin = at;
            open.retain(|(other, _)| *other < level);
            open.push((level, at));
        } else if at - begin >= LONGEST_PART
            || (line.is_empty() && !is_fenced && at > begin && has_text(&lines[begin..at], &open, begin))
        {
            close(begin, at, &open, &mut found);
            begin = at;
        }
    }
    close(begin, lines.len(), &open, &mut found);
    found
}

/// Returns true if lines hold more than headings. A heading alone is not a section, since it belongs to its first
/// paragraph.
fn has_text(lines: &[&str], open: &[(usize, usize)], begin: usize) -> bool {
    let is_heading = |at: usize| open.iter().any(|(_, line)| *line == begin + at);
    let is_rule = |line: &str| line.chars().all(|c| "=-~^\"'".contains(c));
    (0..lines.len()).any(|at| !lines[at].trim().is_empty() && !is_heading(at) && !is_rule(lines[at].trim()))
}

fn code_sections(lines: &[&str]) -> Vec<TextSection> {
    let indents: Vec<Option<usize>> = lines.iter().map(|line| indent(line)).collect();
    let definitions: Vec<usize> = (0..lines.len()).filter(|at| is_definition(lines[*at])).collect();
    let mut begins: Vec<(usize, Option<usize>)> =
        definitions.iter().map(|at| (comment_begin(lines, *at), Some(*at))).collect();
    begins.dedup_by_key(|(begin, _)| *begin);
    if begins.first().is_none_or(|(begin, _)| *begin > 0) {
        begins.insert(0, (0, None));
    }
    let mut found = Vec::new();
    let mut open: Vec<(usize, usize)> = Vec::new();
    for (at, (begin, definition)) in begins.iter().enumerate() {
        let end = begins.get(at + 1).map_or(lines.len(), |(next, _)| *next);
        if let Some(line) = definition {
            let depth = indents[*line].unwrap_or_default();
            open.retain(|(other, _)| *other < depth);
            let above: Vec<usize> = open.iter().map(|(_, line)| *line).collect();
            open.push((depth, *line));
            split(lines, *begin..end, &above, Some(*line), &mut found);
        } else {
            split(lines, *begin..end, &[], None, &mut found);
        }
    }
    found
}

/// Splits a long part at empty lines.
fn split(
    lines: &[&str],
    range: Range<usize>,
    above: &[usize],
    definition: Option<usize>,
    found: &mut Vec<TextSection>,
) {
    let mut begin = range.start;
    let mut push = |begin: usize, end: usize| {
        let is_first = begin == range.start;
        let above = if is_first { above.to_vec() } else { above.iter().copied().chain(definition).collect() };
        found.push(TextSection { lines: begin..end, above, definition: definition.filter(|_| is_first) });
    };
    for at in range.clone() {
        let length = at - begin;
        if (length >= LONG_PART && lines[at].trim().is_empty()) || length >= LONGEST_PART {
            push(begin, at);
            begin = at;
        }
    }
    if begin < range.end {
        push(begin, range.end);
    }
}

/// Returns the first line of the comments and attributes above a definition.
fn comment_begin(lines: &[&str], definition: usize) -> usize {
    let is_comment = |line: &str| {
        let line = line.trim_start();
        !PREPROCESSOR.is_match(line)
            && ["//", "/*", "*", "#", "@", "--", ";;", "\"\"\""].iter().any(|sign| line.starts_with(sign))
    };
    let above = lines[..definition].iter().rev().take(MAX_COMMENT);
    definition - above.take_while(|line| is_comment(line)).count()
}

/// Returns the indentation of a line that is not empty; a tab counts as four spaces.
pub fn indent(line: &str) -> Option<usize> {
    let end = line.find(|c: char| c != ' ' && c != '\t')?;
    Some(line[..end].bytes().map(|byte| if byte == b'\t' { 4 } else { 1 }).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_of_many_languages_are_seen() {
        for (line, expected) in [
            ("pub(crate) async fn run(&self) {", true),
            ("    def __init__(self, url):", true),
            ("export default class App extends Base {", true),
            ("const load = async (path) => {", true),
            ("  constructor(options) {", true),
            ("func (s *Server) Close() error {", true),
            ("static int parse_line(const char *line, size_t n)", true),
            ("  public synchronized List<String> names() throws IOException {", true),
            ("#define MAX_LINE 80", true),
            ("pub const LIMIT: usize = 5;", true),
            ("interface Props {", true),
            ("    if (done) {", false),
            ("    return call(a, b);", false),
            ("} else if (x) {", false),
            ("    let x = parse(line)?;", false),
            ("The function is called once.", false),
            ("", false),
        ] {
            assert_eq!(is_definition(line), expected, "{line}");
        }
    }

    #[test]
    fn lines_of_the_preprocessor_are_no_comments() {
        let text = "#include <stdio.h>\n#include \"a.h\"\n#define A 1\n#define B 2\n/* why */\n#define C 3\n#ifdef X\n# define D 4\n#endif\n# a comment\nint run(void)\n";
        let lines = TextLines::of(text);
        let found: Vec<_> =
            sections(&lines, TextKind::Code).into_iter().map(|part| (part.lines, part.definition)).collect();
        assert_eq!(
            found,
            [(0..2, None), (2..3, Some(2)), (3..4, Some(3)), (4..7, Some(5)), (7..9, Some(7)), (9..11, Some(10)),]
        );
    }

    #[test]
    fn sections_cover_all_lines_and_name_what_they_belong_to() {
        let code =
            "use a;\n\n/// Runs.\nimpl Server {\n    // why\n    fn run() {\n        x();\n    }\n}\n\nfn other() {}\n";
        let prose = "# One\n\nfirst\n\nsecond\n\n## Two\ntext\n\n```\n# no heading\n```\n\nThree\n-----\nend\n";
        for (text, kind, expected) in [
            (
                code,
                TextKind::Code,
                vec![
                    (0..2, vec![], None),
                    (2..4, vec![], Some(3)),
                    (4..10, vec![3], Some(5)),
                    (10..11, vec![], Some(10)),
                ],
            ),
            (
                prose,
                TextKind::Prose,
                vec![
                    (0..3, vec![], None),
                    (3..5, vec![0], None),
                    (5..6, vec![0], None),
                    (6..8, vec![0], None),
                    (8..12, vec![0, 6], None),
                    (12..13, vec![0, 6], None),
                    (13..16, vec![0], None),
                ],
            ),
        ] {
            let lines = TextLines::of(text);
            let found: Vec<_> =
                sections(&lines, kind).into_iter().map(|part| (part.lines, part.above, part.definition)).collect();
            assert_eq!(found, expected);
        }
    }
}
