//! The OpenAI-compatible API as a channel: `POST /v1/chat/completions`, `POST /v1/responses` and `GET /v1/models`
//! (<https://platform.openai.com/docs/api-reference/chat>). Any client of that API can chat with the agent, which runs its
//! own tools.

mod answer;
mod channel;
mod completion;
mod content;
mod error;
mod followed_turn;
mod gateway;
mod progress;
mod repeats;
mod request;
mod responses;
mod routes;

pub use channel::ApiChannel;
pub use error::in_openai_form;
pub use gateway::{ApiGateway, NAME, TurnReport};
pub use routes::BODY_LIMIT;
