//! The secrets of the configuration, which are removed from texts that leave the program.

use std::fmt;
use std::sync::Arc;

use daoyou_channels::settings::Secret;

use super::redact::HIDDEN;

/// Shorter values occur in ordinary text and would be removed from it.
const SHORTEST: usize = 8;
/// The sign of a cut in a line, and the shortest part of a secret that is recognized beside it.
const CUT: &str = "…";
const SHORTEST_PART: usize = 6;

/// Secret values without surrounding white space. Cheap to clone.
#[derive(Clone, Default)]
pub struct KnownSecrets(Arc<[Secret]>);

impl KnownSecrets {
    /// Keeps those of `values` that are long enough to be recognized as secrets.
    pub fn new(values: impl IntoIterator<Item = Secret>) -> Self {
        let values = values.into_iter().filter(|secret| secret.expose().trim().len() >= SHORTEST);
        // Trimmed here rather than at each search, which runs for every piece of every answer.
        let mut values: Vec<Secret> = values.map(|secret| Secret::new(secret.expose().trim())).collect();
        // One secret may contain another.
        values.sort_by(|a, b| b.expose().len().cmp(&a.expose().len()).then_with(|| a.expose().cmp(b.expose())));
        values.dedup_by(|a, b| a.expose() == b.expose());
        Self(values.into())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if `text` contains a secret.
    pub fn occur_in(&self, text: &str) -> bool {
        self.0.iter().any(|secret| text.contains(secret.expose()))
    }

    /// Removes the secrets from `text`, and the parts of one that a cut has left before or behind its `…`; returns true if there
    /// was one.
    pub fn redact(&self, text: &mut String) -> bool {
        let mut found = false;
        for secret in self.0.iter().map(Secret::expose) {
            if text.contains(secret) {
                *text = text.replace(secret, HIDDEN);
                found = true;
            }
        }
        if !self.is_empty() && text.contains(CUT) {
            found |= self.redact_cut(text);
        }
        found
    }

    fn redact_cut(&self, text: &mut String) -> bool {
        let mut pieces: Vec<String> = text.split(CUT).map(str::to_owned).collect();
        let (last, mut found) = (pieces.len() - 1, false);
        for (at, piece) in pieces.iter_mut().enumerate() {
            let before_cut = if at < last { self.partial_match_len(piece) } else { 0 };
            if before_cut >= SHORTEST_PART {
                piece.replace_range(piece.len() - before_cut.., HIDDEN);
                found = true;
            }
            let behind_cut = if at > 0 { self.rest_len(piece) } else { 0 };
            if behind_cut >= SHORTEST_PART {
                piece.replace_range(..behind_cut, HIDDEN);
                found = true;
            }
        }
        if found {
            *text = pieces.join(CUT);
        }
        found
    }

    /// Returns how many bytes at the start of `text` are the end of a secret.
    fn rest_len(&self, text: &str) -> usize {
        let rest = |secret: &Secret| {
            let secret = secret.expose().as_bytes();
            (1..secret.len()).find(|at| text.as_bytes().starts_with(&secret[*at..])).map(|at| secret.len() - at)
        };
        self.0.iter().filter_map(rest).max().unwrap_or(0)
    }

    /// Returns how many bytes at the end of `text` may be the start of a secret, which the following text decides.
    pub fn partial_match_len(&self, text: &str) -> usize {
        let open = |secret: &Secret| {
            let secret = secret.expose().as_bytes();
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
    fn parts_of_secrets_beside_a_cut_are_removed() {
        let secrets = KnownSecrets::new(["sk-canary-1", "sk-canary-1-more", "密钥在这里"].map(Secret::new));
        for (text, expected) in [
            ("a sk-canary… and sk-can…", "a (hidden)… and (hidden)…"),
            ("…anary-1-more, …more, …密钥在这里", "…(hidden), …more, …(hidden)"),
            ("…sk-canary-1…密钥…", "…(hidden)…(hidden)…"),
            ("…在这里…在这里", "…(hidden)…(hidden)"),
            ("s… sk-… sk-canary", "s… sk-… sk-canary"),
        ] {
            let mut redacted = text.to_owned();
            assert_eq!(secrets.redact(&mut redacted), text != expected, "{text}");
            assert_eq!(redacted, expected);
        }
    }
}
