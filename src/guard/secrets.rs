//! The secrets of the configuration, which are removed from texts that leave the program.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use daoyou_channels::settings::Secret;

use super::redact::HIDDEN;

/// Shorter values occur in ordinary text and would be removed from it.
const SHORTEST: usize = 8;
/// The shortest part of a secret that is recognized, in characters; it is at least half of the secret.
const SHORTEST_PART: usize = 10;

/// Secret values without surrounding white space. Cheap to clone.
#[derive(Clone, Default)]
pub struct KnownSecrets(Arc<[KnownSecret]>);

struct KnownSecret {
    value: Secret,
    /// The start and the end that are recognized by themselves: a long text may have been cut within a secret.
    start: Option<Range<usize>>,
    end: Option<Range<usize>>,
}

impl KnownSecret {
    fn new(value: Secret) -> Self {
        let text = value.expose();
        let count = text.chars().count();
        let part = SHORTEST_PART.max(count.div_ceil(2));
        let byte_of = |at: usize| text.char_indices().nth(at).map(|(byte, _)| byte);
        // The start of an address says which service it is, and is not secret.
        let start = byte_of(part).filter(|_| !text.contains("://")).map(|end| 0..end);
        let end = byte_of(count.saturating_sub(part)).filter(|_| part < count).map(|start| start..text.len());
        Self { value, start, end }
    }

    /// Replaces the secret and its parts; returns true if there was one.
    fn redact(&self, text: &mut String) -> bool {
        let secret = self.value.expose();
        let mut found = text.contains(secret);
        if found {
            *text = text.replace(secret, HIDDEN);
        }
        for part in [&self.start, &self.end].into_iter().flatten() {
            while let Some(at) = text.find(&secret[part.clone()]) {
                let (before, after) = (&text[..at], &text[at + part.len()..]);
                // As much of the secret as stands around the part.
                let more = common_len(secret[part.end..].chars(), after.chars());
                let less = common_len(secret[..part.start].chars().rev(), before.chars().rev());
                text.replace_range(at - less..at + part.len() + more, HIDDEN);
                found = true;
            }
        }
        found
    }
}

/// Returns the bytes of the characters that two texts have in common at their start.
fn common_len(one: impl Iterator<Item = char>, other: impl Iterator<Item = char>) -> usize {
    one.zip(other).take_while(|(one, other)| one == other).map(|(one, _)| one.len_utf8()).sum()
}

impl KnownSecrets {
    /// Keeps those of `values` that are long enough to be recognized as secrets.
    pub fn new(values: impl IntoIterator<Item = Secret>) -> Self {
        let values = values.into_iter().filter(|secret| secret.expose().trim().len() >= SHORTEST);
        // Trimmed here rather than at each search, which runs for every piece of every answer.
        let mut values: Vec<Secret> = values.map(|secret| Secret::new(secret.expose().trim())).collect();
        // One secret may contain another.
        values.sort_by(|a, b| b.expose().len().cmp(&a.expose().len()).then_with(|| a.expose().cmp(b.expose())));
        values.dedup_by(|a, b| a.expose() == b.expose());
        Self(values.into_iter().map(KnownSecret::new).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if `text` contains a secret.
    pub fn occur_in(&self, text: &str) -> bool {
        self.0.iter().any(|secret| text.contains(secret.value.expose()))
    }

    /// Removes the secrets from `text`, and what a cut has left of one; returns true if there was one.
    pub fn redact(&self, text: &mut String) -> bool {
        let mut found = false;
        for secret in self.0.iter() {
            found |= secret.redact(text);
        }
        found
    }

    /// Returns how many bytes at the end of `text` may be the start of a secret, which the following text decides.
    pub fn partial_match_len(&self, text: &str) -> usize {
        let open = |secret: &KnownSecret| {
            let secret = secret.value.expose().as_bytes();
            let tail = &text.as_bytes()[text.len() - text.len().min(secret.len() - 1)..];
            let first = tail.iter().enumerate().filter(|(_, byte)| secret.first() == Some(*byte));
            first.map(|(at, _)| &tail[at..]).find(|part| secret.starts_with(part)).map(<[u8]>::len)
        };
        self.0.iter().filter_map(open).max().unwrap_or(0)
    }
}

impl fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KnownSecrets({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_removed_and_short_words_are_not() {
        let secrets =
            KnownSecrets::new(["sk-canary-1", "sk-canary-1-more", "short", " \n", "密钥在这里"].map(Secret::new));
        for (text, expected, open) in [
            ("nothing", "nothing", 0),
            ("a short one", "a short one", 0),
            ("key=sk-canary-1;sk-canary-1-more", "key=(hidden);(hidden)", 0),
            ("密钥在这里!", "(hidden)!", 0),
            ("cut: sk-can", "cut: sk-can", 6),
            ("cut: s", "cut: s", 1),
            ("切 密钥", "切 密钥", 6),
        ] {
            let mut redacted = text.to_owned();
            assert_eq!(secrets.redact(&mut redacted), text != expected, "{text}");
            assert_eq!((redacted.as_str(), secrets.occur_in(text)), (expected, text != expected), "{text}");
            assert_eq!(secrets.partial_match_len(&redacted), open, "{text}");
        }
    }

    #[test]
    fn what_a_cut_has_left_of_a_secret_is_removed() {
        let key = "sk-ant-api03-0123456789-abcdefghij-0123456789";
        let hook = "https://hooks.example.org/services/T1/0123456789abcdef";
        let secrets = KnownSecrets::new([key, hook, "密钥在这里，谁也不要告诉他的朋友"].map(Secret::new));
        for (text, expected) in [
            ("a sk-ant-api03-0123456789-ab… and more", "a (hidden)… and more"),
            ("sk-ant-api03-0123456789-abcde\n[cut]", "(hidden)\n[cut]"),
            ("…89-abcdefghij-0123456789, 0123456789", "…(hidden), 0123456789"),
            ("sk-ant-api03-0123456789-abcXsk-ant-api03-0123456789-abc", "(hidden)X(hidden)"),
            ("the prefix sk-ant-api03-… is public", "the prefix sk-ant-api03-… is public"),
            ("https://hooks.example.org/services/…", "https://hooks.example.org/services/…"),
            ("org/services/T1/0123456789abcdef", "(hidden)"),
            ("密钥在这里，谁也不要告…", "(hidden)…"),
            ("密钥在这里…他的朋友", "密钥在这里…他的朋友"),
        ] {
            let mut redacted = text.to_owned();
            assert_eq!(secrets.redact(&mut redacted), text != expected, "{text}");
            assert_eq!(redacted, expected);
        }
    }
}
