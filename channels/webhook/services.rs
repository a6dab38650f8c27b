//! Converts events of GitHub, Stripe and Slack into messages, unless a template does.

use axum::http::HeaderMap;
use serde_json::{Value, json};
use uuid::Uuid;

use super::slack;
use crate::trust::Author;

/// The maximum number of characters of an event's JSON in the message.
const MAX_EVENT_CHARS: usize = 16_000;

const GITHUB_EVENT: &str = "x-github-event";
const GITHUB_DELIVERY: &str = "x-github-delivery";

/// A service with a signature scheme and built-in rules for its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventService {
    /// <https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries>
    Github,
    /// <https://docs.stripe.com/webhooks#verify-manually>
    Stripe,
    /// <https://docs.slack.dev/authentication/verifying-requests-from-slack>
    Slack,
}

/// The parts of a message that are known so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageDraft {
    pub content: Option<String>,
    pub chat_id: Option<String>,
    pub sender: Option<String>,
    pub id: Option<String>,
    pub session: Option<String>,
    /// The proof of who wrote the content.
    pub author: Author,
}

impl EventService {
    /// Returns the response to an event that is not a message: a connection test, or a bot's own message. The response is a
    /// 200, so that the service does not send the event again.
    pub fn answer(self, headers: &HeaderMap, body: &Value) -> Option<Value> {
        let ignored = |reason: &str| Some(json!({ "status": "ignored", "reason": reason }));
        match self {
            Self::Github if header(headers, GITHUB_EVENT) == Some("ping") => ignored("ping"),
            Self::Slack if body["type"] == "url_verification" => Some(json!({ "challenge": body["challenge"] })),
            // The bot's own replies arrive as events too. Answering them, or another bot's messages, would never end.
            Self::Slack if slack::is_by_bot(body) => ignored("written by a bot"),
            _ => None,
        }
    }

    /// Returns the response to events that need no turn unless a template handles them: changed or deleted messages, people who
    /// join or leave, and other events about the state of a workspace.
    pub fn answer_to_noise(self, body: &Value) -> Option<Value> {
        let is_noise = self == Self::Slack && !slack::is_news(body);
        is_noise.then(|| json!({ "status": "ignored", "reason": "not a new message" }))
    }

    /// Builds the message for an event. `text` is the received JSON.
    pub fn draft(self, headers: &HeaderMap, body: &Value, text: &str) -> MessageDraft {
        let word = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let shown = |sentence: String| Some(format!("{sentence}\n\n{}", cut(text.trim())));
        match self {
            Self::Github => {
                let chat_id = word("/repository/full_name").or_else(|| word("/organization/login"));
                let sender = word(GITHUB_SENDER).or_else(|| word("/pusher/name"));
                let event = header(headers, GITHUB_EVENT).unwrap_or("event");
                let author = if is_github_sender_alone(event, body) { Author::Named } else { Author::Unproven };
                let mut sentence = format!("GitHub: {event}");
                for (link, part) in [(" ", word("/action")), (" in ", chat_id.clone()), (" by ", sender.clone())] {
                    sentence.extend(part.map(|part| format!("{link}{part}")));
                }
                let id = github_delivery(headers);
                MessageDraft { content: shown(sentence + "."), chat_id, sender, id, author, ..MessageDraft::default() }
            }
            Self::Stripe => {
                let sentence = format!("Stripe: {}.", word("/type").unwrap_or_else(|| "event".to_owned()));
                let sender = Some("stripe".to_owned());
                // Stripe does not report who wrote the texts in an event.
                MessageDraft {
                    content: shown(sentence),
                    chat_id: word("/account"),
                    sender,
                    id: word("/id"),
                    ..MessageDraft::default()
                }
            }
            Self::Slack => {
                let chat_id = word("/event/channel").or_else(|| word("/event/item/channel"));
                let message_text = slack::text(body);
                let kind = slack::kind(body).unwrap_or("event");
                let is_said_by_sender = message_text.is_some()
                    && matches!(kind, "message" | "app_mention")
                    && slack::is_news(body)
                    && body["event"]["user"].is_string();
                let author = if is_said_by_sender { Author::Named } else { Author::Unproven };
                let content = message_text.or_else(|| shown(format!("Slack: {kind}.")));
                let (sender, id) = (slack::sender(body), slack::id(body));
                MessageDraft { content, chat_id, sender, id, author, ..MessageDraft::default() }
            }
        }
    }
}

