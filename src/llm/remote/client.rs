//! The HTTP clients, and with them the connections, that all providers share.

use std::time::Duration;

use parking_lot::Mutex;
use reqwest::redirect::Policy;
use reqwest::{Client, Url};

/// Idle connections kept to one service: as many as turns run at once by default.
const IDLE_CONNECTIONS: usize = 64;
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// Makes ring the cryptography of all TLS in this process. Further calls do nothing.
pub fn install_crypto() {
    // An error says that a provider is installed already, by us or by the embedding program; either serves.
    drop(rustls::crypto::ring::default_provider().install_default());
}

/// What a client needs; providers with the same needs share one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientProfile {
    /// On this machine: bypasses any proxy.
    loopback: bool,
    /// Needs the machine's certificate authorities, whose loading costs time and memory.
    tls: bool,
    connect_timeout: Duration,
}

impl ClientProfile {
    pub fn of(url: &Url, connect_timeout: Duration) -> Self {
        let loopback = is_loopback(url);
        // A proxy may itself use TLS.
        Self { loopback, tls: url.scheme() == "https" || !loopback, connect_timeout }
    }
}

/// Returns true if a URL names this machine.
pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The clients so far, one for each [`ClientProfile`]; created when first needed.
#[derive(Debug, Default)]
pub struct HttpClients {
    made: Mutex<Vec<(ClientProfile, Client)>>,
}

impl HttpClients {
    /// Returns the client for a profile.
    ///
    /// # Errors
    /// The machine's certificate authorities cannot be loaded.
    pub fn get(&self, reach: ClientProfile) -> Result<Client, reqwest::Error> {
        let mut made = self.made.lock();
        if let Some((_, client)) = made.iter().find(|(other, _)| *other == reach) {
            return Ok(client.clone());
        }
        let client = build(reach)?;
        made.push((reach, client.clone()));
        Ok(client)
    }
}

fn build(reach: ClientProfile) -> Result<Client, reqwest::Error> {
    install_crypto();
    let mut builder = Client::builder()
        .user_agent(concat!("daoyou/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(reach.connect_timeout)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .pool_idle_timeout(IDLE_CONNECTION_TIMEOUT)
        .tcp_nodelay(true)
        .tcp_keepalive(TCP_KEEPALIVE)
        // A redirected request would take the key to a place that nobody configured.
        .redirect(Policy::none())
        // The provider decides about retries.
        .retry(reqwest::retry::never());
    if reach.loopback {
        builder = builder.no_proxy();
    }
    if !reach.tls {
        builder = builder.tls_certs_only(std::iter::empty());
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_that_need_the_same_share_a_client() {
        let clients = HttpClients::default();
        let reach = |url: &str, secs| ClientProfile::of(&Url::parse(url).unwrap(), Duration::from_secs(secs));
        for url in ["http://localhost:1/v1", "http://127.0.0.1:2/v1", "http://[::1]:3/v1"] {
            clients.get(reach(url, 10)).unwrap();
        }
        assert_eq!(clients.made.lock().len(), 1);
        clients.get(reach("http://localhost:1/v1", 5)).unwrap();
        assert_eq!(clients.made.lock().len(), 2);
        assert_eq!(reach("https://a.example/v1", 10), reach("http://10.0.0.1/v1", 10));
        assert_ne!(reach("https://127.0.0.1/v1", 10), reach("http://127.0.0.1/v1", 10));
    }
}
