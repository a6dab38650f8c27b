//! The fixtures of the tests of this module.

use std::path::PathBuf;
use std::sync::Arc;

use daoyou_channels::{SessionKey, Trust};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{PrivateFolders, ToolContext, ToolDeps, ToolExecutor, ToolsConfig, build};
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
        taint: Arc::default(),
        allow_lists: Arc::default(),
        agent: Arc::default(),
        is_approved: false,
        question: Arc::default(),
        cancel: CancellationToken::new(),
    }
}

/// A home with a workspace, and its tools.
pub(crate) struct ToolWorld {
    pub home: tempfile::TempDir,
    pub executor: ToolExecutor,
}

impl ToolWorld {
    pub fn new(config: &ToolsConfig) -> Self {
        Self::with_private(config, PrivateFolders::default())
    }

    /// Returns a world with folders that only some turns may use.
    pub fn with_private(config: &ToolsConfig, private: PrivateFolders) -> Self {
        Self::with_deps(config, ToolDeps { private, ..ToolDeps::default() })
    }

    pub fn with_deps(config: &ToolsConfig, deps: ToolDeps) -> Self {
        let home = tempfile::tempdir().unwrap();
        let workspace = home.path().join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        let executor = build(config, &workspace, home.path(), PathBuf::from("/proc/self/exe"), deps).unwrap();
        Self { home, executor }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join("workspace").join(name)
    }

    /// Returns what the model reads of a call.
    pub async fn says(&self, name: &str, arguments: serde_json::Value) -> String {
        self.says_in_call("call-1", name, arguments).await
    }

    /// As [`ToolWorld::says`], in a call with this id.
    pub async fn says_in_call(&self, id: &str, name: &str, arguments: serde_json::Value) -> String {
        let call = ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_string() };
        let context = ToolContext { call_id: id.to_owned(), ..context() };
        self.executor.run(&call, &context).await.result.render()
    }
}

/// Returns the content of a message.
pub(crate) fn message_content(effect: &super::ToolEffect) -> &str {
    match effect {
        super::ToolEffect::Message { content, .. } => content,
        other => panic!("no message: {other:?}"),
    }
}
