//! Fixtures for the tests of this module.

use std::path::PathBuf;
use std::sync::Arc;

use daoyou_channels::Trust;
use serde_json::Value;
use uuid::Uuid;

use super::registry::ToolRegistryError;
use super::{PrivateFolders, Tool, ToolContext, ToolDeps, ToolExecutor, ToolOutcome, ToolResult, ToolsConfig, build};
use crate::chat::ToolCall;

pub(crate) fn context() -> ToolContext {
    ToolContext { turn: Uuid::nil(), ..ToolContext::of_owner("cli", "direct", "call-1") }
}

/// A home folder with a workspace, and its tools.
pub(crate) struct ToolFixture {
    pub home: tempfile::TempDir,
    pub executor: ToolExecutor,
}

impl ToolFixture {
    pub fn new(config: &ToolsConfig) -> Self {
        Self::with_private(config, PrivateFolders::default())
    }

    /// Creates a fixture with folders that only some turns may use.
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

    /// Writes files of the workspace, and creates their folders.
    pub fn write(&self, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = self.path(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    /// Runs a call in the turn of `context`.
    pub async fn run(&self, name: &str, arguments: &Value, context: &ToolContext) -> ToolOutcome {
        let (id, name, arguments) = (context.call_id.clone(), name.to_owned(), arguments.to_string());
        self.executor.run(&ToolCall { id, name, arguments }, context).await
    }

    /// Runs a call for a sender with this trust level.
    pub async fn run_as(&self, trust: Trust, name: &str, arguments: &Value) -> ToolResult {
        self.run(name, arguments, &ToolContext { trust, ..context() }).await.result
    }

    /// Returns the text of a call's result that the model reads.
    pub async fn rendered(&self, name: &str, arguments: Value) -> String {
        self.rendered_in_call("call-1", name, arguments).await
    }

    /// Returns the same text as [`ToolFixture::rendered`], for a call with this id.
    pub async fn rendered_in_call(&self, id: &str, name: &str, arguments: Value) -> String {
        self.run(name, &arguments, &ToolContext { call_id: id.to_owned(), ..context() }).await.result.render()
    }
}

impl ToolExecutor {
    /// Adds a tool of a test.
    pub(crate) fn register(&mut self, tool: Arc<dyn Tool>) -> Result<(), ToolRegistryError> {
        self.registry.register(tool)
    }
}

/// Returns the content of a message.
pub(crate) fn message_content(effect: &super::ToolEffect) -> &str {
    match effect {
        super::ToolEffect::Message { content, .. } => content,
        other => panic!("no message: {other:?}"),
    }
}
