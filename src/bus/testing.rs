//! A bus for the tests of other modules.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use daoyou_channels::InboundMessage;

use super::{BusSettings, Capacities, CommandAnswer, ControlCommand, ControlCommands, MessageBus, NoticeSettings};
use crate::live::LivePart;
use crate::store::processes::ProcessRow;
use crate::store::{Store, StoreError};

/// Returns a bus of `store` without control commands, notices or a disk reserve; all its capacities are `capacity`.
pub fn bus(store: Store, capacity: usize) -> Arc<MessageBus> {
    bus_with(store, capacity, None)
}

/// Returns the same bus with notices for the owner, to the chat `owner` of the webhook `in`.
pub fn notifying_bus(store: Store, capacity: usize) -> Arc<MessageBus> {
    let notices = NoticeSettings {
        on_terminals: false,
        channel: "webhook:in".to_owned(),
        chat_id: "owner".to_owned(),
        dead_letter: "",
        held: "",
        loss: "",
    };
    bus_with(store, capacity, Some(notices))
}

fn bus_with(store: Store, capacity: usize, notices: Option<NoticeSettings>) -> Arc<MessageBus> {
    let settings = BusSettings {
        commands: Arc::new(NoControlCommands),
        capacities: Capacities { session: capacity, inbound: capacity, outbound: capacity },
        reserve: 0,
        drain_timeout: Duration::from_secs(1),
        by_sender: false,
        notices,
    };
    Arc::new(MessageBus::new(store, LivePart::fixed(settings), Arc::default()))
}

struct NoControlCommands;

#[async_trait]
impl ControlCommands for NoControlCommands {
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
