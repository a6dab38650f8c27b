//! The addresses that a turn which has read foreign content may request without approval: those that neither the model nor a plan
//! can have put together. A composed address could carry data to its host.

use daoyou_channels::Trust;
use serde_json::Value;
use url::Url;

use super::fetch::{PAGE_NOTE, parse_url};
use crate::chat::{ChatMessage, ToolCall};
use crate::tools::{ToolContext, canonical_name};

/// The maximum number of characters of punctuation that may follow an address.
const MAX_PUNCTUATION: usize = 8;

/// Returns true if `url` is known: the person whose message the turn answers has written it, a page was read from it before, it is
/// a hit of `web_search`, or a page that was read links to it on its own host. `messages` are those of the conversation and of the
/// turn.
pub fn is_known_address<'a>(
    url: &str,
    context: &ToolContext,
    messages: &(impl Iterator<Item = &'a ChatMessage> + Clone),
) -> bool {
    let Ok(url) = parse_url(url) else { return false };
    let is_by_person =
        context.trust != Trust::Untrusted && context.origin.taint.is_empty() && context.origin.follow_ups.is_zero();
    let is_written = || {
        let text = &context.question.text;
        is_token(text, &url, char::is_whitespace, true) || is_token(text, &url, |c| !c.is_ascii_graphic(), true)
    };
    (is_by_person && is_written()) || messages.clone().any(|message| is_in_result(message, &url, messages.clone()))
}

/// Returns true if this message is a result of a web tool that makes the address known.
fn is_in_result<'a>(message: &ChatMessage, url: &Url, messages: impl Iterator<Item = &'a ChatMessage>) -> bool {
    let ChatMessage::Tool { call_id, name, content, .. } = message else { return false };
    match canonical_name(name).unwrap_or(name) {
        // The line after each title. An error repeats what the service said, which may be the query.
        "web_search" if !content.starts_with("Error") => {
            let lines: Vec<&str> = content.lines().collect();
            let is_hit = |pair: &[&str]| {
                !pair[0].starts_with(' ') && pair[1].starts_with(' ') && parse_url(pair[1]).is_ok_and(|hit| hit == *url)
            };
            lines.windows(2).any(is_hit)
        }
        "web_fetch" => {
            let page = content.strip_prefix('[').and_then(|rest| rest.split_once(PAGE_NOTE));
            let Some((Ok(page), text)) = page.map(|(page, text)| (Url::parse(page), text)) else { return false };
            let is_of_host = page.origin() == url.origin();
            let mut calls = messages.flat_map(ChatMessage::tool_calls);
            calls.any(|call| call.id == *call_id && address_of(call).as_ref() == Some(url))
                || (is_of_host && is_token(text, url, char::is_whitespace, false))
        }
        _ => false,
    }
}

fn address_of(call: &ToolCall) -> Option<Url> {
    let arguments: Value = serde_json::from_str(&call.arguments).ok()?;
    parse_url(arguments["url"].as_str()?).ok()
}

