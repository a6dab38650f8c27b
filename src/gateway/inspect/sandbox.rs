//! Checks the sandbox by running a command through the tool that models use.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use daoyou_channels::Finding;
use serde_json::json;

use super::Inspector;
use super::tools::owner_context;
use crate::chat::{ToolCall, without_notes};
use crate::gateway::runtime::OWN_PROGRAM;
use crate::guard::{self, NAMESPACE_HELP, NamespaceSupport, Sandbox, SandboxMode, SandboxPolicy};
use crate::text::shell_quote;
use crate::tools::{ToolContext, sandbox_of};

const NAME: &str = "sandbox";
/// The file that the trial writes in the workspace and tries to write in the home.
const TRIAL_FILE: &str = ".daoyou-doctor";

impl Inspector {
    pub(super) async fn sandbox_check(&self) -> Finding {
        let exec = &self.config.tools.exec;
        if self.config.tools.disabled.iter().any(|name| name.eq_ignore_ascii_case("exec")) {
            return Finding::ok(NAME, "exec is switched off: no command runs");
        }
        let status = guard::status();
        let sandbox = match active_sandbox(exec.sandbox).await {
            Ok(Sandbox::Off) => {
                let mend = "set tools.exec.sandbox = \"auto\" in config.toml";
                return Finding::warn(
                    NAME,
                    "off: commands run without protection (tools.exec.sandbox), for the owner's turns alone",
                    mend,
                );
            }
            Ok(sandbox) => sandbox,
            Err(reason) => return Finding::fail(NAME, format!("exec is refused. {reason}"), NAMESPACE_HELP),
        };
        let status = format!("{sandbox}; {status}");
        let workspace = self.home.workspace(&self.config.agent.workspace);
        if !workspace.is_dir() {
            return Finding::ok(NAME, format!("{status}; not tried, as there is no workspace yet"));
        }
        // A command would repair the mode, and an examination changes nothing.
        if workspace.metadata().is_ok_and(|found| found.mode() & 0o700 != 0o700) {
            return Finding::ok(NAME, format!("{status}; not tried, as the workspace cannot be written"));
        }
        match self.trial(&workspace).await {
            Err(reason) => failed_trial(&status, &reason),
            Ok(leaks) if !leaks.is_empty() => Finding::fail(
                NAME,
                format!("{status}, but a command could {}", leaks.join(", and ")),
                "set tools.disabled = [\"exec\"] in config.toml, and report this as a fault of daoyou",
            ),
            Ok(_) => {
                let network = if exec.network { "network allowed by tools.exec.network" } else { "no network" };
                let held =
                    format!("{status}; a command wrote in the workspace, not outside, and read no secret; {network}");
                let gaps = guard::status().gaps();
                match (sandbox, missing_namespaces().await) {
                    (Sandbox::Landlock, Some(reason)) => Finding::warn(
                        NAME,
                        format!("{held}; only the owner's turns can run commands, and chmod fails in them: {reason}"),
                        NAMESPACE_HELP,
                    ),
                    _ if gaps.is_empty() || sandbox == Sandbox::Namespaces => Finding::ok(NAME, held),
                    _ => Finding::warn(NAME, format!("{held}; {}", gaps.join("; ")), "update the kernel"),
                }
            }
        }
    }

