//! The state of a client: the answers, diagnostics and progress of its server, and the client's answers to the server's requests.
//! Nothing here waits or does I/O.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use lsp_types::{Diagnostic, Url};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};

use crate::text::{one_line, truncate};

/// The maximum length of the id of a request or a progress report, in bytes.
const MAX_ID: usize = 200;
/// The maximum number of diagnostics of a file, and of progress reports, that are kept.
pub(super) const MAX_DIAGNOSTICS: usize = 2_000;
const MAX_PROGRESS: usize = 1_000;
/// The maximum number of items in a configuration request.
const MAX_ITEMS: usize = 1_000;
/// The maximum number of characters of a server's error that are shown.
const SHOWN_CHARS: usize = 500;

/// An error as the server reports it. Its text is not for the model without the name of the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerFault {
    pub message: String,
    /// True if a retry may succeed.
    pub is_temporary: bool,
}

/// The codes of errors after which the same request may succeed a moment later: the content changed in the meantime, the server
/// was busy or not ready, or it dropped the request.
const TEMPORARY_CODES: [i64; 4] = [-32801, -32802, -32800, -32002];

type ServerAnswer = Result<Value, ServerFault>;

/// The diagnostics of a file that a server published.
#[derive(Clone, Debug)]
pub(super) struct PublishedDiagnostics {
    pub version: Option<i32>,
    pub diagnostics: Vec<Diagnostic>,
    /// The number of the publication, which increases.
    pub serial: u64,
}

/// The health of a server, as the server reports it. Its messages are not shown, since all conversations share the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub(super) enum ServerHealth {
    #[default]
    Ok,
    /// The server works with only a part of the project or of its libraries.
    Warning,
    /// It could not load the project.
    Error,
}

impl ServerHealth {
    /// Returns the note about the health that is added to a result.
    pub(super) fn note(self) -> Option<&'static str> {
        match self {
            Self::Ok => None,
            Self::Warning => Some("reports a problem with the project or its libraries"),
            Self::Error => Some("reports that it could not load the project"),
        }
    }
}

#[derive(Default)]
struct ServerState {
    pending: HashMap<i64, oneshot::Sender<ServerAnswer>>,
    /// The diagnostics of open files; files that are not open have no entry.
    published: HashMap<PathBuf, Option<PublishedDiagnostics>>,
    serial: u64,
    progress: HashSet<String>,
    has_reported_progress: bool,
    is_quiescent: Option<bool>,
    /// The health that the server reports.
    health: Option<ServerHealth>,
    /// True if the server has shown an error with `window/showMessage`.
    has_shown_error: bool,
    /// The reason why the server has ended.
    ended: Option<String>,
}

/// The state of the connection to one server.
pub(super) struct ClientState {
    root: Url,
    state: Mutex<ServerState>,
    changes: watch::Sender<()>,
}

#[derive(Deserialize)]
struct Message {
    id: Option<Value>,
    method: Option<String>,
    #[serde(default)]
    params: Value,
    #[serde(default)]
    result: Value,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Publication {
    uri: Url,
    version: Option<i32>,
    diagnostics: Vec<Value>,
}

impl ClientState {
    /// Creates the state. `root` is the folder of the project.
    pub(super) fn new(root: Url) -> Self {
        Self { root, state: Mutex::default(), changes: watch::Sender::new(()) }
    }

    /// Returns a receiver that each change wakes.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Registers a request that waits for its answer. The sender of the answer is dropped when the server ends.
    ///
    /// # Errors
    /// The server has ended, for this reason.
    pub(super) fn expect_answer(&self, id: i64) -> Result<oneshot::Receiver<ServerAnswer>, String> {
        let mut state = self.state.lock();
        if let Some(reason) = &state.ended {
            return Err(reason.clone());
        }
        let (sender, receiver) = oneshot::channel();
        state.pending.insert(id, sender);
        Ok(receiver)
    }

