//! Parses the requests of clients.

use axum::http::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use super::content::{RequestFields, content, session_name, unsupported};
use super::responses::message_of_response;
use crate::attachment_folder::IncomingFile;
use crate::http_error::HttpError;
use crate::text::truncate;

/// The maximum number of files of one request.
const MAX_FILES: usize = 20;
/// The maximum size of the earlier messages for the model, in bytes.
const MAX_HISTORY: usize = 60_000;

const TOOLS: &str =
    "tools of clients are not supported: the agent runs its own tools; leave out \"tools\" and \"functions\"";

/// The supported parts of a request.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ApiRequest {
    /// The model's name; empty for the default model.
    pub model: String,
    /// The texts of system and developer messages.
    pub instructions: Vec<String>,
    /// The messages up to the last answer.
    pub history: Vec<ApiMessage>,
    /// The text and the files after the last answer.
    pub content: String,
    pub files: Vec<IncomingFile>,
    pub stream: bool,
    /// The client wants the token usage at the end of the stream.
    pub wants_usage: bool,
    /// The client wants reasoning and tool calls as `reasoning_content`.
    pub wants_reasoning: bool,
    /// The session that the body names.
    pub session: Option<String>,
    /// The message whose session the request continues, if the body names an earlier response.
    pub previous: Option<Uuid>,
}

/// A message of the conversation that the client keeps.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ApiMessage {
    pub is_answer: bool,
    pub text: String,
    pub files: Vec<IncomingFile>,
}

impl ApiRequest {
    /// Parses the body of `POST /v1/chat/completions`. Unsupported sampling fields, such as `temperature`, have no effect:
    /// the agent has its own settings.
    ///
    /// # Errors
    /// 400 with the name of the wrong field, or with code `unsupported` for what the agent does not support.
    pub fn parse_chat(body: &Value) -> Result<Self, HttpError> {
        let fields = RequestFields::of(body)?;
        check_supported(&fields)?;
        let effort = fields.text("reasoning_effort")?;
        let options = fields.object("stream_options")?;
        let mut request = Self {
            model: fields.text("model")?.unwrap_or_default(),
            stream: fields.flag("stream")?,
            wants_usage: options.map_or(Ok(false), |options| options.flag("include_usage"))?,
            wants_reasoning: fields.flag("include_reasoning")? || effort.is_some_and(|effort| effort != "none"),
            session: fields.text("user")?.map(|user| session_name("\"user\"", &user)).transpose()?,
            ..Self::default()
        };
        let Some(Value::Array(messages)) = fields.get("messages") else {
            return Err(HttpError::bad_request("\"messages\" is missing, or is not an array"));
        };
        request.read_messages("messages", messages)?;
        Ok(request)
    }

    /// Parses the body of `POST /v1/responses` by the rules of [`Self::parse_chat`].
    ///
    /// # Errors
    /// The errors of `parse_chat`.
    pub fn parse_response(body: &Value) -> Result<Self, HttpError> {
        let fields = RequestFields::of(body)?;
        fields.refuse("tools", TOOLS)?;
        fields.refuse("background", "\"background\" is not supported; a turn goes on when its client leaves")?;
        fields.refuse("prompt", "stored prompts are not supported; send the text as \"instructions\"")?;
        if let Some(text) = fields.object("text")? {
            text.refuse_format("format")?;
        }
        let conversation = fields.get("conversation").map(|conversation| {
            let name = conversation.as_str().or_else(|| conversation["id"].as_str());
            session_name("\"conversation\"", name.unwrap_or_default())
        });
        let previous = fields
            .text("previous_response_id")?
            .map(|id| message_of_response(&id).ok_or_else(|| unknown_response(&id)));
        let mut request = Self {
            model: fields.text("model")?.unwrap_or_default(),
            stream: fields.flag("stream")?,
            session: conversation.transpose()?,
            previous: previous.transpose()?,
            instructions: fields.text("instructions")?.into_iter().collect(),
            ..Self::default()
        };
        if request.session.is_some() && request.previous.is_some() {
            return Err(HttpError::bad_request("\"conversation\" and \"previous_response_id\" exclude each other"));
        }
        match fields.get("input") {
            Some(Value::Array(items)) => request.read_messages("input", items)?,
            Some(text @ Value::String(_)) => {
                let message = json!({ "role": "user", "content": text });
                request.read_messages("input", &[message])?;
            }
            _ => return Err(HttpError::bad_request("\"input\" is missing, or is neither a text nor an array")),
        }
        Ok(request)
    }

