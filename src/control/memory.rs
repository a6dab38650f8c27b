//! What the commands ask of the memory.

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::request::escape;

/// Whose memories, and of which kind; as [`Selection`](crate::memory::Selection) reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Whom {
    /// Everybody's without.
    pub owner: Option<String>,
    pub kind: Option<String>,
}

/// Something to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryQuery {
    /// So many at most, the newest first.
    List {
        whom: Whom,
        limit: Option<u32>,
    },
    /// One, and what it replaced.
    Show(i64),
    Search {
        text: String,
        whom: Whom,
        /// How long ago, a date, or a time.
        since: Option<String>,
        limit: Option<u32>,
    },
    Export(Whom),
    Stats,
    /// What was said, in all sessions or in one.
    Said {
        text: String,
        session: Option<String>,
        since: Option<String>,
        limit: Option<u32>,
    },
}

/// Something to change.
#[derive(Clone, Debug, PartialEq)]
pub enum MemoryChange {
    /// As JSON, with the fields of [`AskedEntry`](crate::memory::AskedEntry).
    Add(Value),
    Forget(Vec<i64>),
    /// Lines of an export.
    Import(String),
    /// A conversation's file, as a new session.
    ImportSession {
        text: String,
        session: Option<String>,
        owner: Option<String>,
    },
}

impl Whom {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let owner = self.owner.iter().map(|owner| ("owner", owner.clone()));
        let kind = self.kind.iter().map(|kind| ("kind", kind.clone()));
        owner.chain(kind).collect()
    }
}

impl MemoryQuery {
    /// Where the API answers it.
    pub fn path(&self) -> String {
        let limited = |limit: &Option<u32>| limit.map(|limit| ("limit", limit.to_string()));
        match self {
            Self::List { whom, limit } => with("/api/memory", whom.pairs().into_iter().chain(limited(limit))),
            Self::Show(id) => format!("/api/memory/{id}"),
            Self::Search { text, whom, since, limit } => {
                let since = since.iter().map(|since| ("since", since.clone()));
                let asked = [("q", text.clone())].into_iter().chain(whom.pairs()).chain(since).chain(limited(limit));
                with("/api/memory/search", asked)
            }
            Self::Export(whom) => with("/api/memory/export", whom.pairs().into_iter()),
            Self::Stats => "/api/memory/stats".to_owned(),
            Self::Said { text, session, since, limit } => {
                let session = session.iter().map(|session| ("session", session.clone()));
                let since = since.iter().map(|since| ("since", since.clone()));
                with("/api/search", [("q", text.clone())].into_iter().chain(session).chain(since).chain(limited(limit)))
            }
        }
    }
}

impl MemoryChange {
    /// How the API is asked for it, and with what.
    pub fn request(&self) -> (Method, String, String) {
        let (path, body) = match self {
            Self::Add(entry) => ("/api/memory".to_owned(), entry.to_string()),
            Self::Forget(ids) => ("/api/memory/forget".to_owned(), json!({ "ids": ids }).to_string()),
            Self::Import(lines) => ("/api/memory/import".to_owned(), lines.clone()),
            Self::ImportSession { text, session, owner } => {
                let session = session.iter().map(|session| ("session", session.clone()));
                let owner = owner.iter().map(|owner| ("owner", owner.clone()));
                (with("/api/sessions", session.chain(owner)), text.clone())
            }
        };
        (Method::POST, path, body)
    }
}

/// A path with what is asked.
pub(super) fn with(path: &str, asked: impl Iterator<Item = (&'static str, String)>) -> String {
    let asked: Vec<_> = asked.map(|(name, value)| format!("{name}={}", escape(&value))).collect();
    if asked.is_empty() { path.to_owned() } else { format!("{path}?{}", asked.join("&")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_stands_in_the_path() {
        let whom = Whom { owner: Some("email:a b@example.org".to_owned()), kind: Some("fact".to_owned()) };
        let text = "猫 & dog?".to_owned();
        for (query, path) in [
            (MemoryQuery::List { whom: Whom::default(), limit: None }, "/api/memory"),
            (
                MemoryQuery::Search { text, whom, since: Some("7d".to_owned()), limit: Some(3) },
                "/api/memory/search?q=%E7%8C%AB%20%26%20dog%3F&owner=email:a%20b@example.org&kind=fact&since=7d&limit=3",
            ),
            (MemoryQuery::Export(Whom::default()), "/api/memory/export"),
        ] {
            assert_eq!(query.path(), path);
        }
    }
}
