//! The tool `web_search`.

use std::time::Duration;

use async_trait::async_trait;
use daoyou_channels::settings::Secret;
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::OnceCell;
use url::Url;

use super::config::{SearchService, WebConfig};
use super::failed_answer;
use super::services::{SearchHit, hits, request, service_name};
use crate::guard::Taint;
use crate::llm::{client_builder, is_loopback};
use crate::text::{innermost_cause, one_line, truncate};
use crate::tools::{Tool, ToolContext, ToolDefinition, ToolOutcome, ToolResult, with_arguments};

const DEFAULT_COUNT: u32 = 5;
const TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum size of a service's response, in bytes.
const MAX_BODY: usize = 2_000_000;
/// The maximum lengths of the texts of one hit, in characters.
const TITLE_CHARS: usize = 150;
const SNIPPET_CHARS: usize = 400;
const URL_CHARS: usize = 500;

#[derive(Deserialize, JsonSchema)]
struct WebSearchArgs {
    query: String,
    /// Results, default 5.
    #[schemars(range(min = 1, max = 20))]
    count: Option<u32>,
}

/// The tool `web_search`.
pub struct WebSearch {
    definition: ToolDefinition,
    service: SearchService,
    api_key: Option<Secret>,
    /// The base URL; empty for the service's default.
    base_url: String,
    /// Not the guarded client: the owner has configured the address, which may be on this machine.
    client: OnceCell<Client>,
}

impl WebSearch {
    pub fn new(config: &WebConfig, service: SearchService) -> Self {
        Self {
            definition: ToolDefinition::reading::<WebSearchArgs>(
                "web_search",
                "Search the web: titles, addresses and excerpts.",
            ),
            service,
            api_key: config.api_key.clone(),
            base_url: config.base_url.clone(),
            client: OnceCell::new(),
        }
    }

    async fn search(&self, query: &str, count: u32) -> Result<Vec<SearchHit>, ToolResult> {
        let name = service_name(self.service);
        let failed = |error: reqwest::Error| {
            let why = if error.is_timeout() { "did not answer in time" } else { "cannot be reached" };
            // The error must not contain the address, which may hold a key.
            ToolResult::failed_for_now(format!("{name} {why}: {}", innermost_cause(&error.without_url())))
        };
        let client = self.client.get_or_try_init(async || build_client(&self.base_url)).await.map_err(failed)?;
        let key = self.api_key.as_ref().map(Secret::expose);
        let request: RequestBuilder =
            request(client, self.service, &self.base_url, key, query, count).map_err(ToolResult::failed)?;
        let mut response = request.send().await.map_err(failed)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_BODY {
                return Err(ToolResult::failed(format!("{name} answered with more than {MAX_BODY} bytes")));
            }
        }
        if !status.is_success() || (self.service == SearchService::Duckduckgo && status.as_u16() != 200) {
            let body = truncate(&one_line(&String::from_utf8_lossy(&body)), SNIPPET_CHARS);
            let error = match status.as_u16() {
                401 | 403 => format!("{name} refused the search ({status}): check tools.web.api_key. It said: {body}"),
                _ => format!("{name} answered {status}. It said: {body}"),
            };
            return Err(failed_answer(status, &headers, error));
        }
        let mut found = hits(self.service, &body).map_err(|why| ToolResult::failed(format!("{name}: {why}")))?;
        found.truncate(count as usize);
        Ok(found)
    }
}

fn build_client(base_url: &str) -> Result<Client, reqwest::Error> {
    client_builder(Url::parse(base_url).is_ok_and(|url| is_loopback(&url)), true)
        .user_agent(concat!("Mozilla/5.0 (compatible; daoyou/", env!("CARGO_PKG_VERSION"), ")"))
        .timeout(TIMEOUT)
        // A redirect would send the key and the query to an address that the owner has not configured.
        .redirect(Policy::none())
        .build()
}

#[async_trait]
impl Tool for WebSearch {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn may_taint(&self, _arguments: &Value, _context: &ToolContext) -> bool {
        true
    }

    fn validate(&self, arguments: &Value, _context: &ToolContext) -> Result<(), String> {
        let is_empty = arguments["query"].as_str().is_none_or(|query| query.trim().is_empty());
        if is_empty { Err("query is empty; give the words to search for".to_owned()) } else { Ok(()) }
    }

    async fn call(&self, arguments: Value, _context: &ToolContext) -> ToolOutcome {
        let search = async |args: WebSearchArgs| {
            let query = args.query.trim();
            let mut result = match self.search(query, args.count.unwrap_or(DEFAULT_COUNT)).await {
                Ok(found) if found.is_empty() => ToolResult::ok(format!("Nothing found for {query:?}.")),
                Ok(found) => {
                    let lines = found.iter().enumerate().map(|(index, hit)| format_hit(index + 1, hit));
                    ToolResult::ok(lines.collect::<Vec<_>>().join("\n"))
                }
                Err(failed) => failed,
            };
            result.add_sources(Taint::from([format!("web_search:{}", service_name(self.service))]));
            result
        };
        with_arguments(arguments, search).await
    }
}

fn format_hit(number: usize, hit: &SearchHit) -> String {
    let title = truncate(&one_line(&hit.title), TITLE_CHARS);
    let snippet = truncate(&one_line(&hit.snippet), SNIPPET_CHARS);
    format!("{number}. {title}\n   {}\n   {snippet}", truncate(&hit.url, URL_CHARS)).trim_end().to_owned()
}
