//! Character references.

use mail_parser::decoders::html::add_html_token;

/// The longest name is shorter.
const MAX_REFERENCE: usize = 34;

/// Replaces `&amp;`, `&#20320;` and the like.
pub fn decode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let body = &rest.as_bytes()[1..rest.len().min(MAX_REFERENCE)];
        let length = body.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'#').unwrap_or(body.len());
        let is_closed = body.get(length) == Some(&b';');
        let reference = &rest[1..=length];
        // Numbers, and the names that HTML took over from its beginnings, also stand without a semicolon.
        let is_known =
            is_closed || reference.starts_with('#') || matches!(reference, "nbsp" | "amp" | "lt" | "gt" | "quot");
        if length > 1 && is_known {
            add_html_token(&mut out, format!("&{reference};").as_bytes(), false);
            rest = &rest[length + 1 + usize::from(is_closed)..];
        } else {
            out.push('&');
            rest = &rest[1..];
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn references() {
        let table = [
            ("a &amp; b &lt;c&gt;", "a & b <c>"),
            ("&#20320;&#x597D;&#65 &eacute;&hellip;", "你好A é…"),
            ("?a=1&b=2&copy=3 & &; &#; &nosuch; &#xffffffffff;", "?a=1&b=2&copy=3 & &; &#; &nosuch; &#xffffffffff;"),
            ("&nbsp&nbsp;x", "\u{a0}\u{a0}x"),
            ("&#0;&#xd800;", "\0\u{fffd}"),
            ("&", "&"),
            ("&é;", "&é;"),
        ];
        for (text, expected) in table {
            assert_eq!(super::decode(text), expected, "{text}");
        }
    }
}
