//! A web server with pages, for the tools that read the web.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

/// One answer of the server.
#[derive(Clone)]
pub struct Page {
    status: u16,
    kind: String,
    body: Vec<u8>,
    headers: Vec<(&'static str, String)>,
}

impl Page {
    pub fn new(kind: &str, body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, kind: kind.to_owned(), body: body.into(), headers: Vec::new() }
    }

    pub fn html(body: &str) -> Self {
        Self::new("text/html; charset=utf-8", body)
    }

    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub fn redirect(target: &str) -> Self {
        Self::new("text/plain", "").status(302).header("location", target)
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct WebRequest {
    /// The path with its query.
    pub path: String,
    pub headers: HeaderMap,
}

#[derive(Default)]
struct Shared {
    /// The answers for each path, in order; the last one repeats.
    pages: Mutex<HashMap<String, Vec<Page>>>,
    requests: Mutex<Vec<WebRequest>>,
}

/// The running server on loopback.
pub struct Web {
    shared: Arc<Shared>,
    port: u16,
    server: JoinHandle<io::Result<()>>,
}

impl Web {
    pub async fn start() -> Self {
        Self::at("127.0.0.1:0").await
    }

    /// Starts the server on another address of loopback.
    pub async fn at(address: &str) -> Self {
        Self::with(address, []).await
    }

    /// Starts the server with these pages, so that none is missing in its first answer.
    pub async fn with<const N: usize>(address: &str, pages: [(&str, Page); N]) -> Self {
        let listener = tokio::net::TcpListener::bind(address).await.expect("a free port on loopback");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let pages = pages.map(|(path, page)| (path.to_owned(), vec![page]));
        let shared = Arc::new(Shared { pages: Mutex::new(HashMap::from(pages)), ..Shared::default() });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        Self { shared, port, server }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Stops listening.
    pub async fn stop(self) {
        self.server.abort();
        drop(self.server.await);
    }

    /// Answers a path, given without its query, with a page.
    pub fn put(&self, path: &str, page: Page) {
        self.put_each(path, vec![page]);
    }

    /// Answers the path with each of the pages once, and then always with the last one.
    pub fn put_each(&self, path: &str, pages: Vec<Page>) {
        self.shared.pages.lock().insert(path.to_owned(), pages);
    }

    pub fn requests(&self) -> Vec<WebRequest> {
        self.shared.requests.lock().clone()
    }
}

async fn answer(State(shared): State<Arc<Shared>>, uri: Uri, request: Request) -> Response {
    let path = uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let seen = WebRequest { path, headers: request.headers().clone() };
    shared.requests.lock().push(seen);
    let page = match shared.pages.lock().get_mut(uri.path()) {
        Some(pages) if pages.len() > 1 => Some(pages.remove(0)),
        pages => pages.and_then(|pages| pages.first().cloned()),
    };
    let Some(page) = page else { return (StatusCode::NOT_FOUND, "no such page").into_response() };
    let mut response = page.body.into_response();
    *response.status_mut() = StatusCode::from_u16(page.status).expect("a status of HTTP");
    response.headers_mut().insert("content-type", page.kind.parse().expect("a header's value"));
    for (name, value) in page.headers {
        response.headers_mut().insert(name, value.parse().expect("a header's value"));
    }
    response
}
