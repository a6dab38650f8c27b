//! The routes on TCP and on the control socket.

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, Uri};
use axum::{Extension, Router, middleware};
use daoyou_channels::{Channel, ChannelContext, HttpError, name_body_limit};

use super::access::{AccessCheck, Principal, require_access};
use super::limits::DEFAULT_BODY_LIMIT;
use super::metrics::{count_requests, metrics_routes};
use super::state::AppState;
use super::{api, health, mcp, page};

/// Returns the routes on TCP: health, the routes of channels that authenticate by themselves, and the files of the page; behind the
/// access check, `/api`, `/mcp`, `/metrics` and the routes of other channels.
pub fn tcp_routes(state: &Arc<AppState>, channels: &[Arc<dyn Channel>], context: &ChannelContext) -> Router {
    let check = AccessCheck { auth: state.auth.clone(), store: state.bus.store().clone() };
    let checked = owner_routes(state).merge(page::login_routes(state.auth.clone()));
    let checked = channels.iter().filter_map(|channel| channel.owner_routes(context)).fold(checked, Router::merge);
    let checked = checked.route_layer(middleware::from_fn_with_state(check, require_access));
    let page = page::open_routes(state.auth.clone());
    let open = channels.iter().filter_map(|channel| channel.routes(context));
    let open = open.fold(health::routes(state.clone()), Router::merge);
    with_layers(open.merge(page).merge(checked), state).layer(middleware::map_response(page::confine))
}

/// Returns the routes on the control socket.
pub fn control_routes(state: &Arc<AppState>) -> Router {
    let owner = owner_routes(state).merge(page::code_routes(state.clone())).merge(api::command_routes(state.clone()));
    let owner = owner.layer(Extension(Principal::owner()));
    with_layers(health::routes(state.clone()).merge(owner).merge(mcp::stream_routes(state)), state)
}

fn owner_routes(state: &Arc<AppState>) -> Router {
    api::routes(state.clone()).merge(metrics_routes(state.clone())).merge(mcp::routes(state))
}

fn with_layers(router: Router, state: &AppState) -> Router {
    let count = middleware::from_fn_with_state(state.bus.metrics().clone(), count_requests);
    let named = async |response| name_body_limit(response, DEFAULT_BODY_LIMIT);
    let router = router.fallback(not_found).layer(DefaultBodyLimit::max(DEFAULT_BODY_LIMIT));
    router.layer(middleware::map_response(named)).layer(count)
}

async fn not_found(uri: Uri) -> HttpError {
    HttpError::new(StatusCode::NOT_FOUND, "not_found", format!("there is nothing at {:.200}", uri.path()))
}
