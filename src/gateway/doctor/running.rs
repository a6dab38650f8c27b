//! The process that holds the home's lock.

use std::time::Duration;

use daoyou_channels::Finding;
use serde_json::Value;
use tokio::time::timeout;

use super::check::{DoctorCheck, Repair};
use crate::config::Config;
use crate::control::ControlClient;
use crate::gateway::inspect::read_only_reason;
use crate::home::{Home, LockError};
use crate::query::GatewayQuery;
use crate::store::{DETACHED, USE_COPY};

const NAME: &str = "gateway";
/// The reason why a gateway that starts, or whose socket was deleted, does not answer.
const NO_SOCKET: &str = "its control socket daoyou.sock is missing";
/// The time limit for a gateway's status.
const STATUS_LIMIT: Duration = Duration::from_secs(5);

/// The holder of the home's lock.
pub enum HomeHolder {
    Nobody,
    /// A gateway that responds with its status.
    Answers {
        client: ControlClient,
        status: Value,
    },
    /// A gateway that can create neither lock nor socket because the home cannot be written.
    ReadOnly {
        listen: String,
        reason: String,
    },
    /// A command that works without a gateway and ends without being asked.
    Command {
        pid: u32,
    },
    /// A process that does not respond on the control socket, or a lock that cannot be examined.
    Silent {
        pid: Option<u32>,
        reason: String,
    },
}

impl HomeHolder {
    /// Finds the holder by the lock and the control socket, or by `gateway.listen` for a home that cannot be written. It creates no
    /// file.
    pub async fn find(home: &Home, config: &Config) -> Self {
        let holder = Self::of_lock(home).await;
        if !matches!(holder, Self::Nobody) {
            return holder;
        }
        let reason = read_only_reason(home, config).await;
        reason.map_or(holder, |reason| Self::ReadOnly { listen: config.gateway.listen.clone(), reason })
    }

    async fn of_lock(home: &Home) -> Self {
        // Locking would create the file.
        if !home.lock_file().exists() && !home.is_locked() {
            return Self::Nobody;
        }
        let (pid, is_temporary) = match home.lock_to_read() {
            Ok(_) => return Self::Nobody,
            Err(LockError::Held { pid, is_temporary, .. }) => (pid, is_temporary),
            Err(LockError::Home(error)) => return Self::Silent { pid: None, reason: error.to_string() },
        };
        if !is_temporary && !home.socket().exists() {
            return Self::Silent { pid, reason: NO_SOCKET.to_owned() };
        }
        let client = match ControlClient::new(&home.socket()) {
            Ok(client) => client,
            Err(error) => return Self::Silent { pid, reason: format!("{error:#}") },
        };
        let reason = match timeout(STATUS_LIMIT, client.inspect(&GatewayQuery::Status)).await {
            Ok(Ok(status)) => return Self::Answers { client, status },
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => format!("no answer within {STATUS_LIMIT:?}"),
        };
        match pid {
            Some(pid) if is_temporary => Self::Command { pid },
            pid => Self::Silent { pid, reason },
        }
    }

    pub fn is_gateway(&self) -> bool {
        matches!(self, Self::Answers { .. } | Self::Silent { .. } | Self::ReadOnly { .. })
    }

    /// Returns true if no `daoyou restore` works in the home.
    pub fn excludes_restore(&self) -> bool {
        !matches!(self, Self::Command { .. } | Self::Silent { pid: None, .. })
    }

    pub fn checks(&self, home: &Home) -> Vec<DoctorCheck> {
        match self {
            Self::Nobody => {
                let mut checks = vec![Finding::ok(NAME, "none runs; `daoyou gateway` starts one").into()];
                let socket = home.socket();
                if socket.symlink_metadata().is_ok() {
                    let mend = format!("rm {}", socket.display());
                    let stale = Finding::warn("socket", "one is left over from a gateway that was killed", mend);
                    checks.push(DoctorCheck::with(stale, Repair::RemoveSocket));
                }
                checks
            }
            Self::Answers { status, .. } => {
                let services = status["services"].as_array().into_iter().flatten();
                std::iter::once(gateway_finding(status))
                    .chain(services.map(service_finding))
                    .map(DoctorCheck::from)
                    .collect()
            }
            Self::ReadOnly { listen, reason } => {
                let message = format!("it answers at {listen}, but takes no messages: {reason}");
                vec![Finding::fail(NAME, message, "fix what it names").into()]
            }
            Self::Command { pid } => {
                let message = format!("a daoyou command (pid {pid}) uses this home");
                vec![Finding::warn(NAME, message, "run doctor after its end").into()]
            }
            Self::Silent { pid, reason } => {
                let (who, mend) = match pid {
                    Some(pid) if reason == NO_SOCKET => (
                        format!("process {pid} holds this home"),
                        format!(
                            "run doctor again in a minute, since a gateway makes it again; \
                             otherwise kill {pid}, then start it again"
                        ),
                    ),
                    None if reason == NO_SOCKET => (
                        "a process holds this home".to_owned(),
                        "run doctor again in a minute, since a gateway makes it again; otherwise restart it".to_owned(),
                    ),
                    Some(pid) => (format!("process {pid} holds this home"), format!("kill {pid}, then start it again")),
                    None => {
                        ("this home cannot be looked into".to_owned(), "run doctor as the gateway's user".to_owned())
                    }
                };
                vec![Finding::fail(NAME, format!("{who}, but: {reason}"), mend).into()]
            }
        }
    }
}

/// Reports a model service for which messages wait.
fn service_finding(service: &Value) -> Finding {
    let text = |key: &str| service[key].as_str().unwrap_or("?");
    let provider = text("provider");
    let mend = match text("code") {
        "llm_auth" => format!("set providers.{provider}.api_key to a key that is good, and reload the configuration"),
        "llm_quota" => "top up the account at the service; `daoyou queue retry --all` asks it at once".to_owned(),
        _ => "they are answered when it is back; `daoyou queue retry --all` asks it at once".to_owned(),
    };
    Finding::fail(format!("waiting for {provider}"), format!("messages wait for it: {}", text("message")), mend)
}

fn gateway_finding(status: &Value) -> Finding {
    let text = |key: &str| status[key].as_str().unwrap_or("?").to_owned();
    let (version, ours) = (text("version"), env!("CARGO_PKG_VERSION"));
    let message = format!("it runs: pid {}, version {version}, up {}", status["pid"], text("uptime"));
    if version != ours {
        return Finding::warn(NAME, format!("{message}; this program is version {ours}"), "restart the gateway");
    }
    if let Some(fault) = status["parts"]["intake"].as_str().filter(|intake| *intake != "ok") {
        let mend = match fault {
            DETACHED => USE_COPY,
            _ => "fix what it names",
        };
        return Finding::fail(NAME, format!("{message}, but takes no messages: {fault}"), mend);
    }
    Finding::ok(NAME, message)
}
