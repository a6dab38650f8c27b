//! The HTTP request of each query and change.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use reqwest::Method;
use serde_json::json;

use crate::query::{
    ApprovalAnswer, GatewayQuery, JobChange, JobQuery, ManualToolRun, MemoryChange, MemoryQuery, MemorySelection,
    ProbeScope, RetryClass, StoreChange, StoreQuery, TokenChange,
};

/// The characters that [`escape`] replaces.
const RESERVED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':').remove(b'@');

impl StoreQuery {
    /// Returns the path of the API that answers the query.
    pub fn path(&self) -> String {
        match self {
            Self::Sessions => "/api/sessions".to_owned(),
            Self::Session(key) => format!("/api/sessions/{}", escape(key)),
            Self::Transcript(key) => format!("/api/sessions/{}/transcript", escape(key)),
            Self::Turns { session, limit } => {
                with_query("/api/turns", [("session", session.clone()), ("limit", text(*limit))])
            }
            Self::Turn(id) => format!("/api/turns/{}", escape(id)),
            Self::Queue => "/api/queue".to_owned(),
            Self::Approvals => "/api/approvals".to_owned(),
            Self::QueueEntry(id) => format!("/api/queue/{id}"),
        }
    }
}

impl StoreChange {
    /// Returns the method and the path of the API that makes the change.
    pub fn request(&self) -> (Method, String) {
        match self {
            Self::ClearSession(key) => (Method::DELETE, format!("/api/sessions/{}", escape(key))),
            Self::Restore(turn) => (Method::POST, format!("/api/turns/{}/restore", escape(turn))),
            Self::Fork { turn, session } => {
                let path = format!("/api/turns/{}/fork", escape(turn));
                (Method::POST, with_query(&path, [("session", session.clone())]))
            }
            Self::Retry(id) => (Method::POST, format!("/api/queue/{id}/retry")),
            Self::RetryAll(classes) => {
                let classes: Vec<_> = classes.iter().copied().map(RetryClass::as_str).collect();
                (Method::POST, format!("/api/queue/retry?outcomes={}", classes.join(",")))
            }
            Self::Drop(id) => (Method::DELETE, format!("/api/queue/{id}")),
            Self::AnswerApproval { id, answer } => {
                let path = format!("/api/approvals/{}", escape(id));
                let path = match answer {
                    ApprovalAnswer::Approve { for_session: false } => format!("{path}/approve"),
                    ApprovalAnswer::Approve { for_session: true } => format!("{path}/approve?session=true"),
                    ApprovalAnswer::Deny { reason } => {
                        with_query(&format!("{path}/deny"), [("reason", Some(reason.clone()))])
                    }
                };
                (Method::POST, path)
            }
            Self::Acknowledge => (Method::POST, "/api/losses/acknowledge".to_owned()),
        }
    }
}

impl TokenChange {
    /// Returns the method, the path and the body of the API that makes the change.
    pub fn request(&self) -> (Method, String, String) {
        match self {
            Self::Add { name, scope, reuse } => {
                let body = json!({ "name": name, "scope": scope, "reuse": reuse });
                (Method::POST, "/api/tokens".to_owned(), body.to_string())
            }
            Self::Revoke(name) => (Method::DELETE, format!("/api/tokens/{}", escape(name)), String::new()),
        }
    }
}

impl JobQuery {
    /// Returns the path of the API that answers the query.
    pub fn path(&self) -> String {
        match self {
            Self::List => "/api/cron".to_owned(),
            Self::Show(job) => job_path(job, ""),
            Self::History { job, limit } => job_path(job, &format!("/history?limit={limit}")),
            Self::Export => "/api/cron/export".to_owned(),
        }
    }
}

impl JobChange {
    /// Returns the method, the path and the body of the API that makes the change.
    pub fn request(&self) -> (Method, String, String) {
        let (method, path, body) = match self {
            Self::Add(job) => (Method::POST, "/api/cron".to_owned(), job.to_string()),
            Self::Edit { job, fields } => (Method::PATCH, job_path(job, ""), fields.to_string()),
            Self::Remove(job) => (Method::DELETE, job_path(job, ""), String::new()),
            Self::Enable(job) => (Method::POST, job_path(job, "/enable"), String::new()),
            Self::Disable(job) => (Method::POST, job_path(job, "/disable"), String::new()),
            Self::Run(job) => (Method::POST, job_path(job, "/run"), String::new()),
            Self::Import(text) => (Method::POST, "/api/cron/import".to_owned(), text.clone()),
        };
        (method, path, body)
    }
}

fn job_path(job: &str, rest: &str) -> String {
    format!("/api/cron/{}{rest}", escape(job))
}

