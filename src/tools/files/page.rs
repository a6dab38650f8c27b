//! Pages of a text, by lines.

/// The maximum size of a page.
#[derive(Clone, Copy, Debug)]
pub struct PageLimit {
    pub lines: usize,
    pub chars: usize,
}

/// Returns the lines from number `offset` (the first is 1) within `limit`, with a note that says where the text
/// continues. A text that fits is returned unchanged.
///
/// # Errors
/// The text has fewer lines.
pub fn page(text: &str, offset: usize, limit: PageLimit) -> Result<String, String> {
    let total = text.split_inclusive('\n').count();
    if text.is_empty() && offset <= 1 {
        return Ok("(the file is empty)".to_owned());
    }
    let first = offset.max(1);
    if first > total {
        return Err(format!("offset {first} is past the end: the file has {total} lines"));
    }
    let mut shown = String::new();
    let mut chars = 0;
    let mut next = first;
    for line in text.split_inclusive('\n').skip(first - 1).take(limit.lines) {
        let length = line.chars().count();
        if chars + length > limit.chars {
            if chars == 0 {
                // A line longer than a page: its start is shown, so that the next page can continue.
                shown.extend(line.chars().take(limit.chars));
                let left = length - limit.chars;
                shown.push_str(&format!("\n[line {next} goes on for {left} more characters, not shown]\n"));
                next += 1;
            }
            break;
        }
        shown.push_str(line);
        chars += length;
        next += 1;
    }
    if next > total && first == 1 {
        return Ok(shown);
    }
    if !shown.ends_with('\n') {
        shown.push('\n');
    }
    let last = next - 1;
    let on = if next <= total { format!("; continue with offset={next}") } else { String::new() };
    shown.push_str(&format!("[lines {first}-{last} of {total}{on}]"));
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_says_where_the_text_continues() {
        let small = PageLimit { lines: 2, chars: 20 };
        for (text, offset, expected) in [
            ("", 1, Ok("(the file is empty)")),
            ("a\nb", 1, Ok("a\nb")),
            ("a\nb\n", 1, Ok("a\nb\n")),
            ("a\nb\nc\n", 1, Ok("a\nb\n[lines 1-2 of 3; continue with offset=3]")),
            ("a\nb\nc", 3, Ok("c\n[lines 3-3 of 3]")),
            ("a\nb\nc", 4, Err("offset 4 is past the end: the file has 3 lines")),
            ("", 2, Err("offset 2 is past the end: the file has 0 lines")),
            ("0123456789ab\n0123456789ab\n", 1, Ok("0123456789ab\n[lines 1-1 of 2; continue with offset=2]")),
            (
                "界界界界界界界界界界界界界界界界界界界界界界\nb",
                1,
                Ok("界界界界界界界界界界界界界界界界界界界界\n[line 1 goes on for 3 more characters, not shown]\n\
                 [lines 1-1 of 2; continue with offset=2]"),
            ),
        ] {
            assert_eq!(page(text, offset, small).as_deref().map_err(String::as_str), expected, "{text:?} {offset}");
        }
    }
}
