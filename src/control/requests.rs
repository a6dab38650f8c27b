//! The HTTP request of each query and change.

use std::fmt::Display;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use reqwest::Method;
use serde_json::json;

use crate::query::{
    ApprovalAnswer, GatewayQuery, JobChange, JobQuery, ManualToolRun, MemoryChange, MemoryQuery, MemorySelection,
    ProbeScope, RetryClass, StoreChange, StoreQuery, TokenChange, with_name_end,
};

/// A request to the API of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlRequest {
    pub method: Method,
    pub path: String,
    pub body: String,
}

impl ControlRequest {
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path)
    }

    fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path)
    }

    fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), body: String::new() }
    }

    fn with_body(self, body: impl Display) -> Self {
        Self { body: body.to_string(), ..self }
    }
}

/// A query or change that the API of the gateway answers.
pub trait ToRequest {
    fn request(&self) -> ControlRequest;
}

/// The characters that [`escape`] replaces.
const RESERVED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':').remove(b'@');

impl ToRequest for StoreQuery {
    fn request(&self) -> ControlRequest {
        ControlRequest::get(match self {
            Self::Sessions => "/api/sessions".to_owned(),
            Self::Session(key) => format!("/api/sessions/{}", segment(key)),
            Self::Transcript(key) => format!("/api/sessions/{}/transcript", segment(key)),
            Self::Turns { session, limit } => {
                with_query("/api/turns", [("session", session.clone()), ("limit", text(*limit))])
            }
            Self::Turn(id) => format!("/api/turns/{}", segment(id)),
            Self::Queue => "/api/queue".to_owned(),
            Self::Approvals => "/api/approvals".to_owned(),
            Self::QueueEntry(id) => format!("/api/queue/{id}"),
        })
    }
}

impl ToRequest for StoreChange {
    fn request(&self) -> ControlRequest {
        let path = match self {
            Self::ClearSession(key) => return ControlRequest::delete(format!("/api/sessions/{}", segment(key))),
            Self::Drop(id) => return ControlRequest::delete(format!("/api/queue/{id}")),
            Self::Restore(turn) => format!("/api/turns/{}/restore", segment(turn)),
            Self::Fork { turn, session } => {
                with_query(&format!("/api/turns/{}/fork", segment(turn)), [("session", session.clone())])
            }
            Self::Retry(id) => format!("/api/queue/{id}/retry"),
            Self::RetryAll(classes) => {
                let classes: Vec<_> = classes.iter().copied().map(RetryClass::as_str).collect();
                format!("/api/queue/retry?outcomes={}", classes.join(","))
            }
            Self::AnswerApproval { id, answer } => {
                let path = format!("/api/approvals/{}", segment(id));
                match answer {
                    ApprovalAnswer::Approve { for_session: false } => format!("{path}/approve"),
                    ApprovalAnswer::Approve { for_session: true } => format!("{path}/approve?session=true"),
                    ApprovalAnswer::Deny { reason } => {
                        with_query(&format!("{path}/deny"), [("reason", Some(reason.clone()))])
                    }
                }
            }
            Self::Acknowledge => "/api/losses/acknowledge".to_owned(),
        };
        ControlRequest::post(path)
    }
}

impl ToRequest for TokenChange {
    fn request(&self) -> ControlRequest {
        match self {
            Self::Add { name, scope, reuse } => {
                ControlRequest::post("/api/tokens").with_body(json!({ "name": name, "scope": scope, "reuse": reuse }))
            }
            Self::Revoke(name) => ControlRequest::delete(format!("/api/tokens/{}", segment(name))),
        }
    }
}

impl ToRequest for JobQuery {
    fn request(&self) -> ControlRequest {
        ControlRequest::get(match self {
            Self::List => "/api/cron".to_owned(),
            Self::Show(job) => job_path(job, ""),
            Self::History { job, limit } => job_path(job, &format!("/history?limit={limit}")),
            Self::Export => "/api/cron/export".to_owned(),
        })
    }
}

impl ToRequest for JobChange {
    fn request(&self) -> ControlRequest {
        match self {
            Self::Add(job) => ControlRequest::post("/api/cron").with_body(job),
            Self::Edit { job, fields } => ControlRequest::new(Method::PATCH, job_path(job, "")).with_body(fields),
            Self::Remove(job) => ControlRequest::delete(job_path(job, "")),
            Self::Enable(job) => ControlRequest::post(job_path(job, "/enable")),
            Self::Disable(job) => ControlRequest::post(job_path(job, "/disable")),
            Self::Run(job) => ControlRequest::post(job_path(job, "/run")),
            Self::Import(text) => ControlRequest::post("/api/cron/import").with_body(text),
        }
    }
}

