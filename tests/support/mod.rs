//! The tools with which stories and benchmarks drive the gateway: a scripted model, a callback sink, the real binary, a
//! terminal, mail servers, and the invariant checker.

pub mod anthropic;
pub mod attached;
pub mod clock;
pub mod config;
pub mod dns;
pub mod embeddings;
pub mod exposition;
pub mod gateway;
pub mod invariants;
pub mod mail;
pub mod model;
pub mod page;
pub mod port;
pub mod processes;
pub mod pty;
pub mod recorded;
pub mod reply;
pub mod requirements;
pub mod signing;
pub mod sink;
pub mod swapper;

mod strict;
mod strict_anthropic;
pub mod web;

use std::path::{Path, PathBuf};
use std::time::Duration;

use daoyou::tools::ToolContext;
use daoyou_channels::Trust;
use uuid::Uuid;

pub use config::{Hook, Setup};
pub use embeddings::Embeddings;
pub use gateway::Gateway;
pub use model::Model;
pub use reply::{Gate, Reply};
pub use sink::{Answer, Sink};

/// Returns the context of a tool call in a turn with this trust at the terminal.
pub fn tool_context(trust: Trust) -> ToolContext {
    ToolContext { turn: Uuid::nil(), trust, ..ToolContext::of_owner("cli", "direct", "call-1") }
}

/// Writes a file, and creates the folders above it.
pub fn write_file(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    std::fs::create_dir_all(path.parent().expect("a file in a folder")).expect("the folder is the story's own");
    std::fs::write(path, text).expect("the folder is the story's own");
}

/// Returns a pronounceable word, a different one for each number.
pub fn spelled(mut number: usize) -> String {
    const SYLLABLES: [&str; 16] =
        ["ba", "do", "ki", "lu", "me", "na", "po", "ra", "su", "ti", "vo", "wa", "xe", "zo", "fu", "ga"];
    let mut word = String::from("k");
    while number > 0 {
        word += SYLLABLES[number % SYLLABLES.len()];
        number /= SYLLABLES.len();
    }
    word + "x"
}

/// Writes files below a folder.
pub fn write_files(folder: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        write_file(folder.join(path), text);
    }
}

/// Returns the files below a folder, without following links. Folders that vanish meanwhile are left out.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(fault) if fault.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(fault) => panic!("{}: {fault}", folder.display()),
    };
    let paths = entries.flatten().map(|entry| entry.path()).filter(|path| !path.is_symlink());
    let (folders, others): (Vec<_>, Vec<_>) = paths.partition(|path| path.is_dir());
    let files = others.into_iter().filter(|path| path.is_file());
    files.chain(folders.iter().flat_map(|folder| files_below(folder))).collect()
}

/// The time limit for reaching a state. It is generous, because it costs time only when a test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The polling interval for states without a notification.
pub const POLL: Duration = Duration::from_millis(5);

/// Waits for `future`; panics with `what` when it times out.
pub async fn deadline<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {PATIENCE:?} for {what}"),
    }
}

/// Polls until `probe` returns something; panics with `what` when it times out.
pub async fn until<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    deadline(what, async {
        loop {
            if let Some(found) = probe().await {
                return found;
            }
            tokio::time::sleep(POLL).await;
        }
    })
    .await
}
