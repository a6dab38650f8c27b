//! The secrets that the configuration knows, struck out of what leaves.

use std::fmt;
use std::sync::Arc;

use daoyou_channels::settings::Secret;

use super::redact::HIDDEN;

/// Shorter values stand in ordinary words, and would be struck out of them.
const SHORTEST: usize = 8;

/// Values that nobody outside is to see, without white space around them. Cheap to clone.
#[derive(Clone, Default)]
pub struct Secrets(Arc<[Secret]>);

impl Secrets {
    /// Those of `values` that are long enough to be meant where they stand.
    pub fn new(values: impl IntoIterator<Item = Secret>) -> Self {
        let values = values.into_iter().filter(|secret| secret.expose().trim().len() >= SHORTEST);
        // Trimmed here and not where they are looked for, which is in every piece of every answer.
        let mut values: Vec<Secret> = values.map(|secret| Secret::new(secret.expose().trim())).collect();
        // One secret may stand inside another.
        values.sort_by(|a, b| b.expose().len().cmp(&a.expose().len()).then_with(|| a.expose().cmp(b.expose())));
        values.dedup_by(|a, b| a.expose() == b.expose());
        Self(values.into())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any of them stands in `text`.
    pub fn stand_in(&self, text: &str) -> bool {
        self.0.iter().any(|secret| text.contains(secret.expose()))
    }

    /// Strikes them out of `text`; answers whether there was one.
    pub fn strike(&self, text: &mut String) -> bool {
        let mut found = false;
        for secret in self.0.iter().map(Secret::expose) {
            if text.contains(secret) {
                *text = text.replace(secret, HIDDEN);
                found = true;
            }
        }
        found
    }

    /// How many bytes at the end of `text` may be the beginning of one of them: what comes next will tell.
    pub fn open_at_end(&self, text: &str) -> usize {
        let open = |secret: &Secret| {
            let secret = secret.expose().as_bytes();
            let tail = &text.as_bytes()[text.len() - text.len().min(secret.len() - 1)..];
            let first = tail.iter().enumerate().filter(|(_, byte)| secret.first() == Some(*byte));
            first.map(|(at, _)| &tail[at..]).find(|part| secret.starts_with(part)).map(<[u8]>::len)
        };
        self.0.iter().filter_map(open).max().unwrap_or(0)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_struck_out_and_short_words_are_not() {
        let secrets = Secrets::new(["sk-canary-1", "sk-canary-1-more", "short", " \n", "密钥在这里"].map(Secret::new));
        for (text, expected, open) in [
            ("nothing", "nothing", 0),
            ("a short one", "a short one", 0),
            ("key=sk-canary-1;sk-canary-1-more", "key=(hidden);(hidden)", 0),
            ("密钥在这里!", "(hidden)!", 0),
            ("cut: sk-can", "cut: sk-can", 6),
            ("cut: s", "cut: s", 1),
            ("切 密钥", "切 密钥", 6),
        ] {
            let mut words = text.to_owned();
            assert_eq!(secrets.strike(&mut words), text != expected, "{text}");
            assert_eq!((words.as_str(), secrets.stand_in(text)), (expected, text != expected), "{text}");
            assert_eq!(secrets.open_at_end(&words), open, "{text}");
        }
    }
}
