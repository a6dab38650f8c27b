//! The language of the texts that daoyou itself writes; a model answers in the user's.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::Language;

/// `agent.locale`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LocaleSetting {
    /// The language of the environment.
    #[default]
    Auto,
    En,
    Zh,
}

impl LocaleSetting {
    /// Returns the language that the setting selects.
    pub fn resolve(self) -> Language {
        match self {
            Self::En => Language::En,
            Self::Zh => Language::Zh,
            Self::Auto => of_environment(|name| std::env::var(name).ok()),
        }
    }
}

/// Returns the language of messages that the environment asks for, by the first of its variables that is set
/// (POSIX, Environment Variables, section 8.2).
fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Language {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    match ["LC_ALL", "LC_MESSAGES", "LANG"].into_iter().find_map(set) {
        Some(locale) if locale.to_ascii_lowercase().starts_with("zh") => Language::Zh,
        _ => Language::En,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_is_that_of_the_environment() {
        for (set, expected) in [
            (&[("LANG", "zh_CN.UTF-8")][..], Language::Zh),
            (&[("LANG", "zh_TW")], Language::Zh),
            (&[("LANG", "zh_CN.UTF-8"), ("LC_ALL", "en_US.UTF-8")], Language::En),
            (&[("LANG", "en_US.UTF-8"), ("LC_MESSAGES", "zh_CN.UTF-8")], Language::Zh),
            (&[("LANG", "zh_CN.UTF-8"), ("LC_ALL", "")], Language::Zh),
            (&[("LANG", "C.UTF-8")], Language::En),
            (&[], Language::En),
        ] {
            let find = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            assert_eq!(of_environment(find), expected, "{set:?}");
        }
        assert_eq!((LocaleSetting::En.resolve(), LocaleSetting::Zh.resolve()), (Language::En, Language::Zh));
    }
}
