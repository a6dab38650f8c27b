//! Whether what the owner is to be told can reach him.

use super::settings::Config;

/// What works and is hardly meant, as `(key, sentence)`.
pub(super) fn warnings(config: &Config) -> Vec<(String, String)> {
    let places = [("owner.notify", &config.owner.notify), ("heartbeat.deliver_to", &config.heartbeat.deliver_to)];
    let to_nobody = places.into_iter().filter_map(|(key, place)| {
        let name = place.strip_prefix("webhook:")?.split(':').next()?;
        let hook = config.channels.webhook.get(name)?;
        let words = format!(
            "[channels.webhook.{name}] has no callback_url, so only replies can be picked up there: what is sent to {place:?} \
             becomes a dead letter"
        );
        hook.callback_url.is_none().then(|| (key.to_owned(), words))
    });
    to_nobody.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_that_posts_nothing_tells_nobody() {
        for (notify, deliver_to, expected) in [
            ("webhook:quiet:me", "", "owner.notify"),
            ("", "webhook:quiet:me", "heartbeat.deliver_to"),
            ("webhook:quiet:me", "webhook:quiet:me", "owner.notify heartbeat.deliver_to"),
            ("webhook:loud:me", "webhook:loud:me", ""),
            ("cli:direct", "email:me@example.org", ""),
            ("", "", ""),
        ] {
            let text = format!(
                "[owner]\nnotify = {notify:?}\n[heartbeat]\ndeliver_to = {deliver_to:?}\n[channels.webhook.quiet]\n\
                 [channels.webhook.loud]\ncallback_url = \"https://example.org\"\n"
            );
            let config: Config = toml::from_str(&text).unwrap();
            let keys: Vec<_> = warnings(&config).into_iter().map(|(key, _)| key).collect();
            assert_eq!(keys.join(" "), expected, "{notify} {deliver_to}");
        }
    }
}
