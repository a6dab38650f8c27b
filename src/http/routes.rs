//! The routes on TCP and on the control socket.

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, Uri};
use axum::{Router, middleware};
use daoyou_channels::{Channel, ChannelContext, HttpError};

use super::limits::DEFAULT_BODY_LIMIT;
use super::metrics::{count_requests, metrics_routes};
use super::state::AppState;
use super::token::{TokenAuth, require_token};
use super::{api, health, mcp};

/// The routes of channels.
pub struct ChannelRoutes {
    /// Those that authenticate by themselves.
    open: Vec<Router>,
    /// Those that need the token.
    owners: Vec<Router>,
}

impl ChannelRoutes {
    /// Collects the routes of the running channels.
    pub fn of(channels: &[Arc<dyn Channel>], context: &ChannelContext) -> Self {
        Self {
            open: channels.iter().filter_map(|channel| channel.routes(context)).collect(),
            owners: channels.iter().filter_map(|channel| channel.owner_routes(context)).collect(),
        }
    }
}

/// The routes on TCP: health and those of channels that authenticate by themselves; `/api`, `/mcp`, `/metrics` and those of other
/// channels with the token.
pub fn tcp_routes(state: &Arc<AppState>, channels: ChannelRoutes, auth: Arc<TokenAuth>) -> Router {
    let owners = channels.owners.into_iter().fold(owner_routes(state), Router::merge);
    let owners = owners.route_layer(middleware::from_fn_with_state(auth, require_token));
    let open = channels.open.into_iter().fold(health::routes(state.clone()), Router::merge);
    with_layers(open.merge(owners), state)
}

/// The routes on the control socket.
pub fn control_routes(state: &Arc<AppState>) -> Router {
    with_layers(health::routes(state.clone()).merge(owner_routes(state)).merge(mcp::stream_routes(state)), state)
}

fn owner_routes(state: &Arc<AppState>) -> Router {
    api::routes(state.clone()).merge(metrics_routes(state.clone())).merge(mcp::routes(state))
}

fn with_layers(router: Router, state: &AppState) -> Router {
    let count = middleware::from_fn_with_state(state.bus.metrics().clone(), count_requests);
    router.fallback(not_found).layer(DefaultBodyLimit::max(DEFAULT_BODY_LIMIT)).layer(count)
}

async fn not_found(uri: Uri) -> HttpError {
    HttpError::new(StatusCode::NOT_FOUND, "not_found", format!("there is nothing at {:.200}", uri.path()))
}
