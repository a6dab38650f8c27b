//! The web page: its files, its login, its chats on the channel `page`, and the events that keep it current.

mod assets;
mod channel;
mod chat;
mod events;
mod files;
mod hub;
mod live_turns;
mod login;

pub use channel::{PAGE_CHANNEL, PageChannel};
pub use files::sweep_uploads;
pub use hub::PageHub;
pub use login::{code_routes, login_routes};

use std::sync::Arc;

use axum::Router;
use axum::http::header::{CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::response::Response;

use super::access::Authenticator;
use super::state::AppState;

/// The content security policy: the page may load only its own files.
const CONTENT_POLICY: &str = "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
    object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'";

/// Returns the routes of the page that need no login: its files, and the login itself.
pub fn open_routes(auth: Arc<Authenticator>) -> Router {
    assets::routes().merge(login::open_routes(auth))
}

/// Returns the routes behind the access check.
pub fn api_routes() -> Router<Arc<AppState>> {
    chat::routes().merge(files::routes()).merge(events::routes())
}

/// Adds the headers that restrict what a browser does with a response. A route may have set a stricter policy.
pub async fn confine(mut response: Response) -> Response {
    let headers: [(HeaderName, &str); 3] = [
        (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    for (name, value) in headers {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}