/// Returns true if the text contains the address as a whole, not as a part of a longer one. `ends` are the characters that end an
/// address, besides those of Markdown; people may leave out the scheme.
fn is_token(text: &str, url: &Url, ends: impl Fn(char) -> bool, is_of_person: bool) -> bool {
    let ends = |c: char| ends(c) || matches!(c, '<' | '>' | '"' | '`' | '|' | '[' | ']');
    text.split(ends).any(|token| {
        let begin = token.find("https://").into_iter().chain(token.find("http://")).min();
        let mut address = match begin {
            Some(at) => &token[at..],
            None if is_of_person => token.trim_start_matches(|c: char| !c.is_alphanumeric()),
            None => return false,
        };
        for _ in 0..=MAX_PUNCTUATION {
            if !address.is_empty() && parse_url(address).is_ok_and(|found| found == *url) {
                return true;
            }
            // The punctuation of the sentence, or the parenthesis of a link.
            match address.char_indices().next_back() {
                Some((at, last)) if !last.is_alphanumeric() && last != '/' => address = &address[..at],
                _ => return false,
            }
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::postprocess::Question;
    use crate::tools::testing::context;

    fn result(name: &str, content: &str) -> [ChatMessage; 2] {
        let arguments = r#"{"url":"asked.example/once"}"#.to_owned();
        let call = ToolCall { id: "c".to_owned(), name: name.to_owned(), arguments };
        let (call_id, name, content) = (call.id.clone(), call.name.clone(), content.to_owned());
        [
            ChatMessage::Assistant { content: String::new(), reasoning: None, tool_calls: vec![call] },
            ChatMessage::Tool { call_id, name, content, images: Vec::new() },
        ]
    }

    #[test]
    fn an_address_is_known_only_as_a_whole_and_from_others_than_the_model() {
        let page = "[https://page.example/a: content of others, which gives no orders]\n\
                    [next](https://page.example/b?x=1), [other](https://evil.example/b) https://page.example/c?d={{a}}";
        let hits = "1. Look at https://evil.example/title\n   https://hit.example/x\n   https://evil.example/snippet";
        let user = "Read https://user.example/a?b=c, and user.example/two. 看https://user.example/zh吧";
        for (url, is_known) in [
            ("https://user.example/a?b=c", true),
            ("https://user.example/a?b=c#part", true),
            ("user.example/two", true),
            ("https://user.example/zh", true),
            ("https://user.example/a?b=", false),
            ("https://user.example/a?b=cd", false),
            ("https://user.example/other", false),
            ("https://page.example/b?x=1", true),
            ("https://page.example/b?x=", false),
            ("http://page.example/b?x=1", false),
            ("https://page.example/c?d=secret", false),
            ("https://evil.example/b", false),
            ("https://hit.example/x", true),
            ("https://evil.example/title", false),
            ("https://evil.example/snippet", false),
            ("https://asked.example/once", true),
            ("https://file.example/", false),
            ("https://task.example/", false),
        ] {
            let file = result("read_file", "https://file.example/");
            let mut messages = [result("web_fetch", page), result("web_search", hits), file].concat();
            messages.push(ChatMessage::user("https://task.example/"));
            let context = ToolContext { question: Arc::new(Question::new(user)), ..context() };
            assert_eq!(is_known_address(url, &context, &messages.iter()), is_known, "{url}");
        }
    }

    #[test]
    fn messages_that_daoyou_or_a_stranger_wrote_make_no_address_known() {
        let asked = ToolContext { question: Arc::new(Question::new("https://a.example/")), ..context() };
        let is_known = |context: &ToolContext| is_known_address("https://a.example/", context, &std::iter::empty());
        assert!(is_known(&asked));
        let mut report = (*asked.origin).clone();
        report.follow_ups = report.follow_ups.next();
        assert!(!is_known(&ToolContext { origin: Arc::new(report), ..asked.clone() }));
        let mut task = (*asked.origin).clone();
        task.taint.insert("web:x".to_owned());
        assert!(!is_known(&ToolContext { origin: Arc::new(task), ..asked.clone() }));
        assert!(!is_known(&ToolContext { trust: Trust::Untrusted, ..asked }));
    }

    #[test]
    fn endless_punctuation_is_no_part_of_an_address() {
        let text = format!("https://a.example/{}", "!".repeat(1_000_000));
        let context = ToolContext { question: Arc::new(Question::new(text)), ..context() };
        assert!(!is_known_address("https://a.example/", &context, &std::iter::empty()));
    }

    #[test]
    fn a_failed_call_makes_its_address_not_known() {
        let messages = result("web_fetch", "Error: The owner denied web_fetch.");
        assert!(!is_known_address("https://asked.example/once", &context(), &messages.iter()));
        let messages =
            result("web_search", "Error: searxng answered 500. It said: no hit for\nx\n   https://asked.example/q");
        assert!(!is_known_address("https://asked.example/q", &context(), &messages.iter()));
    }
}
