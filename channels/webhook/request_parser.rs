//! Converts a webhook request into a message: authenticates the sender, reads the body, applies templates. Uses neither
//! sockets nor a clock.

use std::borrow::Cow;

use axum::extract::Query;
use axum::http::{HeaderMap, Uri, header};
use serde_json::Value;

use super::config::WebhookConfig;
use super::services::{EventService, MessageDraft, github_delivery};
use super::template::{self, IDEMPOTENCY_KEY, RequestTemplate, is_template};
use super::verify::{HEADER_ID, Verifier};
use super::wire::{EXTERNAL_ID, check_key, check_name, fixed_session, key_path, parse_native};
use crate::client::{ClientAddr, single_header};
use crate::http_error::HttpError;
use crate::json::parse_body;
use crate::message::{InboundMessage, SessionKey, Trust, TurnSettings};
use crate::text::sha256_hex;
use crate::trust::{AllowList, Author, SenderLists, TrustLists, trust_of};

/// Converts the requests of one webhook into messages.
pub struct RequestParser {
    name: String,
    channel: String,
    verifier: Verifier,
    allow_from: Option<AllowList>,
    /// The strongest proof of authorship that a message to this webhook can give.
    author: Author,
    lists: TrustLists,
    templates: RequestTemplates,
    session: Option<SessionRule>,
    any_session: bool,
    turn: TurnSettings,
}

/// The result of parsing a request.
#[derive(Debug)]
pub enum ParsedRequest {
    /// A message for the inbox.
    Message(Box<InboundMessage>),
    /// No message: the response is a 200 with this body.
    Answer(Value),
}

#[derive(Default)]
struct RequestTemplates {
    content: Option<RequestTemplate>,
    chat_id: Option<RequestTemplate>,
    sender: Option<RequestTemplate>,
    id: Option<RequestTemplate>,
}

/// The setting `session`.
enum SessionRule {
    Fixed(SessionKey),
    Template(Box<RequestTemplate>),
}

impl RequestParser {
    /// Creates the parser from the settings of `[channels.webhook.NAME]`.
    ///
    /// # Errors
    /// A sentence that names the invalid key.
    pub fn new(name: &str, config: &WebhookConfig, listens_on_loopback: bool) -> Result<Self, String> {
        let verifier = config.verifier(listens_on_loopback)?;
        let channel = format!("webhook:{name}");
        let compile = |key: &str, source: &Option<String>| {
            let compiled = source.as_ref().map(|source| RequestTemplate::new(&key_path(name, key), source));
            compiled.transpose().map_err(|wrong| format!("`{key}`: {wrong}"))
        };
        let compile_name =
            |key: &str, source: &Option<String>| Ok::<_, String>(compile(key, source)?.map(RequestTemplate::for_name));
        let templates = RequestTemplates {
            content: compile("content", &config.content)?,
            chat_id: compile_name("chat_id", &config.chat_id)?,
            sender: compile_name("sender", &config.sender)?,
            id: compile_name("id", &config.id)?,
        };
        let session = match &config.session {
            Some(source) if is_template(source) => {
                compile_name("session", &config.session)?.map(|template| SessionRule::Template(Box::new(template)))
            }
            Some(key) => Some(SessionRule::Fixed(fixed_session(&channel, key).map_err(|error| error.message)?)),
            None => None,
        };
        let non_blank = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        let own_lists = SenderLists { owners: Vec::new(), trusted: config.trusted_from.clone() };
        Ok(Self {
            name: name.to_owned(),
            author: config.author().unwrap_or_default(),
            lists: TrustLists::of_one(&channel, own_lists),
            channel,
            verifier,
            allow_from: config.allow_from.clone(),
            templates,
            session,
            any_session: config.any_session,
            turn: TurnSettings {
                model: non_blank(&config.model),
                prompt: non_blank(&config.prompt),
                ..TurnSettings::default()
            },
        })
    }

