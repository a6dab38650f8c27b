//! Redaction of secrets in texts that are stored or shown.

/// The text that replaces a secret.
pub(super) const HIDDEN: &str = "(hidden)";
/// Shorter values are not treated as secrets: they occur in ordinary text.
const SHORTEST: usize = 4;
/// The longest prefix of a secret that the search before a cut finds, in bytes.
const LONGEST_CUT: usize = 1_024;

/// Removes `secrets` from a text that came from outside: a service that rejects a key may repeat it. Where the text was cut (`…`),
/// the start of a secret before the cut is removed as well.
pub fn redact<'a>(text: &str, secrets: impl IntoIterator<Item = &'a str>) -> String {
    let mut secrets: Vec<&str> = secrets.into_iter().filter(|secret| secret.len() >= SHORTEST).collect();
    // One secret may contain another, so the longest comes first.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    let mut text = text.to_owned();
    for secret in secrets {
        if text.contains(secret) {
            text = text.replace(secret, HIDDEN);
        }
        let cuts: Vec<usize> = text.match_indices('…').map(|(at, _)| at).collect();
        // Backwards, so that the positions before a replaced part stay valid.
        for cut in cuts.into_iter().rev() {
            if let Some(left) = text.get(..cut).and_then(|before| prefix_at_end(before, secret)) {
                text.replace_range(cut - left..cut, HIDDEN);
            }
        }
    }
    text
}

/// Returns a web address without its password and query, which may be secret. Returns a text that is more than an address
/// unchanged.
pub fn mask_url(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://").filter(|_| !text.contains(char::is_whitespace)) else {
        return text.to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let authority = match authority.rfind('@') {
        Some(at) => format!("{HIDDEN}{}", &authority[at..]),
        None => authority.to_owned(),
    };
    let path = match path.find(['?', '#']) {
        Some(at) => format!("{}{HIDDEN}", &path[..=at]),
        None => path.to_owned(),
    };
    format!("{scheme}://{authority}{path}")
}

/// Returns how many bytes at the end of `text` are a prefix of `secret`.
fn prefix_at_end(text: &str, secret: &str) -> Option<usize> {
    let longest = secret.len().min(LONGEST_CUT).min(text.len());
    (SHORTEST..=longest).rev().find(|length| secret.get(..*length).is_some_and(|part| text.ends_with(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_and_cut_secrets_are_removed() {
        for (text, expected) in [
            ("wrong key: sk-canary-1", "wrong key: (hidden)"),
            ("sk-canary-1 and sk-canary-1!", "(hidden) and (hidden)!"),
            ("the longer sk-canary-1-more", "the longer (hidden)"),
            ("cut: sk-cana…", "cut: (hidden)…"),
            ("cut: sk-canary-… (after 3 tries)", "cut: (hidden)… (after 3 tries)"),
            ("not one: sk-…", "not one: sk-…"),
            ("wait… cut: sk-cana…, again sk-can… end…", "wait… cut: (hidden)…, again (hidden)… end…"),
            ("abc 密钥在这里 密钥…", "abc (hidden) (hidden)…"),
            ("nothing", "nothing"),
            ("", ""),
        ] {
            let secrets = ["sk-canary-1", "sk-canary-1-more", "密钥在这里", "abc", ""];
            assert_eq!(redact(text, secrets), expected, "{text}");
        }
    }

    #[test]
    fn an_address_is_shown_without_password_and_query() {
        for (text, expected) in [
            ("https://example.org/a/b", "https://example.org/a/b"),
            ("https://user:word@example.org/a", "https://(hidden)@example.org/a"),
            ("https://example.org?key=1", "https://example.org?(hidden)"),
            ("https://u@h:1/p?key=1#part", "https://(hidden)@h:1/p?(hidden)"),
            ("https://example.org/p#token", "https://example.org/p#(hidden)"),
            ("127.0.0.1:18790", "127.0.0.1:18790"),
            ("what?", "what?"),
            ("See https://example.org/?a for more", "See https://example.org/?a for more"),
        ] {
            assert_eq!(mask_url(text), expected, "{text}");
        }
    }
}