    /// Removes a request. Returns false if it was answered.
    pub(super) fn forget_request(&self, id: i64) -> bool {
        self.state.lock().pending.remove(&id).is_some()
    }

    /// Records that the server has ended, and fails all waiting requests. Only the first reason counts.
    pub(super) fn end(&self, reason: &str) {
        let mut state = self.state.lock();
        state.ended.get_or_insert_with(|| reason.to_owned());
        state.pending.clear();
        drop(state);
        self.changes.send_replace(());
    }

    /// Returns why the server has ended.
    pub(super) fn ended(&self) -> Option<String> {
        self.state.lock().ended.clone()
    }

    /// Starts or stops keeping the diagnostics of a file.
    pub(super) fn set_open(&self, path: &Path, is_open: bool) {
        let mut state = self.state.lock();
        if is_open {
            state.published.entry(path.to_owned()).or_default();
        } else {
            state.published.remove(path);
        }
    }

    /// Returns the newest diagnostics of an open file.
    pub(super) fn published(&self, path: &Path) -> Option<PublishedDiagnostics> {
        self.state.lock().published.get(path).cloned().flatten()
    }

    /// Returns the number of the newest publication of any file.
    pub(super) fn serial(&self) -> u64 {
        self.state.lock().serial
    }

    /// Returns true if the server reports work in progress.
    pub(super) fn is_working(&self) -> bool {
        !self.state.lock().progress.is_empty()
    }

    /// Returns true if the server has ever reported progress.
    pub(super) fn has_reported_progress(&self) -> bool {
        self.state.lock().has_reported_progress
    }

    /// Returns whether the server has read its project, if it reports that.
    pub(super) fn is_quiescent(&self) -> Option<bool> {
        self.state.lock().is_quiescent
    }

    /// Returns the health of the server: as `experimental/serverStatus` reports it, otherwise by whether the server has shown an
    /// error.
    pub(super) fn health(&self) -> ServerHealth {
        let state = self.state.lock();
        let shown = if state.has_shown_error { ServerHealth::Warning } else { ServerHealth::Ok };
        state.health.unwrap_or(shown)
    }

    /// Resets the flag for a shown error. The server loads the project again, and shows the error again if it persists.
    pub(super) fn forget_shown_error(&self) {
        self.state.lock().has_shown_error = false;
    }

    /// Handles a message. Returns the answer to send, if the message is a request.
    ///
    /// # Errors
    /// The bytes are not a message of the protocol.
    pub(super) fn handle(&self, bytes: &[u8]) -> Result<Option<Value>, String> {
        let read = serde_json::from_slice::<Message>(bytes);
        let message = read.map_err(|error| format!("it sent an invalid message: {}", one_line(&error.to_string())))?;
        let answer = match (message.method, message.id) {
            (Some(_), Some(Value::String(id))) if id.len() > MAX_ID => {
                return Err("the id of its request is too long".to_owned());
            }
            (Some(method), Some(id)) if id.is_i64() || id.is_string() => {
                Some(match answer_to(&method, &message.params, &self.root) {
                    Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
                    Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
                })
            }
            (Some(method), _) => {
                self.notice(&method, message.params);
                None
            }
            // An answer that no request waits for, such as a second one, is dropped.
            (None, id) => {
                let waits = id.and_then(|id| self.state.lock().pending.remove(&id.as_i64()?));
                if let Some(waits) = waits {
                    let answer = message.error.map_or(Ok(message.result), |error| Err(fault_of(&error)));
                    drop(waits.send(answer));
                }
                None
            }
        };
        self.changes.send_replace(());
        Ok(answer)
    }

