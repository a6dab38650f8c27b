//! The secrets of the configuration, which are removed from texts that leave the program.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use daoyou_channels::settings::Secret;

use super::redact::HIDDEN;

/// The minimum length of a secret, in bytes. Shorter values occur in ordinary text, and redaction would remove them from it.
const SHORTEST: usize = 8;
/// The minimum length of a part of a secret that is recognized, in characters; the part must also be at least half of the secret.
/// A part of a secret shorter than `LONG_SECRET` is recognized only next to a cut, since it may be an ordinary word.
const SHORTEST_PART: usize = 10;
const LONG_SECRET: usize = 32;
/// The character that marks a cut.
const CUT: char = '…';

/// Secret values without surrounding white space. Cheap to clone.
#[derive(Clone, Default)]
pub struct KnownSecrets {
    secrets: Arc<[KnownSecret]>,
    /// Finds any secret or part of a secret in a single pass. Most texts contain none, and each piece of each answer is searched.
    /// Its copies of the secrets are not wiped when it is dropped, unlike the secrets themselves.
    finder: Option<AhoCorasick>,
}

struct KnownSecret {
    value: Secret,
    /// The prefix and the suffix that are recognized on their own, since a long text may have been cut within a secret.
    parts: Vec<Range<usize>>,
    is_long: bool,
}

impl KnownSecret {
    fn new(value: Secret) -> Self {
        let text = value.expose();
        let count = text.chars().count();
        let part = SHORTEST_PART.max(count.div_ceil(2));
        let byte_of = |at: usize| text.char_indices().nth(at).map_or(text.len(), |(byte, _)| byte);
        let parts = if part < count { vec![0..byte_of(part), byte_of(count - part)..text.len()] } else { Vec::new() };
        Self { value, parts, is_long: count >= LONG_SECRET }
    }

    fn text(&self) -> &str {
        self.value.expose()
    }

    /// Replaces each occurrence of a part of the secret, together with as much of the secret as surrounds it. Returns true if
    /// there was an occurrence.
    fn redact_part(&self, part: &Range<usize>, text: &mut String) -> bool {
        let secret = self.text();
        let (mut shown, mut copied, mut searched) = (String::new(), 0, 0);
        while let Some(found) = text[searched..].find(&secret[part.clone()]) {
            let at = searched + found;
            searched = at + part.len();
            let (before, after) = (&text[copied..at], &text[searched..]);
            let start = at - common_len(secret[..part.start].chars().rev(), before.chars().rev());
            let end = searched + common_len(secret[part.end..].chars(), after.chars());
            if self.is_long || text[..start].ends_with(CUT) || text[end..].starts_with(CUT) {
                shown.push_str(&text[copied..start]);
                shown.push_str(HIDDEN);
                (copied, searched) = (end, end);
            }
        }
        if copied > 0 {
            shown.push_str(&text[copied..]);
            *text = shown;
        }
        copied > 0
    }
}

/// Returns the length in bytes of the common prefix of two texts.
fn common_len(one: impl Iterator<Item = char>, other: impl Iterator<Item = char>) -> usize {
    one.zip(other).take_while(|(one, other)| one == other).map(|(one, _)| one.len_utf8()).sum()
}

impl KnownSecrets {
    /// Keeps those of `values` that are long enough to be recognized as secrets.
    pub fn new(values: impl IntoIterator<Item = Secret>) -> Self {
        let values = values.into_iter().filter(|secret| secret.expose().trim().len() >= SHORTEST);
        // Trimmed here rather than at each search, which runs for every piece of every answer.
        let mut values: Vec<Secret> = values.map(|secret| Secret::new(secret.expose().trim())).collect();
        // One secret may contain another, so the longest comes first.
        values.sort_by(|a, b| b.expose().len().cmp(&a.expose().len()).then_with(|| a.expose().cmp(b.expose())));
        values.dedup_by(|a, b| a.expose() == b.expose());
        let secrets: Arc<[_]> = values.into_iter().map(KnownSecret::new).collect();
        let texts = secrets.iter().flat_map(|secret: &KnownSecret| {
            let parts = secret.parts.iter().map(|part| &secret.text()[part.clone()]);
            parts.chain([secret.text()])
        });
        // This automaton takes the least memory. With this kind of match, a search skips text without a secret many bytes at a time. If
        // building it fails, each secret is searched for separately.
        let kind = Some(AhoCorasickKind::ContiguousNFA);
        let finder = AhoCorasick::builder().kind(kind).match_kind(MatchKind::LeftmostFirst).build(texts).ok();
        Self { secrets, finder }
    }

    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    /// Returns false if neither a secret nor a part of one is in `text`.
    pub fn may_occur_in(&self, text: &str) -> bool {
        self.finder.as_ref().is_none_or(|finder| finder.is_match(text))
    }

