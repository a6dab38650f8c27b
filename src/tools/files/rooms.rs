//! How far the tools see that only look.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use daoyou_channels::Trust;
use serde_json::Value;

use crate::guard::Jail;
use crate::tools::ToolContext;

/// The files that may be looked at, by who asks.
#[derive(Clone)]
pub struct Rooms {
    /// What the configuration opens.
    open: Arc<Jail>,
    /// The workspace alone, for somebody whose words are data.
    workspace: Arc<Jail>,
    /// What of it he may see beside his own files, below the workspace.
    public: Arc<[PathBuf]>,
}

impl Rooms {
    /// `public` are the paths that outside senders may have read.
    pub fn new(open: Arc<Jail>, workspace: Arc<Jail>, public: &[String]) -> Self {
        let public = public.iter().filter_map(|path| below(&workspace, path)).collect();
        Self { open, workspace, public }
    }

    /// What one who is trusted so far may look at.
    pub fn of(&self, trust: Trust) -> &Arc<Jail> {
        if trust == Trust::Untrusted { &self.workspace } else { &self.open }
    }

    /// Whether a stranger may look at the `path` of these arguments: it came with his own message, or it is public.
    pub fn show_strangers(&self, arguments: &Value, context: &ToolContext) -> bool {
        let Some(path) = below(&self.workspace, arguments["path"].as_str().unwrap_or(".")) else { return false };
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
