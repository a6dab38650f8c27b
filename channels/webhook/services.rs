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

    /// Returns the response to bodies that need no turn unless a template handles them: changed or deleted messages, people who
    /// join or leave, other events about the state of a workspace, and what is not an event.
    pub fn answer_to_noise(self, body: &Value) -> Option<Value> {
        let is_noise = self == Self::Slack && !slack::needs_turn(body);
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
                    && slack::needs_turn(body)
                    && body["event"]["user"].is_string();
                let author = if is_said_by_sender { Author::Named } else { Author::Unproven };
                let content = message_text.or_else(|| {
                    let json = slack::without_token(body).to_string();
                    Some(format!("Slack: {kind}.\n\n{}", cut(&json)))
                });
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
/// contain anybody's text: a commit's author is only the committer's claim, and a comment on the lines of a pull request
/// comes with these lines.
const GITHUB_AUTHORS: &[(&str, &[&str])] = &[
    ("commit_comment", &["/comment/user/login"]),
    ("discussion", &["/discussion/user/login"]),
    ("discussion_comment", &["/comment/user/login", "/discussion/user/login"]),
    ("issue_comment", &["/comment/user/login", "/issue/user/login"]),
    ("issues", &["/issue/user/login"]),
    ("pull_request", &["/pull_request/user/login"]),
    ("pull_request_review", &["/review/user/login", "/pull_request/user/login"]),
];

/// Returns true if the sender of an event wrote all texts in it. For example, the event of labelling a stranger's issue
/// contains the stranger's text.
fn is_github_sender_alone(event: &str, body: &Value) -> bool {
    let login = |pointer: &str| body.pointer(pointer).and_then(Value::as_str);
    let authors = GITHUB_AUTHORS.iter().find(|(known, _)| *known == event).map(|(_, authors)| *authors);
    match (login(GITHUB_SENDER), authors) {
        (Some(sender), Some(authors)) => {
            authors.iter().all(|pointer| login(pointer).is_some_and(|author| author.eq_ignore_ascii_case(sender)))
                && !GithubPeople { sender, owner: login("/repository/owner/login") }.include_others("", "", body)
        }
        _ => false,
    }
}

/// The keys under which GitHub puts the author of the object around them. `null` stands for a deleted account.
const GITHUB_AUTHOR_KEYS: &[&str] = &["author", "creator", "enabled_by", "owner", "user"];
/// The keys of people who wrote no text of an event. GitHub lets nobody but those with access to the repository choose them.
const GITHUB_BYSTANDER_KEYS: &[&str] = &["assignee", "assignees", "requested_reviewer", "requested_reviewers"];

/// The people whose words may be in an event of the sender.
struct GithubPeople<'a> {
    sender: &'a str,
    /// The person or the organization that owns the repository. Its name and description come with every event.
    owner: Option<&'a str>,
}

