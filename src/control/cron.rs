//! What the commands ask about jobs.

use reqwest::Method;
use serde_json::Value;

use super::request::escape;

/// Something to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobQuery {
    List,
    /// By its id or its name, as in all that follows.
    Show(String),
    History {
        job: String,
        limit: u32,
    },
    /// As a `cron.json`.
    Export,
}

/// Something to change.
#[derive(Clone, Debug, PartialEq)]
pub enum JobChange {
    /// As JSON, with the fields of [`AskedJob`](crate::cron::AskedJob).
    Add(Value),
    Remove(String),
    Enable(String),
    Disable(String),
    Run(String),
    /// The text of a `cron.json`.
    Import(String),
}

impl JobQuery {
    /// Where the API answers it.
    pub fn path(&self) -> String {
        match self {
            Self::List => "/api/cron".to_owned(),
            Self::Show(job) => one(job, ""),
            Self::History { job, limit } => one(job, &format!("/history?limit={limit}")),
            Self::Export => "/api/cron/export".to_owned(),
        }
    }
}

impl JobChange {
    /// How the API is asked for it, and with what.
    pub fn request(&self) -> (Method, String, String) {
        let (method, path, body) = match self {
            Self::Add(job) => (Method::POST, "/api/cron".to_owned(), job.to_string()),
            Self::Remove(job) => (Method::DELETE, one(job, ""), String::new()),
            Self::Enable(job) => (Method::POST, one(job, "/enable"), String::new()),
            Self::Disable(job) => (Method::POST, one(job, "/disable"), String::new()),
            Self::Run(job) => (Method::POST, one(job, "/run"), String::new()),
            Self::Import(text) => (Method::POST, "/api/cron/import".to_owned(), text.clone()),
        };
        (method, path, body)
    }
}

fn one(job: &str, then: &str) -> String {
    format!("/api/cron/{}{then}", escape(job))
}