impl MemoryQuery {
    /// Returns the path of the API that answers the query.
    pub fn path(&self) -> String {
        let selected =
            |MemorySelection { owner, kind }: &MemorySelection| [("owner", owner.clone()), ("kind", kind.clone())];
        match self {
            Self::List { selection, limit } => {
                with_query("/api/memory", selected(selection).into_iter().chain([("limit", text(*limit))]))
            }
            Self::Show(id) => format!("/api/memory/{id}"),
            Self::Search { text: wanted, selection, since, limit } => {
                let query = [("q", Some(wanted.clone()))].into_iter().chain(selected(selection));
                with_query("/api/memory/search", query.chain([("since", since.clone()), ("limit", text(*limit))]))
            }
            Self::Export(selection) => with_query("/api/memory/export", selected(selection)),
            Self::Stats => "/api/memory/stats".to_owned(),
            Self::SearchMessages { text: wanted, session, since, limit } => with_query(
                "/api/search",
                [
                    ("q", Some(wanted.clone())),
                    ("session", session.clone()),
                    ("since", since.clone()),
                    ("limit", text(*limit)),
                ],
            ),
        }
    }
}

impl MemoryChange {
    /// Returns the method, the path and the body of the API that makes the change.
    pub fn request(&self) -> (Method, String, String) {
        let (path, body) = match self {
            Self::Add(entry) => ("/api/memory".to_owned(), entry.to_string()),
            Self::Edit { id, text } => {
                return (Method::PATCH, format!("/api/memory/{id}"), json!({ "content": text }).to_string());
            }
            Self::Forget(ids) => ("/api/memory/forget".to_owned(), json!({ "ids": ids }).to_string()),
            Self::Import(lines) => ("/api/memory/import".to_owned(), lines.clone()),
            Self::ImportSession { text, session, owner } => {
                let query = [("session", session.clone()), ("owner", owner.clone())];
                (with_query("/api/sessions", query), text.clone())
            }
        };
        (Method::POST, path, body)
    }
}

impl GatewayQuery {
    /// Returns the path of the API that answers the query.
    pub fn path(&self) -> String {
        match self {
            Self::Status => "/api/status".to_owned(),
            Self::Channels => "/api/channels".to_owned(),
            Self::TestChannel(name) => format!("/api/channels/{}/test", escape(name)),
            Self::Models(ProbeScope::None) => "/api/models".to_owned(),
            Self::Models(ProbeScope::All) => "/api/models?ask=*".to_owned(),
            Self::Models(ProbeScope::One(name)) => with_query("/api/models", [("ask", Some(name.clone()))]),
            Self::Tools => "/api/tools".to_owned(),
            Self::Skills => "/api/skills".to_owned(),
            Self::Skill(name) => format!("/api/skills/{}", escape(name)),
            Self::Agents => "/api/agents".to_owned(),
            Self::Agent(name) => format!("/api/agents/{}", escape(name)),
            Self::McpServers => "/api/mcp".to_owned(),
            Self::McpTools(name) => format!("/api/mcp/{}/tools", escape(name)),
            Self::TestMcp(name) => format!("/api/mcp/{}/test", escape(name)),
            Self::Prompt { session, message } => {
                with_query("/api/prompt", [("session", session.clone()), ("message", message.clone())])
            }
            Self::Cost { from, to } => with_query("/api/cost", [("from", from.clone()), ("to", to.clone())]),
            Self::Config => "/api/config".to_owned(),
            Self::Checks => "/api/checks".to_owned(),
        }
    }
}

impl ManualToolRun {
    /// The method, the path and the body of the API that runs it.
    pub fn request(&self) -> (Method, String, String) {
        let body = json!({ "arguments": self.arguments, "raw": self.is_whole, "query": self.question }).to_string();
        (Method::POST, format!("/api/tools/{}/run", escape(&self.name)), body)
    }
}

fn text(limit: Option<u32>) -> Option<String> {
    limit.map(|limit| limit.to_string())
}

/// Appends the parameters that have a value.
fn with_query(path: &str, parameters: impl IntoIterator<Item = (&'static str, Option<String>)>) -> String {
    let set = parameters.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", escape(&value?))));
    let set: Vec<_> = set.collect();
    if set.is_empty() { path.to_owned() } else { format!("{path}?{}", set.join("&")) }
}

/// Escapes a segment or a parameter of a URL (RFC 3986, section 2.1).
fn escape(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, RESERVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stays_one_segment_of_the_path() {
        for (key, path) in [
            ("cli:direct", "/api/sessions/cli:direct"),
            ("email:<a@b>", "/api/sessions/email:%3Ca@b%3E"),
            ("a/b ?#道", "/api/sessions/a%2Fb%20%3F%23%E9%81%93"),
        ] {
            assert_eq!(StoreQuery::Session(key.to_owned()).path(), path);
        }
    }

    #[test]
    fn set_parameters_are_in_the_path() {
        let selection =
            MemorySelection { owner: Some("email:a b@example.org".to_owned()), kind: Some("fact".to_owned()) };
        let text = "猫 & dog?".to_owned();
        for (query, path) in [
            (MemoryQuery::List { selection: MemorySelection::default(), limit: None }, "/api/memory"),
            (
                MemoryQuery::Search { text, selection, since: Some("7d".to_owned()), limit: Some(3) },
                "/api/memory/search?q=%E7%8C%AB%20%26%20dog%3F&owner=email:a%20b@example.org&kind=fact&since=7d&limit=3",
            ),
            (MemoryQuery::Export(MemorySelection::default()), "/api/memory/export"),
        ] {
            assert_eq!(query.path(), path);
        }
    }
}