    /// Replaces the webhook's own `trusted_from` with `lists`, which include the owner's identities and follow a reload of
    /// the configuration.
    pub fn trusting(self, lists: TrustLists) -> Self {
        Self { lists, ..self }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn channel(&self) -> &str {
        &self.channel
    }

    pub fn verifier(&self) -> &Verifier {
        &self.verifier
    }

    /// Authenticates and parses a whole request. `now` is in Unix seconds.
    ///
    /// # Errors
    /// 401 if the request is not authentic; or those of [`Self::read`].
    pub fn take(
        &self,
        headers: &HeaderMap,
        uri: &Uri,
        body: &[u8],
        client: Option<ClientAddr>,
        now: i64,
    ) -> Result<ParsedRequest, HttpError> {
        let check = self.verifier.before_body(headers, client, now).map_err(HttpError::unauthorized)?;
        if let Some(mut check) = check {
            check.update(body);
            check.finish().map_err(HttpError::unauthorized)?;
        }
        self.read(headers, uri, body)
    }

    /// Parses an authenticated request.
    ///
    /// # Errors
    /// 400 if the body is not the text or JSON that the scheme needs; 422 if a field, or the result of a template, is
    /// invalid.
    pub fn read(&self, headers: &HeaderMap, uri: &Uri, body: &[u8]) -> Result<ParsedRequest, HttpError> {
        let service = self.verifier.service();
        let unpacked = match service {
            Some(EventService::Github) => without_form(headers, body)?,
            _ => body.into(),
        };
        let text = body_text(&unpacked)?;
        let value = parse_body(text)?;
        if service.is_some() && !value.is_object() {
            return Err(HttpError::bad_request("the body is not a JSON object: an event of this service is one"));
        }
        if let Some(answer) = service.and_then(|service| service.answer(headers, &value)) {
            return Ok(ParsedRequest::Answer(answer));
        }
        // Events of these services never have such a field, so bodies in the native form are accepted too.
        let is_native = value.get("content").is_some_and(Value::is_string);
        let draft = match service {
            Some(service) if !is_native || self.templates.content.is_some() => {
                let noise = if self.templates.content.is_none() { service.answer_to_noise(&value) } else { None };
                if let Some(answer) = noise {
                    return Ok(ParsedRequest::Answer(answer));
                }
                service.draft(headers, &value, text)
            }
            _ if self.templates.content.is_some() => MessageDraft::default(),
            _ => parse_native(&value)?,
        };
        let (draft, id, session) = self.fill_in(draft, headers, uri, &value)?;
        self.message(draft, id, session, headers, body).map(|message| ParsedRequest::Message(Box::new(message)))
    }

    /// Applies the templates to the draft. Returns the draft with the id and the session that the templates produce.
    fn fill_in(
        &self,
        mut draft: MessageDraft,
        headers: &HeaderMap,
        uri: &Uri,
        body: &Value,
    ) -> Result<(MessageDraft, Option<String>, Option<String>), HttpError> {
        let RequestTemplates { content, chat_id, sender, id } = &self.templates;
        let session = match &self.session {
            Some(SessionRule::Template(template)) => Some(template.as_ref()),
            _ => None,
        };
        let has_names = [chat_id, sender, id].iter().any(|template| template.is_some()) || session.is_some();
        if content.is_none() && !has_names {
            return Ok((draft, None, None));
        }
        let Query(query) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|_| HttpError::bad_request("the query of the address cannot be read"))?;
        let request = template::request(body, headers, &query, &self.name);
        let nudged = if has_names { template::with_other_fractions(body) } else { None };
        let nudged = nudged.as_ref().map(|body| template::request(body, headers, &query, &self.name));
        if let Some(template) = content {
            let text = template.render(&request)?;
            if text.trim().is_empty() {
                return Err(HttpError::unprocessable(format!("{} made no text", template.key())));
            }
            draft.content = Some(text);
        }
        let name = |template: Option<&RequestTemplate>, is_optional: bool| -> Result<Option<String>, HttpError> {
            let Some(template) = template else { return Ok(None) };
            let text = template.render(&request)?;
            if let Some(nudged) = &nudged
                && template.render(nudged)? != text
            {
                let reason =
                    "holds a number with a fraction or more than 64 bits, which is rounded; send it as a string";
                return Err(HttpError::unprocessable(format!("what {} made {reason}", template.key())));
            }
            let text = text.trim();
            // The text is empty if this event lacks the field of the template.
            if text.is_empty() && is_optional {
                return Ok(None);
            }
            check_name(&format!("what {} made", template.key()), text)?;
            Ok(Some(text.to_owned()))
        };
        // Without the error for an empty text, messages of different chats or senders would become those of one.
        draft.chat_id = name(chat_id.as_ref(), false)?.or(draft.chat_id);
        draft.sender = name(sender.as_ref(), false)?.or(draft.sender);
        Ok((draft, name(id.as_ref(), true)?, name(session, true)?))
    }

