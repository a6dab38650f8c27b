//! Finds the code in a Jinja template, to reject templates that may use too much memory, and limits the size of rendered output.

use std::io::{self, ErrorKind, Write};

/// A writer that accepts at most `limit` bytes.
#[derive(Debug)]
pub struct BoundedOutput {
    bytes: Vec<u8>,
    limit: usize,
}

impl BoundedOutput {
    pub fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit }
    }

    /// Returns true if the writer has reached its limit.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= self.limit
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl Write for BoundedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.limit.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.len() > room { Err(ErrorKind::WriteZero.into()) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One `{{ … }}` or `{% … %}` of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateTag {
    /// A statement, `{% … %}`.
    pub is_statement: bool,
    /// The code of the tag; string literals are reduced to their quotes.
    pub code: String,
}

impl TemplateTag {
    /// Returns the names and numbers in the code.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.code.split(|c: char| !is_of_word(c)).filter(|word| !word.is_empty())
    }

    /// Returns true if a factor of a multiplication is not a literal number, so that a repeated text could become arbitrarily long.
    pub fn multiplies_freely(&self) -> bool {
        let is_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
        let is_free = |(at, _): (usize, &str)| {
            let (before, after) = (self.code[..at].trim_end(), self.code[at + 1..].trim_start());
            // `**` is a power, which texts do not support.
            if before.ends_with('*') || after.starts_with('*') {
                return false;
            }
            let first = after.trim_start_matches('-');
            let behind = first.trim_start_matches(is_of_word).trim_start();
            let ahead = before.trim_end_matches(is_of_word);
            // A neighbouring operator of higher precedence would change the factor.
            let by_right = is_number(first) && !behind.starts_with("**");
            let by_left = is_number(&before[ahead.len()..]) && !ahead.trim_end().ends_with(['*', '/', '%']);
            !by_right && !by_left
        };
        self.code.match_indices('*').any(is_free)
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '.'
}

/// Returns the tags of a template, as minijinja reads it with the default delimiters. For a template that does not compile,
/// the result may differ.
pub fn tags(source: &str) -> Vec<TemplateTag> {
    let mut tags = Vec::new();
    let mut rest = source;
    while let Some((kind, inside)) = opened(rest) {
        rest = match kind {
            '#' => after(inside.strip_prefix(['-', '+']).unwrap_or(inside), "#}"),
            kind => match plain_tag(inside, "raw").filter(|_| kind == '%') {
                Some(raw) => after_raw(raw),
                None => {
                    let is_statement = kind == '%';
                    let (code, behind) = code_of(inside, if is_statement { "%}" } else { "}}" });
                    tags.push(TemplateTag { is_statement, code });
                    behind
                }
            },
        };
    }
    tags
}

/// Finds the next opening delimiter; returns its second character and the text after the delimiter.
fn opened(text: &str) -> Option<(char, &str)> {
    text.match_indices('{').find_map(|(at, _)| {
        let behind = &text[at + 1..];
        let kind = behind.chars().next().filter(|kind| "{%#".contains(*kind))?;
        Some((kind, &behind[1..]))
    })
}

fn after<'t>(text: &'t str, mark: &str) -> &'t str {
    text.split_once(mark).map_or("", |(_, behind)| behind)
}

/// Returns the text after the tag that `inside` starts with, if the tag consists of `name` alone.
fn plain_tag<'t>(inside: &'t str, name: &str) -> Option<&'t str> {
    let name_on = inside.strip_prefix(['-', '+']).unwrap_or(inside).trim_ascii_start().strip_prefix(name)?;
    let end = name_on.trim_ascii_start();
    end.strip_prefix(['-', '+']).unwrap_or(end).strip_prefix("%}")
}

fn after_raw(text: &str) -> &str {
    text.match_indices("{%").find_map(|(at, mark)| plain_tag(&text[at + mark.len()..], "endraw")).unwrap_or_default()
}

/// Returns the code up to its closing delimiter, and the text after that delimiter.
fn code_of<'t>(inside: &'t str, end: &str) -> (String, &'t str) {
    let mut code = String::new();
    let (mut open, mut at) = (0_i64, 0);
    while let Some(c) = inside[at..].chars().next() {
        if open == 0 && inside[at..].starts_with(end) {
            return (code, &inside[at + end.len()..]);
        }
        code.push(c);
        at += c.len_utf8();
        match c {
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open -= 1,
            '"' | '\'' => {
                code.push(c);
                at += length_of_quoted(&inside[at..], c);
            }
            _ => {}
        }
    }
    (code, "")
}

/// Returns the length in bytes of the rest of a string literal, including the closing quote.
fn length_of_quoted(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        if !is_escaped && c == quote {
            return at + c.len_utf8();
        }
        is_escaped = !is_escaped && c == '\\';
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_separated_from_text() {
        for (source, expected) in [
            ("**bold** { } %} 2 * 3", ""),
            ("{{ a }}*{% if b %}*{% endif %}", "{ a % if b % endif "),
            ("{{- a -}}{%+ if b %}", "{- a -%+ if b "),
            (r#"{{ "it's }} * \" {{" ~ 'x\\' }}*"#, r#"{ "" ~ '' "#),
            ("{# {{ 'a }} #}{{ b }}{#-#}*{{ c }}#}", "{ b { c "),
            ("{% raw %}{{ x * 9 }}{% if %}{%- endraw -%}{{ y }}", "{ y "),
            ("{% rawer %}{{ y }}", "% rawer { y "),
            ("{{ {'a': {}} }}{{ b }}", "{ {'': {}} { b "),
            ("{{ (1 }} ) }}x", "{ (1 }} ) }}x"),
            ("{{ '道\\", "{ ''"),
            ("{", ""),
        ] {
            let mark = |tag: &TemplateTag| if tag.is_statement { '%' } else { '{' };
            let found: String = tags(source).iter().map(|tag| format!("{}{}", mark(tag), tag.code)).collect();
            assert_eq!(found, expected, "{source}");
        }
        let tags = tags("{% for a in range(9) recursive %}");
        assert_eq!(tags[0].names().collect::<Vec<_>>(), ["for", "a", "in", "range", "9", "recursive"]);
    }

    #[test]
    fn multiplication_by_a_variable_is_detected() {
        for (code, expected) in [
            ("body.price * 2", false),
            ("60*body.n", false),
            ("'#' * 3", false),
            ("2 ** body.n", false),
            ("'#' * body.n", true),
            ("body.n * -1", false),
            ("2 * body.s * body.n", true),
            ("body.s * 2 * body.n", true),
            ("body.n // 2 * body.s", true),
            ("body.s * 2 ** body.n", true),
            ("body.s * body.a1", true),
            ("body.a1 * body.s", true),
            ("(1 + 2) * body.s", true),
            ("'2 * x'", false),
        ] {
            assert_eq!(tags(&format!("{{{{ {code} }}}}"))[0].multiplies_freely(), expected, "{code}");
        }
    }
}
