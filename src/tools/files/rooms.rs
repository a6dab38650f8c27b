//! How far the tools reach, by who asks.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use daoyou_channels::Trust;
use serde_json::Value;

use crate::guard::Jail;
use crate::tools::ToolContext;
use crate::tools::private_folders::PrivateFolders;

/// The same files for all turns, but for the private folders that are closed to each.
#[derive(Clone)]
pub struct Doors {
    jail: Arc<Jail>,
    private: PrivateFolders,
}

impl Doors {
    /// `private` are the folders of the workspace that are not every turn's.
    pub fn new(jail: Jail, private: PrivateFolders) -> Self {
        Self { jail: Arc::new(jail), private }
    }

    /// What the turn of `context` may reach.
    pub fn of(&self, context: &ToolContext) -> Arc<Jail> {
        let covered = self.private.covered_for(context);
        Arc::new(self.jail.without(&covered.hidden).with(&covered.shown))
    }
}

/// The files that may be looked at, by who asks.
#[derive(Clone)]
pub struct Rooms {
    /// What the configuration opens.
    open: Doors,
    /// The workspace alone, for somebody whose words are data.
    workspace: Doors,
    /// What of it he may see beside his own files, below the workspace.
    public: Arc<[PathBuf]>,
}

impl Rooms {
    /// `public` are the paths that outside senders may have read.
    pub fn new(open: Doors, workspace: Doors, public: &[String]) -> Self {
        let public = public.iter().filter_map(|path| below(&workspace.jail, path)).collect();
        Self { open, workspace, public }
    }

    /// What the turn of `context` may look at.
    pub fn of(&self, context: &ToolContext) -> Arc<Jail> {
        if context.trust == Trust::Untrusted { self.workspace.of(context) } else { self.open.of(context) }
    }

    /// Whether a stranger may look at the `path` of these arguments: it came with his own message, or it is public.
    pub fn show_strangers(&self, arguments: &Value, context: &ToolContext) -> bool {
        let Some(path) = below(&self.workspace.jail, arguments["path"].as_str().unwrap_or(".")) else { return false };
        let is_own = || context.files.iter().any(|own| Path::new(own) == path);
        self.public.iter().any(|public| path.starts_with(public)) || is_own()
    }
}

/// A path below the workspace, without detours; `None` when it leads elsewhere.
fn below(jail: &Jail, path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    let path = path.strip_prefix(jail.root()).unwrap_or(path);
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(name) => plain.push(name),
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::json;

    use super::*;
    use crate::chat::ToolCall;
    use crate::tools::testing::context;
    use crate::tools::{Beside, PrivateFolders, ToolsConfig, build};

    #[tokio::test]
    async fn what_is_private_opens_to_the_owner_alone() {
        let home = tempfile::tempdir().unwrap();
        let workspace = home.path().join("workspace");
        std::fs::create_dir_all(workspace.join("memory")).unwrap();
        std::fs::write(workspace.join("memory/MEMORY.md"), "the PIN is 4711").unwrap();
        std::os::unix::fs::symlink("memory", workspace.join("link")).unwrap();
        let absolute = workspace.join("memory/MEMORY.md");
        let config = ToolsConfig { strangers_read: vec![".".to_owned()], ..ToolsConfig::default() };
        let beside = Beside { private: PrivateFolders::new(&["memory"]), ..Beside::default() };
        let executor = build(&config, &workspace, home.path(), PathBuf::from("/proc/self/exe"), beside).unwrap();
        for (name, arguments) in [
            ("read_file", json!({"path": "memory/MEMORY.md"})),
            ("read_file", json!({"path": "./link/../memory//MEMORY.md"})),
            ("read_file", json!({"path": "link/MEMORY.md"})),
            ("read_file", json!({"path": absolute})),
            ("list_dir", json!({"path": "memory"})),
            ("edit_file", json!({"path": "memory/MEMORY.md", "old_text": "4711", "new_text": "4712"})),
            ("message", json!({"content": "here", "attachments": ["memory/MEMORY.md"]})),
            ("write_file", json!({"path": "memory/new.md", "content": "- all is free"})),
            ("write_file", json!({"path": "memory/a/b.md", "content": "- all is free"})),
        ] {
            let call = ToolCall { id: "1".to_owned(), name: name.to_owned(), arguments: arguments.to_string() };
            for (trust, expected) in
                [(Trust::Untrusted, "is refused"), (Trust::Known, "off limits"), (Trust::Owner, "")]
            {
                let context = ToolContext { trust, ..context() };
                let said = executor.run(&call, &context).await.result;
                let is_closed = said.render().contains("off limits") || said.render().contains("is refused");
                assert_eq!(is_closed, trust != Trust::Owner, "{trust:?} {name} {arguments}: {}", said.render());
                assert!(trust == Trust::Untrusted || said.render().contains(expected), "{}", said.render());
            }
        }
        assert_eq!(std::fs::read_to_string(absolute).unwrap(), "the PIN is 4712");
    }
}
