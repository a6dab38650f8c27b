//! The way that the order of the program's code is taken from: `cargo xtask order` watches what it passes through.

use std::time::Duration;

use serde_json::json;

use super::Bench;
use super::load::Offer;
use super::support::Reply;

/// A gateway that has nothing to do, then one that answers a few messages, with a tool for one of them. Each ends in order.
pub async fn walk() {
    for turns in [0, 12] {
        let mut bench = Bench::start(Duration::ZERO, |setup| setup).await;
        bench.model.on("message 3", [Reply::tool("list_dir", &json!({"path": "."})), Reply::text("look 3")]);
        if turns > 0 {
            bench.run(turns, 4, Offer::InFlight(1)).await;
        }
        bench.gateway.stop().await;
    }
}
