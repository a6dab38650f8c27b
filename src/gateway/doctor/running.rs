//! Who holds the home.

use std::time::Duration;

use daoyou_channels::Finding;
use serde_json::Value;
use tokio::time::timeout;

use super::check::{Check, Fix};
use crate::control::ControlClient;
use crate::home::{Home, LockError};
use crate::query::GatewayQuery;

const NAME: &str = "gateway";
/// How long a gateway may take to say how it is.
const ANSWER: Duration = Duration::from_secs(5);

/// Who has the home's lock.
pub enum Holder {
    Nobody,
    /// A gateway that says how it is.
    Answers {
        client: ControlClient,
        status: Value,
    },
    /// A process that does not answer on the control socket, or a lock that cannot be looked at.
    Silent {
        pid: Option<u32>,
        reason: String,
    },
}

/// Looks at the lock and the control socket; makes nothing.
pub async fn holder(home: &Home) -> Holder {
    // Locking would make the file.
    if !home.lock_file().exists() {
        return Holder::Nobody;
    }
    let pid = match home.lock() {
        Ok(_) => return Holder::Nobody,
        Err(LockError::Held { pid, .. }) => pid,
        Err(LockError::Home(error)) => return Holder::Silent { pid: None, reason: error.to_string() },
    };
    let client = match ControlClient::new(&home.socket()) {
        Ok(client) => client,
        Err(error) => return Holder::Silent { pid, reason: format!("{error:#}") },
    };
    match timeout(ANSWER, client.get(&GatewayQuery::Status.path())).await {
        Ok(Ok(status)) => Holder::Answers { client, status },
        Ok(Err(error)) => Holder::Silent { pid, reason: format!("{error:#}") },
        Err(_) => Holder::Silent { pid, reason: format!("no answer within {ANSWER:?}") },
    }
}

impl Holder {
    pub fn is_gateway(&self) -> bool {
        !matches!(self, Self::Nobody)
    }

    pub fn checks(&self, home: &Home) -> Vec<Check> {
        match self {
            Self::Nobody => {
                let mut checks = vec![Finding::ok(NAME, "none runs; `daoyou gateway` starts one").into()];
                let socket = home.socket();
                if socket.symlink_metadata().is_ok() {
                    let mend = format!("rm {}", socket.display());
                    let stale = Finding::warn("socket", "one is left over from a gateway that was killed", mend);
                    checks.push(Check::with(stale, Fix::RemoveSocket));
                }
                checks
            }
            Self::Answers { status, .. } => {
                let services = status["services"].as_array().into_iter().flatten();
                std::iter::once(running(status)).chain(services.map(awaited)).map(Check::from).collect()
            }
            Self::Silent { pid, reason } => {
                let (who, mend) = match pid {
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

/// A model service that messages wait for.
fn awaited(service: &Value) -> Finding {
    let text = |key: &str| service[key].as_str().unwrap_or("?");
    let provider = text("provider");
    let mend = match text("code") {
        "llm_auth" => format!("set providers.{provider}.api_key to a key that is good, and reload the configuration"),
        "llm_quota" => "top up the account at the service; `daoyou queue retry --all` asks it at once".to_owned(),
        _ => "they are answered when it is back; `daoyou queue retry --all` asks it at once".to_owned(),
    };
    Finding::fail(format!("waiting for {provider}"), format!("messages wait for it: {}", text("message")), mend)
}

fn running(status: &Value) -> Finding {
    let text = |key: &str| status[key].as_str().unwrap_or("?").to_owned();
    let (version, ours) = (text("version"), env!("CARGO_PKG_VERSION"));
    let message = format!("it runs: pid {}, version {version}, up {}", status["pid"], text("uptime"));
    if version != ours {
        return Finding::warn(NAME, format!("{message}; this program is version {ours}"), "restart the gateway");
    }
    if let Some(fault) = status["parts"]["intake"].as_str().filter(|intake| *intake != "ok") {
        return Finding::fail(NAME, format!("{message}, but takes no messages: {fault}"), "mend what it names");
    }
    Finding::ok(NAME, message)
}
