//! The checks of `doctor` that run in the gateway's process.

use daoyou_channels::Finding;
use rustix::process::{Resource, getrlimit};

use super::Inspector;
use super::sandbox::root_check;
use crate::cron::zone_name;
use crate::gateway::settings::timezone;

/// The open files that a gateway may need for connections, the database and commands.
const OPEN_FILES: u64 = 1_024;

impl Inspector {
    /// Runs all checks, concurrently if they wait.
    pub async fn checks(&self) -> Vec<Finding> {
        let (mut findings, sandbox, port, channels) =
            tokio::join!(self.provider_checks(), self.sandbox_check(), self.port(), self.all_channels());
        findings.extend(root_check());
        findings.extend([sandbox, port]);
        findings.extend(channels);
        findings.extend(self.memory_models());
        findings.extend(self.mcp_checks());
        findings.extend([self.zone_check(), files_check(getrlimit(Resource::Nofile).current)]);
        findings
    }

    /// Checks the models that the memory's configuration names.
    fn memory_models(&self) -> Vec<Finding> {
        let memory = &self.config.memory;
        let named = [
            ("memory.model", "summaries are plain extracts", &memory.model),
            ("memory.embeddings.model", "only words are looked for", &memory.embeddings.model),
        ];
        let check = |(key, meanwhile, model): (&str, &str, &String)| match self.models.check(model) {
            _ if model.is_empty() => None,
            Ok(()) => Some(Finding::ok(key, model.clone())),
            Err(error) => {
                let mend =
                    format!("set up its provider, or change {key} in config.toml; `daoyou models` lists what there is");
                Some(Finding::warn(key, format!("{error}; until then {meanwhile}"), mend))
            }
        };
        named.into_iter().filter_map(check).collect()
    }

    fn zone_check(&self) -> Finding {
        const NAME: &str = "time zone";
        const MEND: &str = "set agent.timezone = \"Area/City\", such as \"Asia/Shanghai\", in config.toml";
        match timezone(&self.config) {
            Err(error) => Finding::fail(NAME, error.to_string(), MEND),
            Ok(zone) if zone.is_unknown() => Finding::warn(
                NAME,
                "no time zone is set, and this machine's zone has no IANA name: times are in UTC",
                MEND,
            ),
            Ok(zone) => {
                let now = jiff::Timestamp::now().to_zoned(zone.clone());
                Finding::ok(NAME, format!("{}, now {}", zone_name(&zone), now.strftime("%F %H:%M %z")))
            }
        }
    }
}

/// Checks the limit of open files; `None` means that there is no limit.
fn files_check(limit: Option<u64>) -> Finding {
    const NAME: &str = "open files";
    match limit {
        Some(limit) if limit < OPEN_FILES => Finding::warn(
            NAME,
            format!("the gateway may open {limit} files and connections, fewer than {OPEN_FILES}"),
            format!("ulimit -n {OPEN_FILES} before the start, or LimitNOFILE={OPEN_FILES} in the service"),
        ),
        Some(limit) => Finding::ok(NAME, format!("up to {limit}")),
        None => Finding::ok(NAME, "no limit"),
    }
}
