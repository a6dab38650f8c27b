//! Whose conversation a message belongs to, where each sender of a chat has his own.

use daoyou_channels::{InboundMessage, SessionKey};

/// The channel of terminals: each is one person's, and follows the conversation by its key.
const TERMINAL: &str = "cli";

/// Gives the message the session `CHANNEL:CHAT:SENDER`, unless it has one, or names no sender: then its sender is the channel.
pub fn by_sender(message: &mut InboundMessage) {
    if message.session.is_some() || message.channel == TERMINAL || message.sender == message.channel {
        return;
    }
    // What stands behind the last colon is the sender, so that no chat and sender are taken for others.
    let sender = message.sender.replace('%', "%25").replace(':', "%3A");
    let chat = SessionKey::of_chat(&message.channel, &message.chat_id);
    message.session = Some(SessionKey::from(format!("{chat}:{sender}")));
}

#[cfg(test)]
mod tests {
    use daoyou_channels::Trust;

    use super::*;

    #[test]
    fn each_sender_has_his_own() {
        for (channel, chat, sender, own, expected) in [
            ("webhook:in", "group", "ann", None, "webhook:in:group:ann"),
            ("webhook:in", "group", "bob", None, "webhook:in:group:bob"),
            ("webhook:in", "group:ann", "c", None, "webhook:in:group:ann:c"),
            ("webhook:in", "group", "ann:c", None, "webhook:in:group:ann%3Ac"),
            ("webhook:in", "group", "ann", Some("webhook:in:ops"), "webhook:in:ops"),
            ("webhook:in", "default", "webhook:in", None, "webhook:in:default"),
            ("cli", "direct", "owner", None, "cli:direct"),
        ] {
            let mut message = InboundMessage::text(channel, chat, sender, Trust::Known, "hello");
            message.session = own.map(SessionKey::from);
            by_sender(&mut message);
            assert_eq!(message.session_key().as_str(), expected);
        }
    }
}
