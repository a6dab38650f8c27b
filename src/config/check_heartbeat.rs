//! What the kinds of the values do not say about `[heartbeat]`.

use daoyou_channels::settings::Span;

use super::fault::quoted;
use super::settings::Config;
use crate::cron::heartbeat::ActiveHours;

/// A fault of a key.
pub(super) struct Finding {
    pub key: &'static str,
    pub wrong: String,
    pub allowed: &'static str,
}

/// All that is wrong with it.
pub(super) fn findings(config: &Config) -> Vec<Finding> {
    let heartbeat = &config.heartbeat;
    let mut found = Vec::new();
    if !(Span::from_secs(1)..=Span::from_secs(86_400)).contains(&heartbeat.every) {
        let wrong = format!("{} is too short or too long", heartbeat.every);
        found.push(Finding { key: "heartbeat.every", wrong, allowed: "from \"1s\" to \"1d\"" });
    }
    if let Err(wrong) = ActiveHours::read(&heartbeat.active_hours) {
        let allowed = "two times of a day such as \"08:00-22:00\", or \"\" for the whole day";
        found.push(Finding { key: "heartbeat.active_hours", wrong, allowed });
    }
    if let Some(wrong) = place(config) {
        let allowed = "\"CHANNEL:CHAT\" such as \"webhook:phone:ann\", or \"\" for where the owner is told things";
        found.push(Finding { key: "heartbeat.deliver_to", wrong, allowed });
    }
    found
}

/// What is wrong with the place where answers go.
fn place(config: &Config) -> Option<String> {
    let text = config.heartbeat.deliver_to.as_str();
    if text.is_empty() {
        return None;
    }
    let not_on = |what: &str| Some(format!("{} names {what} that is not switched on", quoted(text)));
    match text.split_once(':') {
        Some(("cli", chat)) if !chat.is_empty() => None,
        Some(("email", chat)) if !chat.is_empty() => {
            if config.channels.email.enabled {
                None
            } else {
                not_on("a channel")
            }
        }
        Some(("webhook", rest)) => match rest.split_once(':') {
            Some((name, chat)) if !chat.is_empty() => {
                let is_on = config.channels.webhook.get(name).is_some_and(|hook| hook.enabled);
                if is_on { None } else { not_on("a webhook") }
            }
            _ => Some(format!("{} names no chat", quoted(text))),
        },
        _ => Some(format!("{} names no channel and chat", quoted(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_meant() {
        for (key, value, expected) in [
            ("every", "500ms", "heartbeat.every"),
            ("every", "2d", "heartbeat.every"),
            ("every", "1s", ""),
            ("active_hours", "8 to 22", "heartbeat.active_hours"),
            ("active_hours", "", ""),
            ("deliver_to", "phone", "heartbeat.deliver_to"),
            ("deliver_to", "webhook:phone:me", "heartbeat.deliver_to"),
            ("deliver_to", "email:me@example.org", "heartbeat.deliver_to"),
            ("deliver_to", "cli:direct", ""),
        ] {
            let config: Config = toml::from_str(&format!("[heartbeat]\n{key} = {value:?}")).unwrap();
            let keys: Vec<_> = findings(&config).into_iter().map(|finding| finding.key).collect();
            assert_eq!(keys.join(" "), expected, "{key} {value}");
        }
    }
}
