//! A client of the page: logs in by cookie, sends requests as a browser does, and reads the stream of events.

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

use super::gateway::http_client;
use super::{Gateway, deadline};

/// A browser, which may be logged in.
pub struct PageClient {
    pub base: String,
    pub cookie: Option<String>,
    http: reqwest::Client,
}

/// One event of the stream.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerEvent {
    pub kind: String,
    pub id: String,
    pub data: Value,
}

/// An open stream of events.
pub struct EventStream {
    response: Response,
    text: String,
}

impl PageClient {
    /// Returns a browser without a login.
    pub fn new(gateway: &Gateway) -> Self {
        Self { base: gateway.url(""), cookie: None, http: http_client() }
    }

    /// Logs in with a token.
    pub async fn login(gateway: &Gateway, token: &str) -> Self {
        let mut page = Self::new(gateway);
        let answer = page.post_login(token).await;
        assert_eq!(answer.status(), 204);
        page.take_cookie(&answer);
        page
    }

    pub async fn post_login(&self, token: &str) -> Response {
        let request = self.http.post(format!("{}/api/login", self.base)).json(&json!({ "token": token }));
        request.send().await.expect("an answer of the gateway")
    }

    /// Stores the cookie that an answer sets.
    pub fn take_cookie(&mut self, answer: &Response) {
        let set = answer.headers()["set-cookie"].to_str().expect("an answer of the gateway");
        self.cookie = set.split(';').next().map(str::to_owned);
    }

    /// Returns a request as the page sends it.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.bare(method, path);
        request.header("x-daoyou", "page").header("origin", &self.base)
    }

    /// Returns a request with only the cookie.
    pub fn bare(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.cookie {
            Some(cookie) => request.header("cookie", cookie),
            None => request,
        }
    }

    pub async fn get(&self, path: &str) -> Value {
        let answer = self.request(Method::GET, path).send().await.expect("an answer of the gateway");
        let (status, body) = (answer.status(), answer.text().await.expect("an answer of the gateway"));
        assert!(status.is_success(), "{path}: {status} {body}");
        serde_json::from_str(&body).expect("an answer of the gateway")
    }

    pub async fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.request(Method::POST, path).json(body).send().await.expect("an answer of the gateway");
        let (status, body) = (answer.status(), answer.text().await.expect("an answer of the gateway"));
        assert!(status.is_success(), "{path}: {status} {body}");
        serde_json::from_str(&body).unwrap_or(Value::Null)
    }

    /// Sends a message, to a new chat if `session` is `None`. Returns the chat's key.
    pub async fn say(&self, session: Option<&str>, content: &str) -> String {
        let mut body = json!({ "content": content });
        if let Some(session) = session {
            body["session"] = json!(session);
        }
        self.post("/api/chat", &body).await["session"].as_str().expect("an answer of the gateway").to_owned()
    }

    /// Opens the stream of events. `after` is the id of the last received event.
    pub async fn events(&self, query: &str, after: Option<&str>) -> EventStream {
        let mut request = self.request(Method::GET, &format!("/api/events{query}"));
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        let response = request.send().await.expect("an answer of the gateway");
        assert_eq!(response.status(), 200);
        EventStream { response, text: String::new() }
    }
}

impl EventStream {
    /// Returns the next event; `None` if the stream has ended.
    pub async fn try_next(&mut self) -> Option<ServerEvent> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let block: String = self.text.drain(..end + 2).collect();
                let field = |name: &str| {
                    block.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
                };
                let Some(data) = field("data:") else { continue };
                return Some(ServerEvent {
                    kind: field("event:").unwrap_or_default(),
                    id: field("id:").unwrap_or_default(),
                    data: serde_json::from_str(&data).expect("an answer of the gateway"),
                });
            }
            let chunk = deadline("an event", self.response.chunk()).await.ok().flatten()?;
            self.text.push_str(std::str::from_utf8(&chunk).expect("an answer of the gateway"));
        }
    }

    pub async fn next(&mut self) -> ServerEvent {
        self.try_next().await.expect("the stream goes on")
    }

    /// Returns the events up to and including the first one that `fits`.
    pub async fn until(&mut self, fits: impl Fn(&ServerEvent) -> bool) -> Vec<ServerEvent> {
        let mut seen = Vec::new();
        loop {
            seen.push(self.next().await);
            if seen.last().is_some_and(&fits) {
                return seen;
            }
        }
    }

    /// Returns the events up to the end of a turn.
    pub async fn turn(&mut self) -> Vec<ServerEvent> {
        self.until(|event| ["done", "error"].contains(&event.data["event"]["type"].as_str().unwrap_or_default())).await
    }
}

/// Returns the text of the turn events, joined.
pub fn text_of(events: &[ServerEvent]) -> String {
    let texts = events.iter().filter(|event| event.data["event"]["type"] == "text");
    texts.filter_map(|event| event.data["event"]["delta"].as_str()).collect()
}
