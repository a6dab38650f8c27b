//! The rules for events of Slack (<https://docs.slack.dev/apis/events-api>).

use serde_json::Value;

/// Slack's own bot, whose messages carry no sign of a bot.
const SLACKBOT: &str = "USLACKBOT";

/// The events that are for the agent besides new messages, by the beginning of their type: they are about a message or a file. All
/// others are about the state of a workspace or of the app; nobody says anything to the agent in them.
const TURN_EVENTS: &[&str] = &["app_mention", "file_", "link_shared", "pin_", "reaction_", "star_"];

/// Returns the type of an event. A few events, such as `app_rate_limited`, have no inner event.
pub fn kind(body: &Value) -> Option<&str> {
    body["event"]["type"].as_str().or_else(|| body["type"].as_str())
}

fn is_message(body: &Value) -> bool {
    matches!(body["event"]["type"].as_str(), Some("message" | "app_mention"))
}

/// Returns `TEAM/USER`. In a channel that several organisations share, the team distinguishes their users.
pub fn sender(body: &Value) -> Option<String> {
    let event = &body["event"];
    let user = event["user"].as_str()?;
    let teams = [&event["user_team"], &event["source_team"], &event["team"], &body["team_id"]];
    let team = teams.into_iter().find_map(Value::as_str);
    Some(team.map_or_else(|| user.to_owned(), |team| format!("{team}/{user}")))
}

/// Returns the id of an event. A new message is identified by `TEAM:CHANNEL:TS`, because Slack sends one that mentions the app as two
/// events, each with its own id. A mention that was added to a message later is news although the message is old.
pub fn id(body: &Value) -> Option<String> {
    let event = &body["event"];
    let place = (body["team_id"].as_str(), event["channel"].as_str(), event["ts"].as_str());
    match place {
        (Some(team), Some(channel), Some(ts)) if is_message(body) && needs_turn(body) && event["edited"].is_null() => {
            Some(format!("{team}:{channel}:{ts}"))
        }
        _ => body["event_id"].as_str().map(str::to_owned),
    }
}

/// Returns true if a bot wrote, changed or deleted the message of an event.
pub fn is_by_bot(body: &Value) -> bool {
    let event = &body["event"];
    let by_bot = |message: &Value| {
        message["bot_id"].is_string()
            || message["bot_profile"].is_object()
            || message["subtype"] == "bot_message"
            || message["user"] == SLACKBOT
    };
    own_bots(body).any(|bot| event["user"] == bot)
        || [event, &event["message"], &event["previous_message"]].into_iter().any(by_bot)
}

/// Returns the users for which the app receives the event and that are bots: the app itself.
fn own_bots(body: &Value) -> impl Iterator<Item = &str> {
    let all = body["authorizations"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter(|one| one["is_bot"] == true).filter_map(|one| one["user_id"].as_str())
}

/// Returns true if a body needs a turn: a new message, or an event about a message or a file, such as a reaction.
pub fn needs_turn(body: &Value) -> bool {
    let event = &body["event"];
    match event["type"].as_str() {
        Some("message") => {
            matches!(event["subtype"].as_str(), None | Some("file_share" | "thread_broadcast" | "me_message"))
        }
        Some(kind) => TURN_EVENTS.iter().any(|begin| kind.starts_with(begin)),
        None => false,
    }
}

/// Returns a body without the verification token of the app, which is a secret.
pub fn without_token(body: &Value) -> Value {
    let mut body = body.clone();
    if let Some(fields) = body.as_object_mut() {
        fields.remove("token");
    }
    body
}

/// Returns the text of a message as its author sees it: without the mention of the app at its beginning, and with plain links and
/// characters (<https://docs.slack.dev/messaging/formatting-message-text>). `None` if the event has no text.
pub fn text(body: &Value) -> Option<String> {
    let written = body["event"]["text"].as_str().filter(|text| !text.trim().is_empty())?;
    let unaddressed = without_mention(body, written.trim()).filter(|rest| !rest.is_empty());
    Some(plain_text(unaddressed.unwrap_or(written)))
}

/// Returns the text after a mention of the app. In an `app_mention` that does not name the app's user, any mention counts.
fn without_mention<'a>(body: &Value, text: &'a str) -> Option<&'a str> {
    let (mention, rest) = text.strip_prefix("<@")?.split_once('>')?;
    let user = mention.split('|').next()?;
    let is_app = match own_bots(body).next() {
        Some(_) => own_bots(body).any(|bot| bot == user),
        None => body["event"]["type"] == "app_mention",
    };
    is_app.then(|| rest.trim_start_matches([':', ',']).trim_start())
}

