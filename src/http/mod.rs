//! The HTTP server: health, the channels' own routes, and on the control socket the API that the commands use.

mod api;
mod attach;
mod directory;
mod health;
mod server;
pub mod views;

pub use directory::GatewayDirectory;
pub use health::readiness;
pub use server::{Hub, bind, control, router, serve, serve_control};
