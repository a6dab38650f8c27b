//! A client of the gateway's control socket that is attached to the owner's chat.

use futures_util::StreamExt;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::{Gateway, deadline};

/// The frames that the control socket sends to a terminal that shows the owner's chat.
pub struct Attached {
    frames: mpsc::UnboundedReceiver<Value>,
}

impl Attached {
    /// Attaches to the owner's chat and waits until the gateway has confirmed it.
    pub async fn open(gateway: &Gateway) -> Self {
        let client = reqwest::Client::builder()
            .unix_socket(gateway.home().join("daoyou.sock"))
            .tls_certs_only(std::iter::empty())
            .no_proxy()
            .build()
            .expect("a client without certificates");
        let response = client.get("http://daoyou/api/attach?chat_id=direct").send().await.expect("the gateway answers");
        let (sender, frames) = mpsc::unbounded_channel();
        let (attached, is_attached) = oneshot::channel();
        tokio::spawn(async move {
            let (mut stream, mut text, mut attached) = (response.bytes_stream(), Vec::new(), Some(attached));
            while let Some(Ok(bytes)) = stream.next().await {
                text.extend_from_slice(&bytes);
                while let Some(end) = text.windows(2).position(|pair| pair == b"\n\n") {
                    let event: Vec<u8> = text.drain(..end + 2).collect();
                    let data = event.strip_prefix(b"data: ").unwrap_or_default();
                    let frame: Value = serde_json::from_slice(data).unwrap_or_default();
                    if frame == "attached" {
                        attached.take().map(|attached| attached.send(()));
                    } else if frame["event"].is_object() && sender.send(frame).is_err() {
                        return;
                    }
                }
            }
        });
        deadline("the stream to begin", is_attached).await.expect("the gateway accepts the client");
        Self { frames }
    }

    /// Returns the frames of events up to the end of the next turn: `done` or `error`.
    pub async fn turn(&mut self) -> Vec<Value> {
        let mut frames: Vec<Value> = Vec::new();
        loop {
            let frame = deadline("the turn's next event", self.frames.recv()).await.expect("the gateway lives");
            let kind = frame["event"]["event"]["type"].as_str();
            let is_end = matches!(kind, Some("done" | "error"));
            frames.push(frame);
            if is_end {
                return frames;
            }
        }
    }
}