    fn message(
        &self,
        draft: MessageDraft,
        own_id: Option<String>,
        own_session: Option<String>,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<InboundMessage, HttpError> {
        draft.chat_id.as_ref().map_or(Ok(()), |text| check_key("\"chat_id\"", text))?;
        for (what, text) in [("sender", &draft.sender), ("id", &draft.id)] {
            text.as_ref().map_or(Ok(()), |text| check_name(&format!("{what:?}"), text))?;
        }
        let chat_id = draft.chat_id.as_deref().unwrap_or("default");
        let sender = draft.sender.as_deref().unwrap_or(&self.channel);
        if self.allow_from.as_ref().is_some_and(|list| !list.allows(sender)) {
            return Err(HttpError::forbidden(format!("this webhook does not listen to the sender {sender:?}")));
        }
        let sender_id = match own_id {
            Some(id) => Some(id),
            None => self.sender_id(headers, draft.id)?,
        };
        let trust = self.trust(draft.author, sender);
        let session = match (&self.session, own_session.or(draft.session)) {
            (Some(SessionRule::Fixed(key)), _) => Some(key.clone()),
            (_, Some(key)) => Some(self.session(&key, trust)?),
            (_, None) => None,
        };
        let content = draft.content.ok_or_else(|| HttpError::unprocessable("\"content\" is missing"))?;
        let mut message = InboundMessage::text(&self.channel, chat_id, sender, trust, content);
        if let Some(id) = &sender_id {
            message.metadata.insert(EXTERNAL_ID.into(), id.as_str().into());
        }
        message.settings = self.turn.clone();
        let external_id = sender_id.or_else(|| self.fingerprint(headers, body));
        Ok(InboundMessage { external_id, session, ..message })
    }

    /// Returns the id that the sender assigned. If the body is signed, unsigned headers do not count, since a replayed
    /// request could change them. GitHub signs no id; for GitHub, the delivery id is the best available one.
    fn sender_id(&self, headers: &HeaderMap, in_body: Option<String>) -> Result<Option<String>, HttpError> {
        if self.verifier.service() == Some(EventService::Github)
            && let Some(id) = github_delivery(headers)
        {
            check_name("x-github-delivery", &id)?;
            return Ok(Some(id));
        }
        Ok(match &self.verifier {
            Verifier::Signed { service: Some(EventService::Stripe | EventService::Slack), .. } => in_body,
            Verifier::Signed { service: None, .. } => header_id(headers, HEADER_ID)?,
            _ => header_id(headers, HEADER_ID)?.or(header_id(headers, IDEMPOTENCY_KEY)?).or(in_body),
        })
    }

    /// Returns an id for a request without one, if its time is signed. The same bytes at the same time are then a
    /// repetition of the same request.
    fn fingerprint(&self, headers: &HeaderMap, body: &[u8]) -> Option<String> {
        let time = self.verifier.signed_time(headers);
        (!time.is_empty()).then(|| format!("sha256:{}", sha256_hex(&[time.as_bytes(), b".", body])))
    }

    /// Returns how far the sender is trusted. `author` is the proof that the body gives. A native body on a service's
    /// webhook proves nothing, and neither does a service's body on another webhook.
    fn trust(&self, author: Author, sender: &str) -> Trust {
        let author = if author == self.author { author } else { Author::Unproven };
        trust_of(author, self.lists.of(&self.channel).listing(sender))
    }

    /// Returns the session for a key. A plain name becomes one of this webhook's own sessions. Other sessions need
    /// `any_session` and a trusted sender, since the model gets the conversation of the session.
    fn session(&self, key: &str, trust: Trust) -> Result<SessionKey, HttpError> {
        let own = format!("{}:", self.channel);
        let is_own = match key.strip_prefix(&own) {
            Some(rest) => !rest.trim().is_empty(),
            None => !key.contains(':'),
        };
        if is_own || (self.any_session && trust != Trust::Untrusted) {
            return fixed_session(&self.channel, key);
        }
        if self.any_session && !key.starts_with(&own) {
            let reason = "\"session\" is another channel's, which only senders in trusted_from may choose";
            return Err(HttpError::forbidden(reason));
        }
        Err(HttpError::forbidden(format!("\"session\" is not a plain name or a key below {own}")))
    }
}

/// Returns the id in a header; an empty one counts as absent.
fn header_id(headers: &HeaderMap, name: &str) -> Result<Option<String>, HttpError> {
    let Some(value) = single_header(headers, name).map_err(HttpError::bad_request)? else { return Ok(None) };
    let text = value.to_str().map_err(|_| HttpError::unprocessable(format!("{name} is not plain text")))?.trim();
    if text.is_empty() {
        return Ok(None);
    }
    check_name(name, text)?;
    Ok(Some(text.to_owned()))
}

/// The form field with GitHub's JSON.
const FORM_FIELD: &[u8] = b"payload";

/// Decodes a body as UTF-8. The error is a 400 with the position of the wrong byte.
fn body_text(body: &[u8]) -> Result<&str, HttpError> {
    let text = std::str::from_utf8(body).map_err(|error| {
        HttpError::bad_request(format!("the body is not UTF-8: byte {} cannot be read", error.valid_up_to() + 1))
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err(HttpError::bad_request("the body is empty; JSON is expected"));
    }
    Ok(text)
}

/// Returns the JSON inside a form (`payload=…`), which GitHub sends if configured so; returns any other body unchanged.
fn without_form<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Cow<'a, [u8]>, HttpError> {
    let kind = headers.get(header::CONTENT_TYPE).map(|value| value.as_bytes().to_ascii_lowercase()).unwrap_or_default();
    if !kind.starts_with(b"application/x-www-form-urlencoded") || body.trim_ascii_start().starts_with(b"{") {
        return Ok(body.into());
    }
    let field = body.split(|byte| *byte == b'&').find_map(|pair| {
        let value = pair.strip_prefix(FORM_FIELD)?.strip_prefix(b"=")?;
        Some(percent_decoded(value))
    });
    field.map(Cow::Owned).ok_or_else(|| HttpError::bad_request("the form has no field \"payload\" with the JSON"))
}

/// Decodes a value of a form (<https://url.spec.whatwg.org/#concept-urlencoded-parser>): `+` is a space, `%XX` a byte;
/// anything else stays.
fn percent_decoded(value: &[u8]) -> Vec<u8> {
    let spaced: Vec<u8> = value.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    percent_encoding::percent_decode(&spaced).collect()
}

#[cfg(test)]
#[path = "request_parser_tests.rs"]
mod tests;
