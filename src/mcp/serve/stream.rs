//! The messages on a stream, one per line, as `daoyou mcp serve` passes them on.
//!
//! rmcp's own transport of lines drops what it cannot read, and answers only one of two open requests with the same id.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;

use futures_util::future::{BoxFuture, Either, ready};
use parking_lot::Mutex;
use rmcp::RoleServer;
use rmcp::model::{ClientNotification, ErrorCode, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf, WriteHalf};

use super::envelope::{MAX_MESSAGE, NO_MESSAGE, id_in_use, read_envelope, refusal};
use super::requests::OpenRequests;

/// The byte order mark that some programs write in front of a text.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// The length of the start of a line that is kept of one that is too long, in bytes.
const MAX_START: usize = 1_024;

/// The server's side of a stream.
pub(super) struct StreamTransport<S> {
    lines: LineReader<ReadHalf<S>>,
    write: Arc<tokio::sync::Mutex<WriteHalf<S>>>,
    open: Mutex<OpenRequests>,
    /// A refusal that is being written. [`Transport::receive`] may be dropped at any time, and must not lose it.
    refusal: Option<BoxFuture<'static, io::Result<()>>>,
}

/// The id of a message whose other fields may be unreadable.
#[derive(Deserialize)]
struct MessageId {
    id: RequestId,
}

impl<S: AsyncRead + AsyncWrite + Send + 'static> StreamTransport<S> {
    pub(super) fn new(stream: S) -> Self {
        let (read, write) = tokio::io::split(stream);
        Self {
            lines: LineReader::new(read, MAX_MESSAGE),
            write: Arc::new(tokio::sync::Mutex::new(write)),
            open: Mutex::default(),
            refusal: None,
        }
    }

    /// Writes a message, the result of its serialization. The future is independent of `self`.
    fn write(&self, line: serde_json::Result<Vec<u8>>) -> impl Future<Output = io::Result<()>> + Send + use<S> {
        let write = self.write.clone();
        async move {
            let mut line = line?;
            line.push(b'\n');
            let mut write = write.lock().await;
            write.write_all(&line).await?;
            write.flush().await
        }
    }

    /// Reads a line. Returns `None` for a blank one, and for a notification that the server does not know.
    ///
    /// # Errors
    /// The line is not a message, or a request with the id of an open one; the error is the answer.
    fn read(&self, line: &[u8]) -> Result<Option<RxJsonRpcMessage<RoleServer>>, Value> {
        let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line).trim_ascii();
        if line.is_empty() {
            return Ok(None);
        }
        read_envelope(line).map_err(|fault| self.refuse(line, &fault))?;
        match serde_json::from_slice(line) {
            Ok(JsonRpcMessage::Request(mut request)) => {
                let mut open = self.open.lock();
                if open.contains(&request.id) {
                    let fault = id_in_use(&request.id.into_json_value());
                    return Err(refusal(ErrorCode::INVALID_REQUEST, None, &fault));
                }
                request.id = open.add(&request.id);
                Ok(Some(JsonRpcMessage::Request(request)))
            }
            Ok(JsonRpcMessage::Notification(mut notification)) => {
                // A cancelled request gets no response.
                if let ClientNotification::CancelledNotification(cancelled) = &mut notification.notification
                    && let Some(id) = &mut cancelled.params.request_id
                {
                    let Some(number) = self.open.lock().cancel(id) else { return Ok(None) };
                    *id = number;
                }
                Ok(Some(JsonRpcMessage::Notification(notification)))
            }
            Ok(message) => Ok(Some(message)),
            Err(error) => {
                let fields: Value = serde_json::from_slice(line).unwrap_or_default();
                if fields.get("id").is_none() && fields.get("method").is_some() {
                    tracing::debug!(%error, "a notification of an MCP client is ignored");
                    return Ok(None);
                }
                Err(self.refuse(line, NO_MESSAGE))
            }
        }
    }

    /// Returns the answer to a line that is not a message. It has the id of the line if that is readable and cannot be mistaken for
    /// the id of an open request.
    fn refuse(&self, line: &[u8], fault: &str) -> Value {
        let is_json = serde_json::from_slice::<Value>(line).is_ok();
        let code = if is_json { ErrorCode::INVALID_REQUEST } else { ErrorCode::PARSE_ERROR };
        let id = serde_json::from_slice::<MessageId>(line).ok().filter(|_| line.starts_with(b"{"));
        let id = id.map(|message| message.id).filter(|id| !self.open.lock().contains(id));
        refusal(code, id.as_ref(), fault)
    }
}