/// Replaces links by their text and address, and the entities by their characters. Mentions stay as they are.
fn plain_text(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, (link, after))) =
        rest.split_once('<').and_then(|(before, inner)| Some((before, inner.split_once('>')?)))
    {
        plain.push_str(before);
        match link.split_once('|') {
            _ if link.starts_with(['@', '#', '!']) => plain.extend(["<", link, ">"]),
            None => plain.push_str(address(link)),
            // Slack makes a link of an address that the author wrote, possibly without its scheme.
            Some((target, label)) if is_bare_address(target, label) => plain.push_str(address(target)),
            Some((target, label)) => plain.extend([label, " (", address(target), ")"]),
        }
        rest = after;
    }
    plain.push_str(rest);
    // `&amp;` comes last, so that `&amp;lt;` becomes `&lt;`.
    plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

/// Returns true if the text of a link is its address, with or without the scheme.
fn is_bare_address(target: &str, label: &str) -> bool {
    let rest = target.split_once(':').map_or(target, |(_, rest)| rest.trim_start_matches("//"));
    label == target || label == rest
}

/// Returns the address of a link: that of a web page whole, a mail address or a telephone number without its scheme.
fn address(target: &str) -> &str {
    ["mailto:", "tel:"].iter().find_map(|scheme| target.strip_prefix(scheme)).unwrap_or(target)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_is_what_its_author_wrote() {
        let bot = json!([{"user_id": "UBOT", "is_bot": true}]);
        for (kind, authorizations, written, expected) in [
            ("message", &bot, "a &lt;b&gt; &amp;amp; c", "a <b> &amp; c"),
            ("message", &bot, "&amp;lt;", "&lt;"),
            ("message", &bot, "see <http://e.org|e> and <http://e.org>", "see e (http://e.org) and http://e.org"),
            ("message", &bot, "<http://e.org?a=1&amp;b=2|e.org?a=1&amp;b=2>", "http://e.org?a=1&b=2"),
            ("message", &bot, "<mailto:a@e.org|a@e.org>, <mailto:b@e.org|Bob>", "a@e.org, Bob (b@e.org)"),
            ("message", &bot, "<@U2> and <#C1|general> <!here>", "<@U2> and <#C1|general> <!here>"),
            ("message", &bot, "1 < 2", "1 < 2"),
            ("message", &bot, "<@UBOT> /help", "/help"),
            ("app_mention", &bot, "<@UBOT>: /help", "/help"),
            ("app_mention", &bot, "<@U2> ask <@UBOT>", "<@U2> ask <@UBOT>"),
            ("app_mention", &json!(null), "<@U2|daoyou> /help", "/help"),
            ("message", &json!(null), "<@U2> hello", "<@U2> hello"),
            ("app_mention", &bot, "<@UBOT>", "<@UBOT>"),
        ] {
            let body = json!({"authorizations": authorizations, "event": {"type": kind, "text": written}});
            assert_eq!(text(&body).as_deref(), Some(expected), "{kind} {written}");
        }
        assert_eq!(text(&json!({"event": {"type": "message", "text": " "}})), None);
    }

    #[test]
    fn events_about_messages_and_files_are_news() {
        for (kind, expected) in [
            ("message", true),
            ("app_mention", true),
            ("reaction_added", true),
            ("file_shared", true),
            ("emoji_changed", false),
            ("assistant_thread_started", false),
            ("app_home_opened", false),
            ("member_joined_channel", false),
        ] {
            assert_eq!(needs_turn(&json!({"event": {"type": kind}})), expected, "{kind}");
        }
        assert!(!needs_turn(&json!({"type": "app_rate_limited"})));
    }

    #[test]
    fn the_events_of_one_message_have_one_id() {
        let event = |kind: &str, id: &str| {
            let event = json!({"type": kind, "channel": "C1", "ts": "1.5", "text": "hi"});
            json!({"team_id": "T1", "event_id": id, "event": event})
        };
        assert_eq!(id(&event("message", "Ev1")).as_deref(), Some("T1:C1:1.5"));
        assert_eq!(id(&event("app_mention", "Ev2")).as_deref(), Some("T1:C1:1.5"));
        assert_eq!(id(&event("pin_added", "Ev3")).as_deref(), Some("Ev3"));
        let mut changed = event("message", "Ev4");
        changed["event"]["subtype"] = json!("message_changed");
        assert_eq!(id(&changed).as_deref(), Some("Ev4"));
        let mut edited = event("app_mention", "Ev6");
        edited["event"]["edited"] = json!({"user": "U1", "ts": "1.9"});
        assert_eq!(id(&edited).as_deref(), Some("Ev6"));
        assert_eq!(id(&json!({"event_id": "Ev5", "event": {"type": "message"}})).as_deref(), Some("Ev5"));
    }
}