impl GithubPeople<'_> {
    /// Returns true if a part of an event may have a text that somebody else wrote: it names another person, e.g. as the owner of a
    /// fork, or contains earlier texts. `key` is the key of the part, and `parent` that of the object around it.
    fn include_others(&self, parent: &str, key: &str, part: &Value) -> bool {
        match part {
            Value::Object(fields) => {
                let is_other = match fields.get("login") {
                    Some(login) => !self.may_be_named(parent, key, login.as_str().unwrap_or_default()),
                    None => GITHUB_AUTHOR_KEYS.contains(&key),
                };
                let has_earlier_texts = key == "changes" && !fields.is_empty();
                is_other
                    || has_earlier_texts
                    // Properties whose names and values an organization chooses.
                    || fields.iter().filter(|(inner, _)| *inner != "custom_properties").any(|(inner, value)| {
                        self.include_others(key, inner, value)
                    })
            }
            Value::Array(items) => items.iter().any(|item| self.include_others(parent, key, item)),
            Value::Null => GITHUB_AUTHOR_KEYS.contains(&key),
            // A comment on a line comes with the line's surroundings, or the name of its file.
            Value::String(text) => (key == "diff_hunk" || (key, parent) == ("path", "comment")) && !text.is_empty(),
            Value::Bool(_) | Value::Number(_) => false,
        }
    }

    /// Returns true if a person at this place of an event is not the author of a text, or is the sender.
    fn may_be_named(&self, parent: &str, key: &str, login: &str) -> bool {
        let is_place_of_owner = match key {
            "organization" => parent.is_empty(),
            "owner" => matches!(parent, "repository" | "repo"),
            "user" => matches!(parent, "base" | "head"),
            _ => false,
        };
        login.eq_ignore_ascii_case(self.sender)
            || GITHUB_BYSTANDER_KEYS.contains(&key)
            || (is_place_of_owner && self.owner.is_some_and(|owner| login.eq_ignore_ascii_case(owner)))
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
            (
                EventService::Github,
                "pull_request_review_comment",
                json!({"sender": ann(), "pull_request": by("ann"), "comment": by("ann")}),
                Author::Unproven,
            ),
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

    /// Returns the author of a pull request event of `ann` in a repository of the organization `octo`, after `change` to its body.
    fn author_of_pull_request(change: impl FnOnce(&mut Value)) -> Author {
        let (ann, octo) = (|| json!({"login": "ann"}), || json!({"login": "octo"}));
        let repository = || json!({"full_name": "octo/hello", "owner": octo(), "description": "Says hello."});
        let side = || json!({"label": "octo:main", "user": octo(), "repo": repository()});
        let mut body = json!({
            "action": "opened", "sender": ann(), "repository": repository(), "organization": octo(), "changes": {},
            "pull_request": {
                "user": ann(), "title": "words", "body": null, "base": side(), "head": side(), "auto_merge": null,
                "milestone": null, "merged_by": null, "assignee": {"login": "bob"}, "assignees": [{"login": "bob"}],
                "requested_reviewers": [{"login": "bob"}], "performed_via_github_app": null, "labels": [{"description": "A bug."}],
            },
        });
        change(&mut body);
        EventService::Github.draft(&headers(&[(GITHUB_EVENT, "pull_request")]), &body, "{}").author
    }

    /// Strangers can put a text into an event elsewhere than in bodies and titles.
    #[test]
    fn a_text_of_another_person_anywhere_in_an_event_is_not_the_senders() {
        assert_eq!(author_of_pull_request(|_| {}), Author::Named);
        let own_fork = json!({"user": {"login": "Ann"}, "repo": {"owner": {"login": "ann"}, "description": "words"}});
        assert_eq!(author_of_pull_request(|body| body["pull_request"]["head"] = own_fork), Author::Named);
        let (eve, octo) = (json!({"login": "eve"}), json!({"login": "octo"}));
        for (parent, key, part) in [
            ("/pull_request", "head", json!({"user": eve, "label": "eve:words"})),
            ("/pull_request/head", "repo", json!({"owner": eve, "description": "words"})),
            ("/pull_request/head", "repo", json!({"owner": null, "description": "words"})),
            ("/pull_request/head", "user", json!(null)),
            ("/pull_request", "auto_merge", json!({"enabled_by": eve, "commit_title": "words"})),
            ("/pull_request", "auto_merge", json!({"enabled_by": octo, "commit_title": "words"})),
            ("/pull_request", "auto_merge", json!({"enabled_by": null, "commit_title": "words"})),
            ("/pull_request", "performed_via_github_app", json!({"owner": eve, "description": "words"})),
            ("/pull_request", "performed_via_github_app", json!({"owner": octo, "description": "words"})),
            ("/pull_request", "performed_via_github_app", json!({"owner": {"slug": "e"}, "description": "words"})),
            ("/pull_request", "milestone", json!({"creator": eve, "description": "words"})),
            ("/pull_request", "merged_by", eve.clone()),
            ("/pull_request", "changes", json!({"body": {"from": "words"}})),
            ("", "changes", json!({"title": {"from": "words"}})),
            ("", "comment", json!({"user": {"login": "ann"}, "diff_hunk": "+ words"})),
            ("", "organization", json!({"login": "eve", "description": "words"})),
        ] {
            let found = author_of_pull_request(|body| body.pointer_mut(parent).unwrap()[key] = part.clone());
            assert_eq!(found, Author::Unproven, "{parent}/{key}: {part}");
        }
    }

    #[test]
    fn an_event_of_slack_is_shown_without_its_token() {
        let body = json!({"token": "hush", "event": {"type": "reaction_added", "user": "U1"}});
        let content = EventService::Slack.draft(&HeaderMap::new(), &body, &body.to_string()).content;
        assert_eq!(
            content.as_deref(),
            Some("Slack: reaction_added.\n\n{\"event\":{\"type\":\"reaction_added\",\"user\":\"U1\"}}")
        );
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
            (json!({}), Some(json!("not a new message"))),
            (json!("event"), Some(json!("not a new message"))),
            (json!({"type": "event_callback"}), Some(json!("not a new message"))),
            (json!({"type": "event_callback", "event": {"text": "hi"}}), Some(json!("not a new message"))),
            (json!({"type": "block_actions", "user": {"id": "U1"}}), Some(json!("not a new message"))),
            (json!({"type": "message", "user": "U1", "text": "hi"}), Some(json!("not a new message"))),
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