/// Returns the id of a GitHub delivery. A repeated delivery has the same id.
pub fn github_delivery(headers: &HeaderMap) -> Option<String> {
    header(headers, GITHUB_DELIVERY).map(canonical)
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim).filter(|text| !text.is_empty())
}

/// Returns the canonical form of a UUID, and any other text unchanged.
pub fn canonical(id: &str) -> String {
    Uuid::try_parse(id).map_or_else(|_| id.to_owned(), |id| id.to_string())
}

const GITHUB_SENDER: &str = "/sender/login";

/// The GitHub events whose texts have known authors, each with the paths of the authors' names. All other events may
/// contain anybody's text: a commit's author is only the committer's claim.
const GITHUB_AUTHORS: &[(&str, &[&str])] = &[
    ("commit_comment", &["/comment/user/login"]),
    ("discussion", &["/discussion/user/login"]),
    ("discussion_comment", &["/comment/user/login", "/discussion/user/login"]),
    ("issue_comment", &["/comment/user/login", "/issue/user/login"]),
    ("issues", &["/issue/user/login"]),
    ("pull_request", &["/pull_request/user/login"]),
    ("pull_request_review", &["/review/user/login", "/pull_request/user/login"]),
    ("pull_request_review_comment", &["/comment/user/login", "/pull_request/user/login"]),
];

/// Returns true if the sender of an event wrote all texts in it. For example, the event of labelling a stranger's issue
/// contains the stranger's text.
fn is_github_sender_alone(event: &str, body: &Value) -> bool {
    let login = |pointer: &str| body.pointer(pointer).and_then(Value::as_str);
    let authors = GITHUB_AUTHORS.iter().find(|(known, _)| *known == event).map(|(_, authors)| *authors);
    match (login(GITHUB_SENDER), authors) {
        (Some(sender), Some(authors)) => {
            authors.iter().all(|pointer| login(pointer).is_some_and(|author| author.eq_ignore_ascii_case(sender)))
                && !has_words_of_others(body, sender)
        }
        _ => false,
    }
}

