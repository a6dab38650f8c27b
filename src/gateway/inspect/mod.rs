//! Answers what the commands ask about the gateway itself, the same whether it runs or rests.

mod channels;
mod checks;
mod inspector;
mod providers;
mod sandbox;
mod status;
mod words;

pub use inspector::{Inspector, Live, RunningInspector};
pub use words::{age, bytes};
