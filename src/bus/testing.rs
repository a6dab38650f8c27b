//! A bus for tests of what stands on it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use daoyou_channels::InboundMessage;

use super::{BusSettings, Capacities, CommandAnswer, ControlCommands, MessageBus, Order};
use crate::live::LivePart;
use crate::store::processes::ProcessRow;
use crate::store::{Store, StoreError};

/// A bus over `store` without orders, notices or a reserve; each of its bounds is `capacity`.
pub fn bus(store: Store, capacity: usize) -> Arc<MessageBus> {
    let settings = BusSettings {
        commands: Arc::new(NoOrders),
        capacities: Capacities { session: capacity, inbound: capacity, outbound: capacity },
        reserve: 0,
        drain_timeout: Duration::from_secs(1),
        by_sender: false,
        notices: None,
    };
    Arc::new(MessageBus::new(store, LivePart::fixed(settings), Arc::default()))
}

struct NoOrders;

#[async_trait]
impl ControlCommands for NoOrders {
    fn order(&self, _: &InboundMessage) -> Option<Order> {
        None
    }

    fn stopped(&self, _: &InboundMessage, _: bool, _: usize, _: &[ProcessRow]) -> String {
        String::new()
    }

    async fn status(&self, _: &MessageBus, _: &InboundMessage) -> String {
        String::new()
    }

    async fn command(&self, _: &InboundMessage) -> Result<CommandAnswer, StoreError> {
        Ok(CommandAnswer { reply: String::new(), error: None, model: None })
    }
}
