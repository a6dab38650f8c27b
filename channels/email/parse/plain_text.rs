//! Decodes plain text bodies: `format=flowed` (RFC 3676) and PGP armor (RFC 9580).

/// Joins the lines of flowed paragraphs. With `delsp`, the space before a soft break is not part of the text (RFC 3676, section 4.1).
pub fn unflow(text: &str, delsp: bool) -> String {
    let mut out = String::with_capacity(text.len());
    // The quotation depth of the paragraph that continues on the next line.
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

/// Removes PGP armor: keeps signed text and replaces encrypted text with a note. The second value is true if something was encrypted.
pub fn strip_pgp_armor(text: &str) -> (String, bool) {
    if !text.contains("-----BEGIN PGP ") {
        return (text.to_owned(), false);
    }
    let mut out = String::with_capacity(text.len());
    let mut is_encrypted = false;
    let mut is_signed = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        match line.trim_end() {
            "-----BEGIN PGP MESSAGE-----" => {
                is_encrypted = true;
                out.push_str("[encrypted, unreadable]\n");
                lines.by_ref().find(|line| line.trim_end() == "-----END PGP MESSAGE-----");
            }
            // Armor headers end with an empty line (RFC 9580, section 7).
            "-----BEGIN PGP SIGNED MESSAGE-----" => {
                is_signed = true;
                lines.by_ref().find(|line| line.trim().is_empty());
            }
            "-----BEGIN PGP SIGNATURE-----" => {
                is_signed = false;
                lines.by_ref().find(|line| line.trim_end() == "-----END PGP SIGNATURE-----");
            }
            _ => {
                out.push_str(if is_signed { line.strip_prefix("- ").unwrap_or(line) } else { line });
                out.push('\n');
            }
        }
    }
    (out, is_encrypted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flowed_paragraphs_are_joined() {
        let table = [
            ("one \ntwo\nthree", false, "one two\nthree"),
            ("中文 \n换行", true, "中文换行"),
            ("> a \n> b\n>> c \nd", false, "> a b\n>> c \nd"),
            (" From space\n > not quoted", false, "From space\n> not quoted"),
            ("text \n-- \nname", false, "text \n-- \nname"),
            ("", false, ""),
        ];
        for (text, delsp, expected) in table {
            assert_eq!(unflow(text, delsp), expected, "{text:?}");
        }
    }

    #[test]
    fn pgp_armor_is_removed() {
        let signed = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nPay\n- - 100\n-----BEGIN PGP SIGNATURE-----\n\niQ\n-----END PGP SIGNATURE-----\nbye";
        let table = [
            ("plain", "plain", false),
            (signed, "Pay\n- 100\nbye\n", false),
            (
                "a\n-----BEGIN PGP MESSAGE-----\n\nhQE\n-----END PGP MESSAGE-----\nb",
                "a\n[encrypted, unreadable]\nb\n",
                true,
            ),
            ("-----BEGIN PGP MESSAGE-----\nnever ends", "[encrypted, unreadable]\n", true),
        ];
        for (text, expected, is_encrypted) in table {
            assert_eq!(strip_pgp_armor(text), (expected.to_owned(), is_encrypted), "{text}");
        }
    }
}
