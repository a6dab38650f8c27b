//! What a terminal completes, and which model answers it.

use std::sync::Arc;

use async_trait::async_trait;
use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use daoyou_channels::SessionKey;
use daoyou_channels::cli::{Conversation, Directory, Names};
use serde::Deserialize;
use serde_json::json;

use super::routes::Hub;
use crate::live::Live;
use crate::llm::Models;
use crate::store::{Store, messages};

/// How many sessions a terminal is told of.
const SESSIONS: u32 = 200;

/// The sessions and models of a gateway.
pub struct GatewayDirectory {
    pub store: Store,
    pub models: Arc<Live<Models>>,
    /// `agent.model`.
    pub model: Arc<Live<String>>,
}

#[async_trait]
impl Directory for GatewayDirectory {
    async fn names(&self) -> Names {
        let sessions =
            self.store.read(|connection| messages::list(connection, SESSIONS)).await.unwrap_or_else(|error| {
                tracing::warn!(%error, "the sessions could not be listed");
                Vec::new()
            });
        let models = self.models.get().list().await.into_iter();
        let name = |(provider, model): (String, String)| {
            if model.is_empty() || provider == model { provider } else { format!("{provider}/{model}") }
        };
        Names { sessions: sessions.into_iter().map(|row| row.session).collect(), models: models.map(name).collect() }
    }

    async fn model(&self, conversation: &Conversation) -> Result<String, String> {
        let key = conversation.key().to_string();
        let head = self.store.read(move |connection| messages::session(connection, &key)).await;
        let chosen = head.map_err(|error| error.to_string())?.model;
        let wanted = conversation.model.clone().or(chosen).unwrap_or_else(|| (*self.model.get()).clone());
        self.models.get().resolve(&wanted).await.map(|choice| choice.to_string()).map_err(|error| error.to_string())
    }
}

/// Of which conversation the model is wanted.
#[derive(Deserialize)]
pub struct Asked {
    session: Option<SessionKey>,
    model: Option<String>,
}

/// `GET /api/terminal`: the names, and the conversation's model; 422 says why it has none.
pub async fn terminal(State(hub): State<Arc<Hub>>, Query(asked): Query<Asked>) -> Response {
    let conversation = Conversation { session: asked.session, model: asked.model, ..Conversation::of(None) };
    match hub.directory.model(&conversation).await {
        Ok(model) => {
            let Names { sessions, models } = hub.directory.names().await;
            Json(json!({ "model": model, "sessions": sessions, "models": models })).into_response()
        }
        Err(message) => {
            let error = json!({ "error": { "code": "no_model", "message": message } });
            (StatusCode::UNPROCESSABLE_ENTITY, Json(error)).into_response()
        }
    }
}
