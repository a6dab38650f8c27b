//! Finds the gateway of a home that cannot be written. It has neither lock nor socket, so it is asked over HTTP.

use std::time::Duration;

use serde_json::{Value, json};

use super::Inspector;
use crate::config::Config;
use crate::gateway::settings::local_address;
use crate::home::Home;

/// The time limit of a request to this machine.
const LOCAL_LIMIT: Duration = Duration::from_secs(2);

/// Returns a client for requests without secrets to a server on this machine.
pub(super) fn local_client() -> reqwest::Result<reqwest::Client> {
    // A certificate is valid for a name and not for the address of this machine.
    let client = reqwest::Client::builder().no_proxy().timeout(LOCAL_LIMIT);
    client.tls_certs_only(std::iter::empty()).tls_danger_accept_invalid_certs(true).build()
}

/// Returns the address by which this machine asks the server of a configuration.
pub(super) fn local_url(config: &Config, listen: std::net::SocketAddr, path: &str) -> String {
    let scheme = if config.gateway.tls.cert.is_some() { "https" } else { "http" };
    format!("{scheme}://{}{path}", local_address(listen))
}

/// Returns why the gateway at `gateway.listen` takes no messages, if the home cannot be written and a read-only gateway answers
/// there.
pub async fn read_only_reason(home: &Home, config: &Config) -> Option<String> {
    let listen = config.gateway.listen_addr().ok().filter(|_| home.is_full_or_read_only())?;
    crate::llm::install_crypto();
    let answer = local_client().ok()?.get(local_url(config, listen, "/healthz")).send().await.ok()?;
    let health: Value = serde_json::from_str(&answer.text().await.ok()?).ok()?;
    (health["status"] == "read-only").then(|| health["reason"].as_str().unwrap_or_default().to_owned())
}

impl Inspector {
    /// Returns the status of the read-only gateway of this home, if one answers. It does not report its process.
    pub(super) async fn read_only_status(&self) -> Option<Value> {
        if self.running.is_some() {
            return None;
        }
        let reason = read_only_reason(&self.home, &self.config).await?;
        Some(json!({
            "gateway": "up",
            "read_only": true,
            "home": self.home.dir(),
            "version": null,
            "pid": null,
            "uptime": null,
            "listen": self.config.gateway.listen,
            "ready": false,
            "parts": { "intake": format!("nothing can be stored: {reason}"), "channels": {} },
        }))
    }
}