    fn notice(&self, method: &str, params: Value) {
        let mut state = self.state.lock();
        match method {
            "textDocument/publishDiagnostics" => {
                state.serial += 1;
                let Ok(publication) = serde_json::from_value::<Publication>(params) else { return };
                let serial = state.serial;
                let Ok(path) = publication.uri.to_file_path() else { return };
                if let Some(published) = state.published.get_mut(&path) {
                    let diagnostics = publication.diagnostics.into_iter().take(MAX_DIAGNOSTICS);
                    let diagnostics = diagnostics.filter_map(|one| serde_json::from_value(one).ok()).collect();
                    *published = Some(PublishedDiagnostics { version: publication.version, diagnostics, serial });
                }
            }
            "$/progress" => {
                state.has_reported_progress = true;
                let token = params["token"].to_string();
                match params["value"]["kind"].as_str() {
                    Some("begin") if state.progress.len() < MAX_PROGRESS && token.len() <= MAX_ID => {
                        state.progress.insert(token);
                    }
                    Some("end") => {
                        state.progress.remove(&token);
                    }
                    _ => {}
                }
            }
            "window/showMessage" if params["type"] == 1 => state.has_shown_error = true,
            "experimental/serverStatus" => {
                state.is_quiescent = params["quiescent"].as_bool().or(state.is_quiescent);
                let health = params["health"].as_str().and_then(|name| name.parse().ok());
                state.health = Some(health.unwrap_or_default());
            }
            _ => {}
        }
    }
}

/// Returns an error of a server, with its message on one line, shortened.
fn fault_of(error: &Value) -> ServerFault {
    let text = error["message"].as_str().or(error.as_str()).map_or_else(|| error.to_string(), str::to_owned);
    let is_temporary = error["code"].as_i64().is_some_and(|code| TEMPORARY_CODES.contains(&code));
    ServerFault { message: truncate(&one_line(&text), SHOWN_CHARS), is_temporary }
}

/// Answers a request of a server. The client shows, asks and changes nothing for the server.
fn answer_to(method: &str, params: &Value, root: &Url) -> Result<Value, Value> {
    Ok(match method {
        "workspace/configuration" => {
            let items = params["items"].as_array().map_or(0, Vec::len);
            Value::Array(vec![Value::Null; items.min(MAX_ITEMS)])
        }
        "workspace/workspaceFolders" => json!([{"uri": root, "name": "workspace"}]),
        "workspace/applyEdit" => {
            json!({"applied": false, "failureReason": "only an edit that was asked for is applied"})
        }
        "window/showDocument" => json!({"success": false}),
        "client/registerCapability"
        | "client/unregisterCapability"
        | "window/showMessageRequest"
        | "window/workDoneProgress/create" => Value::Null,
        _ if method.starts_with("workspace/") && method.ends_with("/refresh") => Value::Null,
        _ => {
            let named = truncate(method, SHOWN_CHARS);
            return Err(json!({"code": -32601, "message": format!("{named} is not supported")}));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> ClientState {
        ClientState::new(Url::from_file_path("/w").unwrap())
    }

    #[test]
    fn requests_of_a_server_are_answered() {
        let state = state();
        for (method, params, expected) in [
            ("workspace/configuration", json!({"items": [{}, {}]}), json!({"result": [null, null]})),
            ("workspace/configuration", json!(null), json!({"result": []})),
            ("workspace/workspaceFolders", json!(null), json!({"result": [{"uri": "file:///w", "name": "workspace"}]})),
            ("client/registerCapability", json!({}), json!({"result": null})),
            ("window/showMessageRequest", json!({}), json!({"result": null})),
            ("window/workDoneProgress/create", json!({"token": 1}), json!({"result": null})),
            ("workspace/diagnostic/refresh", json!(null), json!({"result": null})),
            ("evil/run", json!({}), json!({"error": {"code": -32601, "message": "evil/run is not supported"}})),
        ] {
            let request = json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": params});
            let mut answer = state.handle(request.to_string().as_bytes()).unwrap().unwrap();
            assert_eq!((answer["id"].take(), answer["jsonrpc"].take()), (json!("a"), json!("2.0")));
            for (key, value) in expected.as_object().unwrap() {
                assert_eq!(&answer[key], value, "{method}");
            }
        }
        let request = json!({"id": 1, "method": "workspace/applyEdit", "params": {"edit": {}}});
        let answer = state.handle(request.to_string().as_bytes()).unwrap().unwrap();
        assert_eq!(answer["result"]["applied"], false);
    }

    #[test]
    fn each_answer_goes_to_its_request_once() {
        let state = state();
        let mut first = state.expect_answer(1).unwrap();
        let mut second = state.expect_answer(2).unwrap();
        for message in [
            json!({"id": 7, "result": 7}),
            json!({"id": 2, "result": "two"}),
            json!({"id": 2, "result": "again"}),
            json!({"id": "1", "result": "other"}),
            json!({"id": null, "error": {}}),
            json!({"id": 1, "error": {"code": -32801, "message": "content\nmodified"}}),
        ] {
            assert_eq!(state.handle(message.to_string().as_bytes()), Ok(None));
        }
        assert_eq!(second.try_recv().unwrap(), Ok(json!("two")));
        let fault = first.try_recv().unwrap().unwrap_err();
        assert_eq!((fault.message.as_str(), fault.is_temporary), ("content modified", true));
        let mut left = state.expect_answer(3).unwrap();
        state.end("it crashed");
        assert!(left.try_recv().is_err() && state.expect_answer(4).unwrap_err() == "it crashed");
        for garbage in [&b"{"[..], b"", b"[]", b"\xff", b"7"] {
            assert!(state.handle(garbage).is_err(), "{garbage:?}");
        }
    }

    #[test]
    fn diagnostics_of_open_files_and_progress_are_kept() {
        let state = state();
        state.set_open(Path::new("/w/a b.py"), true);
        let range = json!({"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 1}});
        let publish = |path: &str, diagnostics: Value| {
            let params = json!({"uri": format!("file:///w/{path}"), "version": 3, "diagnostics": diagnostics});
            let message = json!({"method": "textDocument/publishDiagnostics", "params": params});
            state.handle(message.to_string().as_bytes()).unwrap();
        };
        publish("other.py", json!([]));
        publish("a%20b.py", json!([{"range": range, "message": "wrong"}, {"message": "no range"}, 7]));
        let published = state.published(Path::new("/w/a b.py")).unwrap();
        assert_eq!((published.version, published.serial, published.diagnostics.len()), (Some(3), 2, 1));
        assert!(state.published(Path::new("/w/other.py")).is_none());
        for (kind, is_working) in [("begin", true), ("report", true), ("end", false), ("end", false)] {
            let message = json!({"method": "$/progress", "params": {"token": 1, "value": {"kind": kind}}});
            state.handle(message.to_string().as_bytes()).unwrap();
            assert_eq!(state.is_working(), is_working, "{kind}");
        }
        let show = |kind: u8| {
            let message = json!({"method": "window/showMessage", "params": {"type": kind, "message": "words"}});
            state.handle(message.to_string().as_bytes()).unwrap();
            state.health()
        };
        assert_eq!(
            [show(3), show(2), show(1), show(3)],
            [ServerHealth::Ok, ServerHealth::Ok, ServerHealth::Warning, ServerHealth::Warning]
        );
        state.forget_shown_error();
        assert_eq!((state.health(), show(1)), (ServerHealth::Ok, ServerHealth::Warning));
        // A reported status takes precedence over shown messages.
        for (params, expected, health) in [
            (json!({"quiescent": false}), Some(false), ServerHealth::Ok),
            (json!({"health": "error", "message": "no manifest"}), Some(false), ServerHealth::Error),
            (json!({"health": "warning", "message": "an old toolchain"}), Some(false), ServerHealth::Warning),
            (json!({"health": "ok", "quiescent": true}), Some(true), ServerHealth::Ok),
        ] {
            let message = json!({"method": "experimental/serverStatus", "params": params});
            state.handle(message.to_string().as_bytes()).unwrap();
            assert_eq!((state.is_quiescent(), state.health()), (expected, health));
        }
    }
}
