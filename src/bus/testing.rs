//! A bus for the tests of other modules.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use daoyou_channels::InboundMessage;

use super::{BusSettings, Capacities, CommandAnswer, ControlCommand, ControlCommands, MessageBus};
use crate::live::LivePart;
use crate::store::processes::ProcessRow;
use crate::store::{Store, StoreError};

/// Returns a bus of `store` without control commands, notices or a reserve, whose capacities are all `capacity`.
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
    fn control_command(&self, _: &InboundMessage) -> Option<ControlCommand> {
        None
    }

    fn is_command(&self, _: &InboundMessage) -> bool {
        false
    }

    fn stop_reply(&self, _: &InboundMessage, _: bool, _: usize, _: &[ProcessRow]) -> String {
        String::new()
    }

    async fn status_reply(&self, _: &MessageBus, _: &InboundMessage) -> String {
        String::new()
    }

    async fn answer_command(&self, _: &InboundMessage) -> Result<CommandAnswer, StoreError> {
        Ok(CommandAnswer { reply: String::new(), error: None, model: None })
    }
}