    /// Removes the secrets from `text`, and the parts of secrets that a cut has left. Returns true if it removed anything.
    pub fn redact(&self, text: &mut String) -> bool {
        if !self.may_occur_in(text) {
            return false;
        }
        let mut found = false;
        for secret in self.secrets.iter().map(KnownSecret::text) {
            if text.contains(secret) {
                *text = text.replace(secret, HIDDEN);
                found = true;
            }
        }
        // Several secrets may have a prefix in common, so parts are searched after all whole secrets.
        for secret in self.secrets.iter() {
            for part in &secret.parts {
                found |= secret.redact_part(part, text);
            }
        }
        found
    }

    /// Returns the length of the prefix of `text` that is safe to pass on, in bytes. No following text can turn its end into a
    /// part of a secret, and it does not end within a secret.
    pub fn settled_len(&self, text: &str) -> usize {
        let mut end = text.len() - self.partial_match_len(text);
        if !self.may_occur_in(text) {
            return end;
        }
        let crossing = |end: usize| {
            let places = |secret: &KnownSecret| {
                let mut places = text.match_indices(secret.value.expose());
                places.find(|(at, found)| *at < end && at + found.len() > end).map(|(at, _)| at)
            };
            self.secrets.iter().find_map(places)
        };
        while let Some(start) = crossing(end) {
            end = start;
        }
        end
    }

    /// Returns how many bytes at the end of `text` may be the start of a secret. Only the following text decides that.
    fn partial_match_len(&self, text: &str) -> usize {
        let open = |secret: &KnownSecret| {
            let secret = secret.text().as_bytes();
            let tail = &text.as_bytes()[text.len() - text.len().min(secret.len() - 1)..];
            let first = tail.iter().enumerate().filter(|(_, byte)| secret.first() == Some(*byte));
            first.map(|(at, _)| &tail[at..]).find(|part| secret.starts_with(part)).map(<[u8]>::len)
        };
        self.secrets.iter().filter_map(open).max().unwrap_or(0)
    }
}

impl fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KnownSecrets({})", self.secrets.len())
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
            assert_eq!(redacted, expected, "{text}");
            assert_eq!(secrets.partial_match_len(&redacted), open, "{text}");
        }
    }

    #[test]
    fn what_a_cut_has_left_of_a_secret_is_removed() {
        let key = "sk-ant-api03-0123456789-abcdefghij-0123456789";
        let word = "production-key-123";
        let secrets = [key, word, "密钥在这里，谁也不要告诉他的朋友", "company-2024-b91c77", "company-2024-a7f3"];
        let secrets = KnownSecrets::new(secrets.map(Secret::new));
        for (text, expected) in [
            ("a sk-ant-api03-0123456789-ab… and more", "a (hidden)… and more"),
            ("sk-ant-api03-0123456789-abcde\n[cut]", "(hidden)\n[cut]"),
            ("…89-abcdefghij-0123456789, 0123456789", "…(hidden), 0123456789"),
            ("sk-ant-api03-0123456789-abcXsk-ant-api03-0123456789-abc", "(hidden)X(hidden)"),
            ("the prefix sk-ant-api03-… is public", "the prefix sk-ant-api03-… is public"),
            ("deploy to production", "deploy to production"),
            ("production-k… or …ion-key-123", "(hidden)… or …(hidden)"),
            ("production and production-k…", "production and (hidden)…"),
            ("密钥在这里，谁也不要…", "(hidden)…"),
            ("密钥在这里…他的朋友", "密钥在这里…他的朋友"),
            ("company-2024-a7f3 company-2024-b91c77", "(hidden) (hidden)"),
        ] {
            let mut redacted = text.to_owned();
            assert_eq!(secrets.redact(&mut redacted), text != expected, "{text}");
            assert_eq!(redacted, expected);
        }
    }
}
