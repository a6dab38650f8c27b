//! Addresses of a service: `base_url` in any usual form, and the addresses below it.

use reqwest::Url;

use crate::guard::mask_url;
use crate::llm::ProviderKind;
use crate::llm::services::KnownService;

/// The request paths of each protocol, that of chats first. If a `base_url` ends in one of them, that end is removed.
const CHAT_COMPLETIONS: &[&[&str]] = &[&["chat", "completions"], &["embeddings"], &["models"]];
const MESSAGES: &[&[&str]] = &[&["messages"], &["models"]];

/// The request paths of other protocols, with the names of these.
const OTHERS: &[(&[&str], &str)] = &[
    (&["chat", "completions"], "OpenAI's chat completions: set kind = \"openai\""),
    (&["messages"], "Anthropic's Messages: set kind = \"anthropic\""),
    (&["responses"], "OpenAI's Responses, which daoyou does not speak"),
    (&["completions"], "OpenAI's old completions, which daoyou does not speak"),
    (&["complete"], "Anthropic's old completions, which daoyou does not speak"),
    (&["realtime"], "OpenAI's Realtime, which daoyou does not speak"),
    (&["api", "chat"], "Ollama's own protocol, which daoyou does not speak"),
    (&["api", "generate"], "Ollama's own protocol, which daoyou does not speak"),
];

/// Returns the base of a service's addresses from `base_url` in any usual form: with or without the version, with a
/// trailing slash, or with the whole path of a request. If only the host is given, the path of a known service is
/// added, otherwise `/v1`.
///
/// # Errors
/// The text names the fault of the address and, if possible, a valid address.
pub(in crate::llm) fn base(given: &str, kind: ProviderKind) -> Result<Url, String> {
    let given = given.trim();
    let mut url = match Url::parse(given) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.host_str().is_some() => url,
        Err(error) if given.contains("://") => return Err(format!("{:?} is not a URL ({error})", mask_url(given))),
        _ => return Err(format!("{:?} must begin with http:// or https://", mask_url(given))),
    };
    let shown = display_address(&url);
    if url.fragment().is_some_and(|fragment| !fragment.is_empty()) {
        return Err(format!("{shown} is the address of a page in a browser; leave out what follows the #"));
    }
    url.set_fragment(None);
    let whole: Vec<String> = url.path().split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let own = if kind == ProviderKind::Anthropic { MESSAGES } else { CHAT_COMPLETIONS };
    let ends_with = |end: &&[&str]| whole.len() >= end.len() && whole[whole.len() - end.len()..] == **end;
    let strip = |end: &[&str]| whole[..whole.len() - end.len()].to_vec();
    if let Some(end) = own.iter().find(|end| ends_with(end)) {
        return Ok(with_path(&url, &strip(end)));
    }
    if let Some((end, what)) = OTHERS.iter().find(|(end, _)| ends_with(end)) {
        let instead = with_path(&url, &complete(&url, kind, strip(end)));
        return Err(format!("{shown} is an address of {what}; the base would be {}", display_address(&instead)));
    }
    if whole.last().is_some_and(|part| part.contains(':')) {
        return Err(format!("{shown} is an address of another protocol, which daoyou does not speak"));
    }
    Ok(with_path(&url, &complete(&url, kind, whole)))
}

/// Returns the segments of a base path, with the parts added that people omit.
fn complete(url: &Url, kind: ProviderKind, mut parts: Vec<String>) -> Vec<String> {
    if let Some(service) = KnownService::at(url).filter(|service| service.kind == kind) {
        let known: Vec<&str> = service.path().collect();
        if parts.len() <= known.len() && parts.iter().zip(&known).all(|(part, known)| part == known) {
            return known.into_iter().map(str::to_owned).collect();
        }
    }
    let lacks_version = match kind {
        // The official clients of the Messages API add the version to any base.
        ProviderKind::Anthropic => !parts.last().is_some_and(|part| is_version(part)),
        // The official clients of chat completions do not: the path may have the version anywhere, or not at all.
        ProviderKind::Openai | ProviderKind::Offline => parts.is_empty(),
    };
    if lacks_version {
        parts.push("v1".to_owned());
    }
    parts
}

/// Returns true for a version such as `v1`, `v4` or `v1beta`.
fn is_version(part: &str) -> bool {
    part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|char: char| char.is_ascii_digit()))
}

fn with_path(url: &Url, parts: &[String]) -> Url {
    let mut url = url.clone();
    url.set_path(&parts.join("/"));
    url
}

/// Returns other bases that a service at `base` may have: with `/v1` appended, or without the version at the end; and `/v1` at
/// the root.
pub(super) fn alternatives(base: &Url) -> Vec<Url> {
    let parts: Vec<String> = base.path().split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let mut found: Vec<Url> = Vec::new();
    if parts.last().is_some_and(|part| is_version(part)) {
        found.push(with_path(base, &parts[..parts.len() - 1]));
    } else {
        found.push(with_path(base, &[parts, vec!["v1".to_owned()]].concat()));
    }
    let root = with_path(base, &["v1".to_owned()]);
    if root != *base && !found.contains(&root) {
        found.push(root);
    }
    found
}

pub(super) fn below(base: &Url, path: &[&str]) -> Url {
    let mut url = base.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path);
    }
    url
}

