//! The running language servers: one for each kind and project. The first call starts a server, and an idle server is stopped.

use std::collections::HashMap;
use std::env::split_paths;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use daoyou_channels::Trust;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::config::LspConfig;
use super::connection::LspConnection;
use super::languages::ServerKind;
use super::server::{LanguageServer, url_of};
use crate::text::shell_quote;
use crate::tools::exec::{CommandRunner, ServerError};

/// The maximum number of servers that run at the same time.
const MAX_SERVERS: usize = 4;
/// The maximum time between two searches for idle servers.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
const SHORTEST_WAIT: Duration = Duration::from_millis(100);

type ServerKey = (&'static str, PathBuf);

/// The servers of one workspace.
pub(super) struct LanguageServers {
    runner: Arc<CommandRunner>,
    pub config: LspConfig,
    slots: Mutex<ServerSlots>,
}

#[derive(Default)]
struct ServerSlots {
    by_key: HashMap<ServerKey, Arc<ServerSlot>>,
    /// True if a task stops idle servers.
    is_watched: bool,
}

/// A server that runs or is being started.
struct ServerSlot {
    running: tokio::sync::Mutex<Option<RunningServer>>,
    usage: Mutex<SlotUsage>,
}

struct RunningServer {
    server: Arc<LanguageServer>,
    /// The folders that appear empty in the server's sandbox.
    hidden: Vec<PathBuf>,
}

struct SlotUsage {
    calls: usize,
    last: Instant,
}

impl ServerSlot {
    fn idle_since(&self) -> Option<Instant> {
        let usage = self.usage.lock();
        (usage.calls == 0).then_some(usage.last)
    }
}

/// The use of a server by one call.
pub(super) struct ServerLease {
    pub server: Arc<LanguageServer>,
    _use: SlotUse,
}

struct SlotUse(Arc<ServerSlot>);

impl SlotUse {
    fn new(slot: Arc<ServerSlot>) -> Self {
        slot.usage.lock().calls += 1;
        Self(slot)
    }
}

impl Drop for SlotUse {
    fn drop(&mut self) {
        let mut usage = self.0.usage.lock();
        usage.calls = usage.calls.saturating_sub(1);
        usage.last = Instant::now();
    }
}

impl LanguageServers {
    pub(super) fn new(runner: Arc<CommandRunner>, config: LspConfig) -> Self {
        Self { runner, config, slots: Mutex::default() }
    }

    /// Returns the server of a project, and starts it if necessary.
    ///
    /// # Errors
    /// The turn may not run commands, the server is not installed or does not start, or too many servers are in use.
    pub(super) async fn lease(
        self: &Arc<Self>,
        kind: &'static ServerKind,
        root: &Path,
        trust: Trust,
        cancel: &CancellationToken,
    ) -> Result<ServerLease, ServerError> {
        let environment = self.environment();
        let command = self.command(kind, &environment).map_err(ServerError::lasting)?;
        let name = Path::new(&command[0]).file_name().unwrap_or_default().to_string_lossy().into_owned();
        // This refuses a turn that may not run commands, even if the server already runs.
        let request = self.runner.shared_request(script(root, &command), trust).await;
        let request = request.map_err(ServerError::lasting)?;
        let slot = self.slot((kind.name, root.to_owned())).await?;
        let shared = Arc::clone(&slot.0);
        let mut running = tokio::select! {
            running = shared.running.lock() => running,
            () = cancel.cancelled() => return Err(ServerError::lasting("Cancelled")),
        };
        let hidden = request.hidden.clone();
        if let Some(RunningServer { server, hidden: seen }) = running.take() {
            let is_running = server.connection.state.ended().is_none();
            // A server that was started earlier would see a hidden folder that appeared later, so it is replaced.
            if is_running && seen == hidden {
                *running = Some(RunningServer { server: Arc::clone(&server), hidden });
                return Ok(ServerLease { server, _use: slot });
            }
            if is_running {
                server.shut_down().await;
            }
        }
        let connection = LspConnection::start(&self.runner.exe, &environment, &request, name, url_of(root)?).await?;
        let folders = (root, kind.outermost_root(&self.runner.workspace, root));
        let limit = self.config.startup_timeout.0;
        let server = LanguageServer::initialize(kind, connection, folders, self.hidden(), limit, cancel).await?;
        let server = Arc::new(server);
        *running = Some(RunningServer { server: Arc::clone(&server), hidden });
        Ok(ServerLease { server, _use: slot })
    }

    /// Returns the folders that servers do not see.
    pub(super) fn hidden(&self) -> Vec<PathBuf> {
        self.runner.unshared_folders().iter().map(|folder| self.runner.workspace.join(folder)).collect()
    }

    /// Returns the command of a server.
    ///
    /// # Errors
    /// The server is not installed.
    fn command(&self, kind: &ServerKind, environment: &[(String, String)]) -> Result<Vec<String>, String> {
        let path = environment.iter().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value.as_str());
        if let Some(command) = self.config.servers.get(kind.name).filter(|command| !command.is_empty()) {
            if !is_program(&command[0], path) {
                return Err(format!("{} of tools.lsp.servers is not a program", command[0]));
            }
            return Ok(command.clone());
        }
        let found = kind.commands.iter().find(|command| is_program(command[0], path));
        let command = found.map(|command| command.iter().map(|word| (*word).to_owned()).collect());
        let ServerKind { language, install, .. } = kind;
        command.ok_or_else(|| format!("no language server for {language} on PATH; the owner can install {install}"))
    }

    /// Returns the environment of servers: the environment of commands, the locations of the user's toolchains, and the settings
    /// that keep servers off the network.
    fn environment(&self) -> Vec<(String, String)> {
        let mut environment = self.runner.environment();
        // Commands have the workspace as their home, so the user's home is looked up here.
        let user = std::env::home_dir().unwrap_or_default();
        let is_offline = !self.runner.config.network;
        // With network access, servers download into two of these folders. The user's own ones, which are read-only here, are
        // then of no use.
        let toolchains = [
            ("RUSTUP_HOME", ".rustup", true),
            ("CARGO_HOME", ".cargo", is_offline),
            ("GOMODCACHE", "go/pkg/mod", is_offline),
        ];
        for (name, folder, is_useful) in toolchains {
            let folder = std::env::var_os(name).map_or_else(|| user.join(folder), PathBuf::from);
            if is_useful && !environment.iter().any(|(set, _)| set == name) && self.runner.can_read(&folder) {
                environment.push((name.to_owned(), folder.display().to_string()));
            }
        }
        if is_offline {
            let offline = [("CARGO_NET_OFFLINE", "true"), ("GOPROXY", "off"), ("GOTOOLCHAIN", "local")];
            environment.extend(offline.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        environment
    }

    /// Returns the slot of a server. If there are too many servers, stops the least recently used one.
    async fn slot(self: &Arc<Self>, key: ServerKey) -> Result<SlotUse, ServerError> {
        let (slot, stopped) = {
            let mut slots = self.slots.lock();
            let mut stopped = None;
            if !slots.by_key.contains_key(&key) && slots.by_key.len() >= MAX_SERVERS {
                let idle = slots.by_key.iter().filter_map(|(key, slot)| Some((slot.idle_since()?, key.clone())));
                let Some((_, oldest)) = idle.min() else {
                    let text = format!("{MAX_SERVERS} language servers are in use; try again when a call has ended");
                    return Err(ServerError::for_now(text));
                };
                stopped = slots.by_key.remove(&oldest);
            }
            let usage = || Mutex::new(SlotUsage { calls: 0, last: Instant::now() });
            let fresh = || Arc::new(ServerSlot { running: tokio::sync::Mutex::default(), usage: usage() });
            let slot = SlotUse::new(Arc::clone(slots.by_key.entry(key).or_insert_with(fresh)));
            if !std::mem::replace(&mut slots.is_watched, true) {
                let wait = (self.config.idle_timeout.0 / 4).clamp(SHORTEST_WAIT, LONGEST_WAIT);
                tokio::spawn(watch(Arc::downgrade(self), wait));
            }
            (slot, stopped)
        };
        if let Some(stopped) = stopped {
            stop(&stopped).await;
        }
        Ok(slot)
    }

    /// Stops idle servers. Returns false if no server is left.
    async fn stop_idle(&self) -> bool {
        let limit = self.config.idle_timeout.0;
        let (idle, is_left) = {
            let mut slots = self.slots.lock();
            let is_idle = |slot: &Arc<ServerSlot>| slot.idle_since().is_some_and(|since| since.elapsed() >= limit);
            let keys: Vec<_> =
                slots.by_key.iter().filter(|(_, slot)| is_idle(slot)).map(|(key, _)| key.clone()).collect();
            let idle: Vec<_> = keys.iter().filter_map(|key| slots.by_key.remove(key)).collect();
            slots.is_watched = !slots.by_key.is_empty();
            (idle, slots.is_watched)
        };
        for slot in idle {
            stop(&slot).await;
        }
        is_left
    }
}

/// Stops idle servers until none is left.
async fn watch(servers: Weak<LanguageServers>, wait: Duration) {
    loop {
        sleep(wait).await;
        let Some(servers) = servers.upgrade() else { return };
        if !servers.stop_idle().await {
            return;
        }
    }
}

async fn stop(slot: &ServerSlot) {
    if let Some(running) = slot.running.lock().await.take() {
        running.server.shut_down().await;
    }
}

/// Returns the script that starts a server. The server's standard output is the same socket as its input. Caches go to the temp
/// folder.
fn script(root: &Path, command: &[String]) -> String {
    let words: Vec<_> = command.iter().map(|word| shell_quote(word)).collect();
    let root = shell_quote(&root.display().to_string());
    format!("cd {root} && XDG_CACHE_HOME=\"$TMPDIR/cache\" exec {} <&1", words.join(" "))
}

/// Returns true if this program can be started. `program` is a path, or a name in one of the folders of `path`.
fn is_program(program: &str, path: &str) -> bool {
    let is_executable = |file: PathBuf| {
        std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return is_executable(program.into());
    }
    split_paths(path).any(|folder| is_executable(folder.join(program)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_on_the_path() {
        for (program, path, expected) in [
            ("sh", "/nowhere:/bin", true),
            ("/bin/sh", "", true),
            ("sh", "/nowhere", false),
            ("/bin", "", false),
            ("/etc/passwd", "", false),
            ("no-such-server", "/bin:/usr/bin", false),
        ] {
            assert_eq!(is_program(program, path), expected, "{program}");
        }
    }

    #[test]
    fn the_script_quotes_what_it_names() {
        let words = ["a b".to_owned(), "--x=$HOME".to_owned()];
        let script = script(Path::new("/w/it's"), &words);
        assert_eq!(script, "cd '/w/it'\\''s' && XDG_CACHE_HOME=\"$TMPDIR/cache\" exec 'a b' '--x=$HOME' <&1");
    }
}