    /// Parses the messages of the field `key`.
    fn read_messages(&mut self, key: &str, messages: &[Value]) -> Result<(), HttpError> {
        let mut conversation = Vec::new();
        for (at, message) in messages.iter().enumerate() {
            let read = self.read_message(message);
            let read =
                read.map_err(|wrong| HttpError { message: format!("{key}[{at}] {}", wrong.message).into(), ..wrong });
            conversation.extend(read?);
        }
        self.split(conversation)
    }

    /// Parses a message. Instructions go to `self.instructions` and give `None`.
    fn read_message(&mut self, message: &Value) -> Result<Option<ApiMessage>, HttpError> {
        match message["type"].as_str() {
            None | Some("message") => {}
            // The model's reasoning is not part of the conversation.
            Some("reasoning") => return Ok(None),
            Some(kind) => {
                let kind: String = kind.chars().take(40).collect();
                return Err(unsupported(format!("is of the type {kind:?}; only messages are taken")));
            }
        }
        let Some(role) = message["role"].as_str() else { return Err(HttpError::bad_request("has no \"role\"")) };
        if matches!(role, "tool" | "function") {
            return Err(unsupported(
                "is the result of a client's tool, which is not taken: the agent runs its own tools",
            ));
        }
        let mut files = Vec::new();
        let is_empty_answer = role == "assistant" && message["content"].is_null();
        let text = if is_empty_answer {
            String::new()
        } else {
            content(&message["content"], &mut files).map_err(HttpError::bad_request)?
        };
        match role {
            "system" | "developer" => {
                self.instructions.push(text);
                Ok(None)
            }
            "user" => Ok(Some(ApiMessage { is_answer: false, text, files })),
            "assistant" => Ok(Some(ApiMessage { is_answer: true, text, files })),
            other => {
                let other: String = other.chars().take(40).collect();
                Err(HttpError::bad_request(format!("has the unknown role {other:?}")))
            }
        }
    }

    /// Splits the conversation into the messages to answer and the history before them.
    fn split(&mut self, mut conversation: Vec<ApiMessage>) -> Result<(), HttpError> {
        let answered = conversation.iter().rposition(|message| message.is_answer).map_or(0, |at| at + 1);
        let mut texts = Vec::new();
        for message in conversation.split_off(answered) {
            texts.push(message.text);
            self.files.extend(message.files);
        }
        self.history = conversation;
        self.content = texts.join("\n\n");
        if self.content.trim().is_empty() && self.files.is_empty() {
            return Err(HttpError::bad_request("there is no text or file of the user behind the last answer"));
        }
        if self.files.len() > MAX_FILES {
            let message = format!("the request has {} files; at most {MAX_FILES} are taken", self.files.len());
            return Err(HttpError::bad_request(message));
        }
        Ok(())
    }

    /// Returns the instructions of the client.
    pub fn prompt(&self) -> Option<String> {
        let prompt = self.instructions.join("\n\n");
        let prompt = prompt.trim();
        (!prompt.is_empty()).then(|| prompt.to_owned())
    }

    /// Returns the history as text. If it is too long, the beginning is left out.
    pub fn history_text(&self) -> Option<String> {
        let lines = self.history.iter().map(|message| {
            let files = message.files.iter().map(|file| format!("[file {}] ", file.name)).collect::<String>();
            format!("{}: {files}{}", if message.is_answer { "assistant" } else { "user" }, message.text)
        });
        let whole = lines.collect::<Vec<_>>().join("\n\n");
        let start = whole.ceil_char_boundary(whole.len().saturating_sub(MAX_HISTORY));
        match &whole[start..] {
            "" => None,
            all if start == 0 => Some(all.to_owned()),
            end => Some(format!("[the beginning is left out] …{end}")),
        }
    }

    /// Takes the files of the request; with `with_history` also the newest files of the earlier messages.
    pub fn take_files(&mut self, with_history: bool) -> Vec<IncomingFile> {
        let mut files = Vec::new();
        if with_history {
            files.extend(self.history.iter_mut().flat_map(|message| std::mem::take(&mut message.files)));
            files.drain(..files.len().saturating_sub(MAX_FILES - self.files.len()));
        }
        files.append(&mut self.files);
        files
    }
}

/// Returns a 404 for a response id that this gateway does not know.
pub(super) fn unknown_response(id: &str) -> HttpError {
    let message = format!("there is no response {:?} here", truncate(id, 100));
    HttpError::new(StatusCode::NOT_FOUND, "previous_response_not_found", message)
}

