//! `format=flowed` (RFC 3676): lines that were broken for transport become one again.

/// Joins the lines of a paragraph. With `delsp` the space before a soft break is none of the text's own (section 4.1).
pub fn rejoin(text: &str, delsp: bool) -> String {
    let mut out = String::with_capacity(text.len());
    // The depth of quotation of the paragraph that goes on with the next line.
    let mut open: Option<usize> = None;
    for line in text.lines() {
        let content = line.trim_start_matches('>');
        let depth = line.len() - content.len();
        let content = content.strip_prefix(' ').unwrap_or(content);
        let is_signature = content == "-- ";
        if open.take() != Some(depth) || is_signature {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&">".repeat(depth));
            if depth > 0 {
                out.push(' ');
            }
        }
        match content.strip_suffix(' ') {
            Some(soft) if !is_signature => {
                out.push_str(if delsp { soft } else { content });
                open = Some(depth);
            }
            _ => out.push_str(content),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn paragraphs_become_whole() {
        let table = [
            ("one \ntwo\nthree", false, "one two\nthree"),
            ("中文 \n换行", true, "中文换行"),
            ("> a \n> b\n>> c \nd", false, "> a b\n>> c \nd"),
            (" From space\n > not quoted", false, "From space\n> not quoted"),
            ("text \n-- \nname", false, "text \n-- \nname"),
            ("", false, ""),
        ];
        for (text, delsp, expected) in table {
            assert_eq!(super::rejoin(text, delsp), expected, "{text:?}");
        }
    }
}