/// Returns true if any object of an event, e.g. a discussion's answer or a milestone, has a text and an author other than `sender`.
fn has_words_of_others(value: &Value, sender: &str) -> bool {
    match value {
        Value::Object(fields) => {
            let authors =
                ["user", "author", "creator"].into_iter().filter_map(|key| fields.get(key)?.get("login")?.as_str());
            let has_text = ["body", "title"].into_iter().any(|key| fields.get(key).is_some_and(Value::is_string));
            (has_text && authors.into_iter().any(|author| !author.eq_ignore_ascii_case(sender)))
                || fields.values().any(|inner| has_words_of_others(inner, sender))
        }
        Value::Array(items) => items.iter().any(|inner| has_words_of_others(inner, sender)),
        _ => false,
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_EVENT_CHARS) {
        Some((at, _)) => format!("{}… (cut here; the event has {} bytes)", &text[..at], text.len()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pairs<'a> = &'a [(&'static str, &'a str)];

    fn headers(pairs: Pairs<'_>) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn events_become_messages() {
        let issue = json!({"action": "opened", "repository": {"full_name": "octo/hello"}, "sender": {"login": "ann"}});
        let delivery = [(GITHUB_EVENT, "issues"), (GITHUB_DELIVERY, "72D3162E-CC78-11E3-81AB-4C9367DC0958")];
        let message =
            json!({"event_id": "Ev1", "event": {"type": "message", "channel": "C1", "user": "U1", "text": "hi"}});
        let liked = json!({"event": {"type": "reaction_added", "item": {"channel": "C1"}, "user": "U1"}});
        let table: &[(EventService, Pairs<'_>, Value, [Option<&str>; 4])] = &[
            (
                EventService::Github,
                &delivery,
                issue.clone(),
                [
                    Some("GitHub: issues opened in octo/hello by ann.\n\n{"),
                    Some("octo/hello"),
                    Some("ann"),
                    Some("72d3162e-cc78-11e3-81ab-4c9367dc0958"),
                ],
            ),
            (EventService::Github, &[], json!({}), [Some("GitHub: event.\n\n{}"), None, None, None]),
            (
                EventService::Stripe,
                &[],
                json!({"id": "evt_1", "type": "charge.failed", "account": "acct_1"}),
                [Some("Stripe: charge.failed.\n\n{"), Some("acct_1"), Some("stripe"), Some("evt_1")],
            ),
            (EventService::Slack, &[], message, [Some("hi"), Some("C1"), Some("U1"), Some("Ev1")]),
            (EventService::Slack, &[], liked, [Some("Slack: reaction_added.\n\n{"), Some("C1"), Some("U1"), None]),
            (
                EventService::Slack,
                &[],
                json!({"team_id": "T1", "event": {"type": "message", "channel": "C1", "user": "U1", "text": "hi"}}),
                [Some("hi"), Some("C1"), Some("T1/U1"), None],
            ),
            (
                EventService::Slack,
                &[],
                json!({"team_id": "T1", "event": {"type": "message", "user": "U2", "user_team": "T2", "text": "hi"}}),
                [Some("hi"), None, Some("T2/U2"), None],
            ),
            (EventService::Slack, &[], json!([1]), [Some("Slack: event.\n\n[1]"), None, None, None]),
        ];
        for (service, pairs, body, [content, chat_id, sender, id]) in table {
            let draft = service.draft(&headers(pairs), body, &body.to_string());
            let begins = draft.content.unwrap_or_default();
            assert!(begins.starts_with(content.unwrap_or_default()), "{begins}");
            assert_eq!((draft.chat_id.as_deref(), draft.sender.as_deref()), (*chat_id, *sender), "{body}");
            assert_eq!(draft.id.as_deref(), *id, "{body}");
        }
        let long = EventService::Stripe.draft(&HeaderMap::new(), &json!({}), &"é".repeat(20_000)).content.unwrap();
        assert!(long.chars().count() < 16_100 && long.ends_with("40000 bytes)"), "{}", long.len());
    }

    /// A draft names the author of an event only if the sender wrote all its texts.
    #[test]
    fn an_author_is_named_only_if_the_sender_wrote_all_texts() {
        let ann = || json!({"login": "ann"});
        let by = |user: &str| json!({"user": {"login": user}, "body": "words"});
        let message = |fields: Value| {
            let mut event = json!({"type": "message", "user": "U1", "text": "hi"});
            event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            json!({"team_id": "T1", "event": event})
        };
        for (service, event, body, expected) in [
            (EventService::Github, "issues", json!({"sender": ann(), "issue": by("Ann")}), Author::Named),
            (EventService::Github, "issues", json!({"sender": ann(), "issue": by("eve")}), Author::Unproven),
            (EventService::Github, "issues", json!({"sender": ann(), "issue": {"user": null}}), Author::Unproven),
            (EventService::Github, "issues", json!({"pusher": {"name": "ann"}, "issue": by("ann")}), Author::Unproven),
            (
                EventService::Github,
                "issue_comment",
                json!({"sender": ann(), "issue": by("eve"), "comment": by("ann")}),
                Author::Unproven,
            ),
            (
                EventService::Github,
                "issue_comment",
                json!({"sender": ann(), "issue": by("ann"), "comment": by("ann")}),
                Author::Named,
            ),
            (
                EventService::Github,
                "discussion",
                json!({"sender": ann(), "discussion": by("ann"), "answer": by("eve")}),
                Author::Unproven,
            ),
            (EventService::Github, "discussion", json!({"sender": ann(), "discussion": by("ann")}), Author::Named),
            (
                EventService::Github,
                "issues",
                json!({"sender": ann(), "issue": by("ann"), "more": [{"author": {"login": "eve"}, "title": "words"}]}),
                Author::Unproven,
            ),
            (
                EventService::Github,
                "issues",
                json!({"sender": ann(), "issue": {"user": ann(), "milestone": {"creator": {"login": "eve"}, "title": "words"}}}),
                Author::Unproven,
            ),
            (
                EventService::Github,
                "release",
                json!({"sender": ann(), "release": {"author": ann(), "body": "words"}}),
                Author::Unproven,
            ),
            (
                EventService::Github,
                "push",
                json!({"sender": ann(), "commits": [{"author": {"username": "ann"}}]}),
                Author::Unproven,
            ),
            (EventService::Github, "unheard_of", json!({"sender": ann()}), Author::Unproven),
            (EventService::Stripe, "", json!({"type": "charge.failed", "sender": ann()}), Author::Unproven),
            (EventService::Slack, "", message(json!({})), Author::Named),
            (EventService::Slack, "", message(json!({"type": "app_mention"})), Author::Named),
            (EventService::Slack, "", message(json!({"subtype": "message_changed"})), Author::Unproven),
            (EventService::Slack, "", message(json!({"type": "pin_added"})), Author::Unproven),
            (EventService::Slack, "", message(json!({"text": " "})), Author::Unproven),
            (EventService::Slack, "", message(json!({"user": null})), Author::Unproven),
        ] {
            let pairs = [(GITHUB_EVENT, event)];
            let draft = service.draft(&headers(&pairs), &body, "{}");
            assert_eq!(draft.author, expected, "{service:?} {event} {body}");
        }
    }

    #[test]
    fn events_without_a_message_are_answered_at_once() {
        let message = |fields: Value| {
            let mut event = json!({"type": "message", "user": "U1", "text": "hi"});
            event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            json!({"type": "event_callback", "event": event, "authorizations": [{"user_id": "B", "is_bot": true}]})
        };
        let table = [
            (json!({"type": "url_verification", "challenge": "abc"}), Some(json!({"challenge": "abc"}))),
            (message(json!({})), None),
            (message(json!({"subtype": "file_share"})), None),
            (message(json!({"bot_id": "B1"})), Some(json!("written by a bot"))),
            (message(json!({"subtype": "bot_message"})), Some(json!("written by a bot"))),
            (message(json!({"user": "B"})), Some(json!("written by a bot"))),
            (
                message(json!({"subtype": "message_changed", "message": {"bot_id": "B1"}})),
                Some(json!("written by a bot")),
            ),
            (message(json!({"subtype": "message_changed"})), Some(json!("not a new message"))),
            (message(json!({"subtype": "channel_join"})), Some(json!("not a new message"))),
            (message(json!({"user": "USLACKBOT"})), Some(json!("written by a bot"))),
            (message(json!({"type": "member_joined_channel"})), Some(json!("not a new message"))),
            (message(json!({"type": "channel_rename"})), Some(json!("not a new message"))),
            (message(json!({"type": "app_home_opened"})), Some(json!("not a new message"))),
            (message(json!({"type": "user_change", "user": {"id": "U1"}})), Some(json!("not a new message"))),
            (message(json!({"type": "reaction_added"})), None),
            (json!({"type": "app_rate_limited", "team_id": "T1"}), Some(json!("not a new message"))),
            (json!({"event": {"type": "app_mention", "user": "U1"}}), None),
            (json!({}), None),
            (json!("event"), None),
        ];
        for (body, expected) in table {
            let answer = EventService::Slack.answer(&HeaderMap::new(), &body);
            let answer = answer.or_else(|| EventService::Slack.answer_to_noise(&body));
            let outcome =
                answer.map(|answer| if answer["reason"].is_null() { answer } else { answer["reason"].clone() });
            assert_eq!(outcome, expected, "{body}");
        }
        let ping = headers(&[(GITHUB_EVENT, "ping")]);
        assert_eq!(EventService::Github.answer(&ping, &json!({"zen": "x"})).unwrap()["reason"], "ping");
        assert_eq!(EventService::Github.answer(&headers(&[(GITHUB_EVENT, "push")]), &json!({})), None);
        assert_eq!(EventService::Stripe.answer(&ping, &json!({})), None);
    }
}
