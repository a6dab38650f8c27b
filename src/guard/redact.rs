//! Secrets in words that are kept or shown.

/// What stands in a secret's place.
pub(super) const HIDDEN: &str = "(hidden)";
/// Shorter values are no secrets, and stand in half of all words.
const SHORTEST: usize = 4;
/// The longest beginning of a secret that is looked for where words were cut, in bytes.
const LONGEST_CUT: usize = 1_024;

/// Strikes `secrets` out of words that came from outside: a service that refuses a key may repeat it. Where the words were
/// cut (`…`), what is left of a secret goes too.
pub fn redact<'a>(words: &str, secrets: impl IntoIterator<Item = &'a str>) -> String {
    let mut secrets: Vec<&str> = secrets.into_iter().filter(|secret| secret.len() >= SHORTEST).collect();
    // One secret may stand inside another.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    let mut words = words.to_owned();
    for secret in secrets {
        if words.contains(secret) {
            words = words.replace(secret, HIDDEN);
        }
        if let Some(cut) = words.find('…')
            && let Some(left) = beginning_at_end(&words[..cut], secret)
        {
            words.replace_range(cut - left..cut, HIDDEN);
        }
    }
    words
}

/// A web address without what may be secret in it: the password and the query. Words that hold an address among others
/// are no address.
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

/// How many bytes at the end of `words` are the beginning of `secret`.
fn beginning_at_end(words: &str, secret: &str) -> Option<usize> {
    let longest = secret.len().min(LONGEST_CUT).min(words.len());
    (SHORTEST..=longest).rev().find(|length| secret.get(..*length).is_some_and(|part| words.ends_with(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_struck_out_whole_and_cut() {
        for (words, expected) in [
            ("wrong key: sk-canary-1", "wrong key: (hidden)"),
            ("sk-canary-1 and sk-canary-1!", "(hidden) and (hidden)!"),
            ("the longer sk-canary-1-more", "the longer (hidden)"),
            ("cut: sk-cana…", "cut: (hidden)…"),
            ("cut: sk-canary-… (after 3 tries)", "cut: (hidden)… (after 3 tries)"),
            ("not one: sk-…", "not one: sk-…"),
            ("abc 密钥在这里 密钥…", "abc (hidden) (hidden)…"),
            ("nothing", "nothing"),
            ("", ""),
        ] {
            let secrets = ["sk-canary-1", "sk-canary-1-more", "密钥在这里", "abc", ""];
            assert_eq!(redact(words, secrets), expected, "{words}");
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