impl<S: AsyncRead + AsyncWrite + Send + 'static> Transport<RoleServer> for StreamTransport<S> {
    type Error = io::Error;

    fn send(
        &mut self,
        mut message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if !self.open.lock().restore_id(&mut message) {
            return Either::Left(ready(Ok(())));
        }
        Either::Right(self.write(serde_json::to_vec(&message)))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(refusal) = &mut self.refusal {
                refusal.await.ok()?;
                self.refusal = None;
            }
            let read = match self.lines.next().await {
                Ok(Some(BoundedLine::Complete(line))) => self.read(&line),
                Ok(Some(BoundedLine::TooLong(start))) => {
                    Err(too_long_error(&start, |id| self.open.lock().contains(id)))
                }
                Ok(None) => return None,
                Err(error) => {
                    tracing::debug!(%error, "an MCP stream cannot be read");
                    return None;
                }
            };
            match read {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(refusal) => self.refusal = Some(Box::pin(self.write(serde_json::to_vec(&refusal)))),
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.write.lock().await.shutdown().await
    }
}

/// Returns the answer to a line with more than [`MAX_MESSAGE`] bytes, of which `start` is known. It has the id of the line if that is
/// near its start and cannot be mistaken for the id of an open request.
pub fn too_long_error(start: &[u8], is_open: impl Fn(&RequestId) -> bool) -> Value {
    let id = id_at_start(start).filter(|id| !is_open(id));
    refusal(ErrorCode::PARSE_ERROR, id.as_ref(), &format!("the message has more than {MAX_MESSAGE} bytes (4 MB)"))
}

/// Returns the id of a message of which only the start is known.
fn id_at_start(start: &[u8]) -> Option<RequestId> {
    struct IdVisitor<'a>(&'a mut Option<RequestId>);

    impl<'de> Visitor<'de> for IdVisitor<'_> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a message")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
            while let Some(field) = fields.next_key::<String>()? {
                if field == "id" {
                    *self.0 = Some(fields.next_value()?);
                } else {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
            Ok(())
        }
    }

    // The end of a number is known only by the text after it.
    let end = start.iter().rposition(|byte| *byte == b',')?;
    let mut found = None;
    // The message is cut, so reading it always fails at the end.
    let _ = serde_json::Deserializer::from_slice(&start[..end]).deserialize_map(IdVisitor(&mut found));
    found
}

/// A line of a stream.
#[derive(Debug, PartialEq, Eq)]
pub enum BoundedLine {
    /// A line with its line break, if it has one.
    Complete(Vec<u8>),
    /// The line was too long and was dropped, except for its start.
    TooLong(Vec<u8>),
}

/// A reader of lines of bounded length. Dropping a pending read loses no data.
pub struct LineReader<R> {
    from: BufReader<R>,
    line: Vec<u8>,
    /// The maximum length of a line without its line break, in bytes.
    max: usize,
    /// The rest of a line that is too long is being dropped.
    is_dropping: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub fn new(from: R, max: usize) -> Self {
        Self { from: BufReader::new(from), line: Vec::new(), max, is_dropping: false }
    }