/// Rejects fields that would give a wrong answer if they were ignored.
fn check_supported(fields: &RequestFields<'_>) -> Result<(), HttpError> {
    fields.refuse("tools", TOOLS)?;
    fields.refuse("functions", TOOLS)?;
    fields.refuse("audio", "answers are text: leave out \"audio\"")?;
    fields.refuse("logprobs", "there are no \"logprobs\": an answer may come of several calls of a model")?;
    if fields.get("n").is_some_and(|n| *n != 1) {
        return Err(unsupported("\"n\" has to be 1: a turn has one answer"));
    }
    if fields.list("modalities")?.iter().any(|one| one != "text") {
        return Err(unsupported("answers are text: leave out other \"modalities\""));
    }
    fields.refuse_format("response_format")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(messages: &Value) -> Value {
        json!({"model": "daoyou", "messages": messages})
    }

    #[test]
    fn text_after_the_last_answer_is_the_message_and_the_rest_is_history() {
        let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVA="}});
        let body = chat(&json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "who?"}, image]},
            {"role": "assistant", "content": "Ann."},
            {"role": "user", "content": "where"},
            {"role": "developer", "content": [{"type": "text", "text": "In French."}]},
            {"role": "user", "content": [{"type": "text", "text": "and when?"}, image]},
        ]));
        let mut request = ApiRequest::parse_chat(&body).unwrap();
        assert_eq!(request.content, "where\n\nand when?");
        assert_eq!(request.prompt().as_deref(), Some("Be brief.\n\nIn French."));
        assert_eq!(request.history_text().as_deref(), Some("user: [file image-1.png] who?\n\nassistant: Ann."));
        assert!(!request.stream && !request.wants_usage && !request.wants_reasoning && request.session.is_none());
        assert_eq!(request.take_files(true).len(), 2);
        assert_eq!(ApiRequest::parse_chat(&body).unwrap().take_files(false).len(), 1);
        let long =
            chat(&json!([{"role": "assistant", "content": "道".repeat(50_000)}, {"role": "user", "content": "x"}]));
        let history = ApiRequest::parse_chat(&long).unwrap().history_text().unwrap();
        assert!(history.starts_with("[the beginning is left out] …道") && history.len() < MAX_HISTORY + 100);
    }

    #[test]
    fn unknown_fields_are_ignored_and_known_ones_are_read() {
        for absent in [json!({"include_usage": null}), json!({}), json!(null)] {
            let mut body = chat(&json!([{"role": "user", "content": "hi"}]));
            (body["stream_options"], body["response_format"], body["modalities"]) = (absent, json!({}), json!(null));
            assert!(!ApiRequest::parse_chat(&body).unwrap().wants_usage, "{body}");
        }
        let mut body = chat(&json!([{"role": "user", "content": "hi"}]));
        for (key, value) in [
            ("stream", json!(true)),
            ("stream_options", json!({"include_usage": true})),
            ("user", json!(" ann ")),
            ("reasoning_effort", json!("low")),
            ("temperature", json!(0.1)),
            ("metadata", json!({"task": "title_generation"})),
            ("chat_id", json!("1")),
            ("tools", json!([])),
            ("n", json!(1)),
            ("logprobs", json!(false)),
            ("response_format", json!({"type": "text"})),
            ("modalities", json!(["text"])),
            ("audio", json!(null)),
        ] {
            body[key] = value;
        }
        let request = ApiRequest::parse_chat(&body).unwrap();
        assert!(request.stream && request.wants_usage && request.wants_reasoning);
        assert_eq!(request.session.as_deref(), Some("ann"));
        let again = chat(
            &json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": null}, {"role": "user", "content": "b"}]),
        );
        assert_eq!(ApiRequest::parse_chat(&again).unwrap().content, "b");
    }

    #[test]
    fn wrong_and_unsupported_requests_have_one_clear_error() {
        let user = |content: Value| json!([{"role": "user", "content": content}]);
        let with = |key: &str, value: Value| {
            let mut body = chat(&user(json!("hi")));
            body[key] = value;
            body
        };
        let file = json!({"type": "file", "file": {"file_data": "aGk="}});
        for (body, code, expected) in [
            (json!([]), "bad_request", "not a JSON object"),
            (json!({}), "bad_request", "\"messages\" is missing"),
            (chat(&json!([])), "bad_request", "no text or file"),
            (chat(&user(json!(" "))), "bad_request", "no text or file"),
            (chat(&user(json!(1))), "bad_request", "messages[0] has no \"content\""),
            (chat(&json!([{"content": "x"}])), "bad_request", "messages[0] has no \"role\""),
            (chat(&json!([{"role": "king", "content": "x"}])), "bad_request", "unknown role \"king\""),
            (chat(&json!([{"role": "assistant", "content": "x"}])), "bad_request", "no text or file"),
            (chat(&json!([{"role": "tool", "content": "x"}])), "unsupported", "messages[0] is the result"),
            (chat(&user(json!(vec![file; MAX_FILES + 1]))), "bad_request", "21 files"),
            (with("tools", json!([{"type": "function"}])), "unsupported", "the agent runs its own tools"),
            (with("functions", json!([{"name": "f"}])), "unsupported", "the agent runs its own tools"),
            (with("n", json!(2)), "unsupported", "\"n\""),
            (with("audio", json!({})), "unsupported", "audio"),
            (with("modalities", json!(["text", "audio"])), "unsupported", "modalities"),
            (with("logprobs", json!(true)), "unsupported", "logprobs"),
            (
                with("response_format", json!({"type": "json_schema"})),
                "unsupported",
                "\"response_format\" has to be text",
            ),
            (with("response_format", json!({"type": ["text"]})), "unsupported", "\"response_format\""),
            (with("response_format", json!("json")), "bad_request", "\"response_format\" is not an object"),
            (with("response_format", json!(["json"])), "bad_request", "\"response_format\" is not an object"),
            (with("modalities", json!("audio")), "bad_request", "\"modalities\" is not a list"),
            (with("modalities", json!({"0": "audio"})), "bad_request", "\"modalities\" is not a list"),
            (with("modalities", json!([1])), "unsupported", "modalities"),
            (with("stream_options", json!("x")), "bad_request", "\"stream_options\" is not an object"),
            (with("stream_options", json!([true])), "bad_request", "\"stream_options\" is not an object"),
            (
                with("stream_options", json!({"include_usage": "true"})),
                "bad_request",
                "\"stream_options.include_usage\" is neither true nor false",
            ),
            (with("stream", json!("yes")), "bad_request", "\"stream\""),
            (with("model", json!(1)), "bad_request", "\"model\""),
            (with("user", json!("a\nb")), "bad_request", "\"user\""),
        ] {
            let error = ApiRequest::parse_chat(&body).unwrap_err();
            assert!(error.code == code && error.message.contains(expected), "{body}: {error:?}");
            assert_eq!(error.status, 400);
        }
    }

    #[test]
    fn responses_take_a_text_or_messages() {
        let response = Uuid::from_u128(7);
        let id = format!("resp_{}", response.simple());
        let plain = ApiRequest::parse_response(&json!({"input": "hi", "previous_response_id": id})).unwrap();
        assert_eq!((plain.content.as_str(), plain.previous, plain.session), ("hi", Some(response), None));
        let items = json!([
            {"role": "user", "content": "blue"},
            {"type": "reasoning", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "sky"}]},
            {"role": "user", "content": [{"type": "input_text", "text": "red"}, {"type": "input_file", "filename": "a", "file_data": "aGk="}]},
        ]);
        let body = json!({"input": items, "instructions": "Rhyme.", "conversation": {"id": "work"}, "stream": true, "store": false});
        let request = ApiRequest::parse_response(&body).unwrap();
        assert_eq!((request.content.as_str(), request.session.as_deref(), request.stream), ("red", Some("work"), true));
        assert_eq!((request.prompt().as_deref(), request.files.len()), (Some("Rhyme."), 1));
        assert_eq!(request.history_text().as_deref(), Some("user: blue\n\nassistant: sky"));
        for (key, value, code, expected) in [
            ("input", json!(1), "bad_request", "\"input\""),
            (
                "input",
                json!([{"type": "function_call_output", "output": "x"}]),
                "unsupported",
                "input[0] is of the type",
            ),
            ("tools", json!([{"type": "web_search"}]), "unsupported", "the agent runs its own tools"),
            ("background", json!(true), "unsupported", "background"),
            ("prompt", json!({"id": "p"}), "unsupported", "prompt"),
            ("text", json!({"format": {"type": "json_schema"}}), "unsupported", "\"text.format\" has to be text"),
            ("text", json!({"format": "json"}), "bad_request", "\"text.format\" is not an object"),
            ("text", json!(["format"]), "bad_request", "\"text\" is not an object"),
            ("text", json!("format"), "bad_request", "\"text\" is not an object"),
            ("conversation", json!(7), "bad_request", "conversation"),
            ("conversation", json!("work"), "bad_request", "exclude each other"),
            ("previous_response_id", json!("resp_x"), "previous_response_not_found", "resp_x"),
        ] {
            let mut body = json!({"input": "hi", "previous_response_id": id});
            body[key] = value;
            let error = ApiRequest::parse_response(&body).unwrap_err();
            assert!(error.code == code && error.message.contains(expected), "{body}: {error:?}");
        }
    }
}
