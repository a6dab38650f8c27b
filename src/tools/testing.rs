//! What the tests of this area share.

use std::path::PathBuf;
use std::sync::Arc;

use daoyou_channels::{SessionKey, Trust};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Beside, Executor, ToolContext, ToolsConfig, build};
use crate::chat::ToolCall;

pub(crate) fn context() -> ToolContext {
    ToolContext {
        session: SessionKey::of_chat("cli", "direct"),
        turn: Uuid::nil(),
        call_id: "call-1".to_owned(),
        channel: "cli".to_owned(),
        chat_id: "direct".to_owned(),
        sender: String::new(),
        files: Arc::default(),
        trust: Trust::Owner,
        metadata: "{}".into(),
        origin: Arc::default(),
        cancel: CancellationToken::new(),
    }
}

/// A home with its workspace, and the tools over it.
pub(crate) struct World {
    pub home: tempfile::TempDir,
    pub executor: Executor,
}

impl World {
    pub fn new(config: &ToolsConfig) -> Self {
        let home = tempfile::tempdir().unwrap();
        let workspace = home.path().join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        let executor =
            build(config, &workspace, home.path(), PathBuf::from("/proc/self/exe"), Beside::default()).unwrap();
        Self { home, executor }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join("workspace").join(name)
    }

    /// What the model reads of a call.
    pub async fn says(&self, name: &str, arguments: serde_json::Value) -> String {
        let call = ToolCall { id: "call-1".to_owned(), name: name.to_owned(), arguments: arguments.to_string() };
        self.executor.run(&call, &context()).await.result.render()
    }
}

/// What a message says.
pub(crate) fn said(effect: &super::Effect) -> &str {
    match effect {
        super::Effect::Message { content, .. } => content,
        other => panic!("no message: {other:?}"),
    }
}
