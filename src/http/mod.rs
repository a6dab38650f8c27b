//! The HTTP server: health, the channels' own routes, and on the control socket the API that the commands use.

mod api;
mod attach;
mod health;
mod metrics;
mod server;
pub mod views;

pub use health::readiness;
pub use metrics::{count_requests, metrics_routes};
pub use server::{Hub, bind, control, router, serve, serve_control};
