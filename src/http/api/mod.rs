//! `/api`: what the commands and the page use. The mode of the control socket's file protects it there, the token on TCP.

mod gateway;
mod jobs;
mod memory;
mod response;
mod store;
mod terminal;

use std::sync::Arc;

use axum::Router;

use super::state::AppState;

/// All routes of the API.
pub fn routes(state: Arc<AppState>) -> Router {
    store::routes()
        .merge(jobs::routes())
        .merge(memory::routes())
        .merge(gateway::routes())
        .merge(terminal::routes())
        .with_state(state)
}