    /// Returns the next line; `None` at the end.
    ///
    /// # Errors
    /// The stream cannot be read.
    pub async fn next(&mut self) -> io::Result<Option<BoundedLine>> {
        loop {
            let available = self.from.fill_buf().await?;
            if available.is_empty() {
                let rest = std::mem::take(&mut self.line);
                if std::mem::take(&mut self.is_dropping) {
                    return Ok(Some(BoundedLine::TooLong(rest)));
                }
                return Ok((!rest.is_empty()).then_some(BoundedLine::Complete(rest)));
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            self.is_dropping |= self.line.len() + end.unwrap_or(available.len()) > self.max;
            let length = end.map_or(available.len(), |at| at + 1);
            if self.is_dropping {
                self.line.extend_from_slice(&available[..length.min(MAX_START.saturating_sub(self.line.len()))]);
                self.line.truncate(MAX_START);
                self.line.shrink_to_fit();
            } else {
                self.line.extend_from_slice(&available[..length]);
            }
            self.from.consume(length);
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                return Ok(Some(if std::mem::take(&mut self.is_dropping) {
                    BoundedLine::TooLong(line)
                } else {
                    BoundedLine::Complete(line)
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn lines_are_bounded_and_the_next_one_is_read() {
        let max = 20_000;
        let mut input = b"a\n".to_vec();
        for length in [max, max + 1] {
            input.extend(vec![b'x'; length]);
            input.extend(b"\n");
        }
        input.extend(b"b\nc");
        let complete = |text: &str| BoundedLine::Complete(text.as_bytes().to_vec());
        let too_long = || BoundedLine::TooLong(vec![b'x'; MAX_START]);
        let longest = "x".repeat(max) + "\n";
        for (input, expected) in [
            (input, vec![complete("a\n"), complete(&longest), too_long(), complete("b\n"), complete("c")]),
            (vec![b'x'; max + 1], vec![too_long()]),
        ] {
            let mut lines = LineReader::new(input.as_slice(), max);
            let mut found = Vec::new();
            while let Some(line) = lines.next().await.unwrap() {
                found.push(line);
            }
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_refused_with_an_id_near_its_start() {
        let long = "x".repeat(2 * MAX_START);
        for (start, expected) in [
            (format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":"{long}"#), json!(7)),
            (format!(r#"{{"id":"a","params":{{"id":"b","text":"{long}"#), json!("a")),
            (format!(r#"{{"method":"tools/call","params":{{"id":8,"text":"{long}"}},"id":7}}"#), json!(null)),
            (r#"{"jsonrpc":"2.0","id":12"#.to_owned(), json!(null)),
            (r#"{"jsonrpc":"2.0","id":5,"params":[1,"#.to_owned(), json!(null)),
            (format!(r#"["id",7,"{long}"#), json!(null)),
            (long.clone(), json!(null)),
        ] {
            let start = &start.as_bytes()[..start.len().min(MAX_START)];
            let refusal = too_long_error(start, |id| *id == RequestId::Number(5));
            assert_eq!(refusal["id"], expected, "{}", String::from_utf8_lossy(start));
        }
    }

    /// The response of a cancelled call may come after a new request with the same id.
    #[tokio::test]
    async fn a_cancelled_request_never_answers_the_next_one_with_its_id() {
        let (stream, mut client) = tokio::io::duplex(1_000);
        let mut transport = StreamTransport::new(stream);
        let ping = br#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#;
        let ask = |transport: &StreamTransport<_>| match transport.read(ping).unwrap() {
            Some(JsonRpcMessage::Request(request)) => request.id,
            other => panic!("{other:?}"),
        };
        let first = ask(&transport);
        let cancelled = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#;
        let Some(JsonRpcMessage::Notification(notification)) = transport.read(cancelled).unwrap() else { panic!() };
        let ClientNotification::CancelledNotification(noted) = notification.notification else { panic!() };
        assert_eq!(noted.params.request_id.as_ref(), Some(&first), "the call ends under the number that it has");
        assert!(transport.read(cancelled).unwrap().is_none(), "nothing is open");
        let second = ask(&transport);
        for (id, message) in [(first, "old"), (second, "new")] {
            let error = rmcp::model::ErrorData::internal_error(message, None);
            transport.send(JsonRpcMessage::error(error, Some(id))).await.unwrap();
        }
        transport.close().await.unwrap();
        let mut written = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut client, &mut written).await.unwrap();
        let answers: Vec<Value> = written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(answers.len(), 1, "{answers:?}");
        assert_eq!((&answers[0]["id"], &answers[0]["error"]["message"]), (&json!(5), &json!("new")));
    }

    #[test]
    fn an_unreadable_line_is_refused_with_its_id_if_that_is_readable() {
        let (stream, _other) = tokio::io::duplex(64);
        let transport = StreamTransport::new(stream);
        let ping = r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#;
        assert!(transport.read(ping.as_bytes()).unwrap().is_some());
        assert!(transport.read(format!("\u{feff}{}\r\n", ping.replace('5', "6")).as_bytes()).unwrap().is_some());
        let deep = format!(r#"{{"id":"deep","params":{}1{}}}"#, "[".repeat(500), "]".repeat(500));
        for (line, code, id) in [
            ("garbage", -32_700, json!(null)),
            ("{", -32_700, json!(null)),
            (r#"{"id":1,"method":"ping","params":{"a":"\ud800"}}"#, -32_700, json!(1)),
            (&deep, -32_700, json!("deep")),
            ("[5]", -32_600, json!(null)),
            (r#"{"id":1,"id":2}"#, -32_600, json!(null)),
            (r#"{"id":2,"a":1,"a":2}"#, -32_600, json!(2)),
            (r#"{"jsonrpc":"2.0"}"#, -32_600, json!(null)),
            (ping, -32_600, json!(null)),
            (r#"{"id":5,"a":1,"a":2}"#, -32_600, json!(null)),
        ] {
            let refusal = transport.read(line.as_bytes()).unwrap_err();
            assert_eq!((&refusal["error"]["code"], &refusal["id"]), (&json!(code), &id), "{line}: {refusal}");
        }
        assert_eq!(transport.read(b"\xff\xfe").unwrap_err()["error"]["code"], -32_700);
        for ignored in [" \r\n", r#"{"method":"$/setTrace","params":7}"#] {
            assert!(transport.read(ignored.as_bytes()).unwrap().is_none(), "{ignored}");
        }
        let cancelled = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#;
        assert!(transport.read(cancelled.as_bytes()).unwrap().is_some());
        assert!(transport.read(ping.as_bytes()).unwrap().is_some());
    }
}