/// The paths of `/api/cron` that are not names of jobs.
const BESIDE_JOBS: [&str; 3] = ["export", "import", "preview"];

fn job_path(job: &str, rest: &str) -> String {
    let name = if BESIDE_JOBS.contains(&job) { &with_name_end(job) } else { job };
    format!("/api/cron/{}{rest}", segment(name))
}

impl ToRequest for MemoryQuery {
    fn request(&self) -> ControlRequest {
        let selected =
            |MemorySelection { owner, kind }: &MemorySelection| [("owner", owner.clone()), ("kind", kind.clone())];
        ControlRequest::get(match self {
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
            Self::SearchMessages { text: wanted, session, since, limit } => {
                let query = [("q", Some(wanted.clone())), ("session", session.clone())].into_iter();
                with_query("/api/search", query.chain([("since", since.clone()), ("limit", text(*limit))]))
            }
        })
    }
}

impl ToRequest for MemoryChange {
    fn request(&self) -> ControlRequest {
        match self {
            Self::Add(entry) => ControlRequest::post("/api/memory").with_body(entry),
            Self::Edit { id, text } => {
                ControlRequest::new(Method::PATCH, format!("/api/memory/{id}")).with_body(json!({ "content": text }))
            }
            Self::Forget(ids) => ControlRequest::post("/api/memory/forget").with_body(json!({ "ids": ids })),
            Self::Import(lines) => ControlRequest::post("/api/memory/import").with_body(lines),
            Self::ImportSession { text, session, owner } => {
                let query = [("session", session.clone()), ("owner", owner.clone())];
                ControlRequest::post(with_query("/api/sessions", query)).with_body(text)
            }
        }
    }
}

impl ToRequest for GatewayQuery {
    fn request(&self) -> ControlRequest {
        ControlRequest::get(match self {
            Self::Status => "/api/status".to_owned(),
            Self::Channels => "/api/channels".to_owned(),
            Self::TestChannel(name) => format!("/api/channels/{}/test", segment(name)),
            Self::Models(ProbeScope::None) => "/api/models".to_owned(),
            Self::Models(ProbeScope::All) => "/api/models?ask=*".to_owned(),
            Self::Models(ProbeScope::One(name)) => with_query("/api/models", [("ask", Some(name.clone()))]),
            Self::Tools => "/api/tools".to_owned(),
            Self::Skills => "/api/skills".to_owned(),
            Self::Skill(name) => format!("/api/skills/{}", segment(name)),
            Self::Agents => "/api/agents".to_owned(),
            Self::Agent(name) => format!("/api/agents/{}", segment(name)),
            Self::McpServers => "/api/mcp".to_owned(),
            Self::McpTools(name) => format!("/api/mcp/{}/tools", segment(name)),
            Self::TestMcp(name) => format!("/api/mcp/{}/test", segment(name)),
            Self::Prompt { session, message } => {
                with_query("/api/prompt", [("session", session.clone()), ("message", message.clone())])
            }
            Self::Cost { from, to } => with_query("/api/cost", [("from", from.clone()), ("to", to.clone())]),
            Self::Config => "/api/config".to_owned(),
            Self::Checks => "/api/checks".to_owned(),
        })
    }
}

impl ToRequest for ManualToolRun {
    fn request(&self) -> ControlRequest {
        let body = json!({ "arguments": self.arguments, "raw": self.is_whole, "query": self.question });
        ControlRequest::post(format!("/api/tools/{}/run", segment(&self.name))).with_body(body)
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

/// Returns a name as a segment of a path. URLs are normalized without empty and dot segments.
fn segment(name: &str) -> String {
    let name = if matches!(name, "" | "." | "..") { &with_name_end(name) } else { name };
    escape(name).to_string()
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
            ("", "/api/sessions/%00"),
            ("..", "/api/sessions/..%00"),
            ("...", "/api/sessions/..."),
        ] {
            assert_eq!(StoreQuery::Session(key.to_owned()).request(), ControlRequest::get(path));
        }
    }

    #[test]
    fn a_job_may_have_the_name_of_another_path() {
        let operations = include_str!("../http/api/openapi.txt").lines();
        let paths = operations.filter_map(|line| line.split_whitespace().nth(1)?.strip_prefix("/api/cron/"));
        let beside: Vec<_> = paths.filter(|path| !path.starts_with('{')).collect();
        assert!(!beside.is_empty() && beside.iter().all(|name| BESIDE_JOBS.contains(name)), "{beside:?}");
        assert_eq!(JobQuery::Show("export".to_owned()).request(), ControlRequest::get("/api/cron/export%00"));
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
            assert_eq!(query.request(), ControlRequest::get(path));
        }
    }
}