    /// Runs a command that tries forbidden actions, and returns those that succeeded.
    async fn trial(&self, workspace: &Path) -> Result<Vec<&'static str>, String> {
        let outside = self.home.dir().join(TRIAL_FILE);
        let [quoted, token] = [&outside, &self.home.token_file()].map(|path| shell_quote(&path.display().to_string()));
        // Expected failures print nothing; `end` shows that all actions were tried. The command uses only shell builtins, because
        // PATH may be empty.
        let command = format!(
            "echo in > {TRIAL_FILE} && echo inside; (echo out > {quoted}) 2>/dev/null && echo outside; \
             (: < {token}) 2>/dev/null && echo token; echo end"
        );
        let call = ToolCall {
            id: "doctor".to_owned(),
            name: "exec".to_owned(),
            arguments: json!({ "command": command, "timeout": 10 }).to_string(),
        };
        let context = ToolContext { sender: String::new(), ..owner_context("doctor", &call.id) };
        let result = self.tools()?.run(&call, &context).await.result;
        match std::fs::remove_file(workspace.join(TRIAL_FILE)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(%error, "the file of the trial could not be removed");
            }
            _ => {}
        }
        if !result.success {
            return Err(result.render());
        }
        let printed: Vec<&str> = result.content.lines().collect();
        if !printed.contains(&"inside") || !printed.contains(&"end") {
            return Err(format!("a command could not write in the workspace: {}", printed.join(" ")));
        }
        let mut leaks = Vec::new();
        // The sandbox has a `/tmp` of its own: a write below it succeeds, and does not reach a home there.
        if printed.contains(&"outside") && outside.exists() {
            leaks.push("write outside the workspace");
            if let Err(error) = std::fs::remove_file(&outside) {
                tracing::warn!(%error, "the file of the trial could not be removed");
            }
        }
        if printed.contains(&"token") {
            leaks.push("read the token");
        }
        let network = self.config.tools.exec.network;
        let policy = SandboxPolicy { read: Vec::new(), links: Vec::new(), write: vec![workspace.to_owned()], network };
        if !guard::status().is_enough() {
            return Ok(leaks);
        }
        let sockets = tokio::task::spawn_blocking(move || guard::try_sockets(&policy));
        let sockets = sockets.await.map_err(|error| error.to_string())??;
        if sockets.internet && !network {
            leaks.push("open a network socket");
        }
        if sockets.unix {
            leaks.push("open a Unix socket");
        }
        Ok(leaks)
    }
}

/// Returns the finding about a trial that failed.
fn failed_trial(status: &str, reason: &str) -> Finding {
    let is_full = reason.contains("No space left on device");
    let mend = if is_full { "free some space on the disk" } else { "look at the gateway's log" };
    Finding::fail(NAME, format!("{status}; the trial failed: {}", without_notes(reason)), mend)
}

/// Warns if the gateway runs as root.
pub(super) fn root_check() -> Option<Finding> {
    rustix::process::geteuid().is_root().then(|| {
        Finding::warn(
            "user",
            "daoyou runs as root; its commands run as another user, but a fault in the gateway reaches the whole machine",
            "run it as a user of its own: `daoyou service install`",
        )
    })
}

/// Returns the sandbox that commands run in.
///
/// # Errors
/// The reason why no sandbox that the configuration accepts is available.
pub(super) async fn active_sandbox(mode: SandboxMode) -> Result<Sandbox, String> {
    let sandbox = tokio::task::spawn_blocking(move || sandbox_of(mode, Path::new(OWN_PROGRAM)));
    sandbox.await.unwrap_or_else(|error| Err(error.to_string()))
}

/// Returns why namespaces are not available, if they are not.
async fn missing_namespaces() -> Option<String> {
    match tokio::task::spawn_blocking(|| guard::namespace_support(Path::new(OWN_PROGRAM))).await {
        Ok(NamespaceSupport::Available { .. }) => None,
        Ok(NamespaceSupport::Unavailable(reason)) => Some(reason),
        Err(error) => Some(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::ERROR_ADVICE;

    #[test]
    fn a_failed_trial_names_its_remedy_and_gives_models_no_advice() {
        for (reason, mend) in [
            ("Error: cannot run it: No space left on device (os error 28)", "free some space on the disk"),
            ("Error: Killed by signal 9", "look at the gateway's log"),
        ] {
            let finding = failed_trial("namespaces", &format!("{reason}{ERROR_ADVICE}"));
            assert_eq!(finding.message, format!("namespaces; the trial failed: {reason}"));
            assert_eq!(finding.mend.as_deref(), Some(mend));
        }
    }
}