/// Returns an address without parts that may be secret.
pub(crate) fn display_address(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path().trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    use ProviderKind::{Anthropic, Openai};

    /// The given base, the protocol, and the address of chats or a part of the error.
    #[test]
    fn any_form_of_an_address_leads_to_the_same_place() {
        let table: &[(&[&str], ProviderKind, &str)] = &[
            (
                &[
                    "http://h:8000",
                    "http://h:8000/",
                    "http://h:8000/v1",
                    " http://h:8000/v1/ ",
                    "http://h:8000//v1//",
                    "http://h:8000/v1/chat/completions",
                    "http://h:8000/v1/chat/completions/",
                    "http://h:8000/v1/models",
                    "http://h:8000/v1/embeddings",
                    "http://h:8000/v1#",
                ],
                Openai,
                "http://h:8000/v1/chat/completions",
            ),
            (
                &[
                    "http://h", "http://h/", "http://h/v1", "http://h/v1/", "http://h/v1/messages",
                    "http://h/v1/messages/", "http://h/v1/models",
                ],
                Anthropic,
                "http://h/v1/messages",
            ),
            (&["http://h/anthropic", "http://h/anthropic/v1/messages"], Anthropic, "http://h/anthropic/v1/messages"),
            (&["http://h/v1/ACCOUNT/anthropic"], Anthropic, "http://h/v1/ACCOUNT/anthropic/v1/messages"),
            (
                &["https://api.anthropic.com", "https://api.anthropic.com/v1"],
                Anthropic,
                "https://api.anthropic.com/v1/messages",
            ),
            (&["https://api.deepseek.com/anthropic"], Anthropic, "https://api.deepseek.com/anthropic/v1/messages"),
            (
                &["https://api.openai.com", "https://api.openai.com/v1/", "https://api.openai.com/v1/chat/completions"],
                Openai,
                "https://api.openai.com/v1/chat/completions",
            ),
            (
                &["https://openrouter.ai", "https://openrouter.ai/api", "https://openrouter.ai/api/v1"],
                Openai,
                "https://openrouter.ai/api/v1/chat/completions",
            ),
            (
                &["https://api.groq.com", "https://api.groq.com/openai/", "https://api.groq.com/openai/v1"],
                Openai,
                "https://api.groq.com/openai/v1/chat/completions",
            ),
            (
                &["https://open.bigmodel.cn", "https://open.bigmodel.cn/api/paas/v4/chat/completions"],
                Openai,
                "https://open.bigmodel.cn/api/paas/v4/chat/completions",
            ),
            (&["http://h/chat/completions"], Openai, "http://h/chat/completions"),
            (&["https://api.perplexity.ai"], Openai, "https://api.perplexity.ai/chat/completions"),
            (
                &["https://generativelanguage.googleapis.com/v1beta"],
                Openai,
                "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
            ),
            (
                &["http://h/openai?api-version=1", "http://h/openai/chat/completions?api-version=1"],
                Openai,
                "http://h/openai/chat/completions?api-version=1",
            ),
        ];
        for (forms, kind, expected) in table {
            for form in *forms {
                let base = base(form, *kind).unwrap();
                let path: &[&str] = if *kind == Anthropic { &["messages"] } else { &["chat", "completions"] };
                assert_eq!(below(&base, path).as_str(), *expected, "{form}");
            }
        }
    }

    #[test]
    fn invalid_bases_are_refused_with_a_suggestion() {
        for (given, kind, words) in [
            ("", Openai, "must begin with http:// or https://"),
            ("api.openai.com/v1", Openai, "must begin with http:// or https://"),
            ("localhost:8000", Openai, "must begin with http:// or https://"),
            ("ftp://h/v1", Openai, "must begin with http:// or https://"),
            ("http://", Openai, "is not a URL"),
            ("http://h/#/settings", Openai, "a page in a browser"),
            (
                "http://h/v1/responses",
                Openai,
                "OpenAI's Responses, which daoyou does not speak; the base would be http://h/v1",
            ),
            ("http://h/v1/completions", Openai, "old completions"),
            ("http://h/v1/messages", Openai, "set kind = \"anthropic\"; the base would be http://h/v1"),
            ("http://h/v1/chat/completions", Anthropic, "set kind = \"openai\"; the base would be http://h/v1"),
            (
                "http://h:11434/api/chat",
                Openai,
                "Ollama's own protocol, which daoyou does not speak; the base would be http://h:11434/v1",
            ),
            ("https://h/v1beta/models/g:generateContent", Openai, "another protocol"),
            ("http://h/v1/responses?key=canary", Openai, "http://h/v1/responses is an address"),
        ] {
            let error = base(given, kind).unwrap_err();
            assert!(error.contains(words) && !error.contains("canary"), "{given}: {error}");
        }
    }

    #[test]
    fn other_bases_of_a_service() {
        for (given, others) in [
            ("http://h/v1", &["http://h/"][..]),
            ("http://h/proxy", &["http://h/proxy/v1", "http://h/v1"]),
            ("http://h/proxy/v1", &["http://h/proxy", "http://h/v1"]),
        ] {
            let found: Vec<_> = alternatives(&Url::parse(given).unwrap()).iter().map(Url::to_string).collect();
            assert_eq!(found, others);
        }
    }
}
