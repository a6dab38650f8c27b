//! The HTTP clients and their connections, which all providers share.

use std::collections::BTreeMap;
use std::time::Duration;

use daoyou_channels::settings::Secret;
use parking_lot::Mutex;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Url};

/// The maximum number of idle connections to one service: the default number of turns that run at the same time.
const IDLE_CONNECTIONS: usize = 64;
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// Installs ring as the cryptography provider of all TLS in this process. Further calls do nothing.
pub fn install_crypto() {
    // An error means that a provider is installed already, by this function or by the embedding program. Either one is
    // sufficient.
    drop(rustls::crypto::ring::default_provider().install_default());
}

/// The requirements of a client. Providers with the same requirements share one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientProfile {
    /// True for a service on this machine, whose client bypasses any proxy.
    loopback: bool,
    /// True if the client needs the machine's certificate authorities, whose loading costs time and memory.
    tls: bool,
    connect_timeout: Duration,
}

impl ClientProfile {
    pub fn of(url: &Url, connect_timeout: Duration) -> Self {
        let loopback = is_loopback(url);
        // Plain HTTP needs TLS too, if a proxy is reached by TLS.
        Self { loopback, tls: url.scheme() == "https" || !loopback, connect_timeout }
    }
}

/// Returns true if a URL names this machine.
pub fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The clients, one for each [`ClientProfile`]. Each is created when it is first needed.
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

/// Returns configured headers. The configuration check has already refused headers that cannot be sent.
pub fn secret_headers(headers: &BTreeMap<String, Secret>) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    headers.iter().filter_map(|(name, value)| {
        let mut value = HeaderValue::from_str(value.expose()).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
    })
}

/// Returns the beginning of a client that leaves retries to its user. One for a service on this machine bypasses any proxy,
/// and without TLS it loads no certificate authorities.
pub fn client_builder(loopback: bool, tls: bool) -> ClientBuilder {
    install_crypto();
    let agent = concat!("daoyou/", env!("CARGO_PKG_VERSION"));
    let builder = Client::builder().user_agent(agent).retry(reqwest::retry::never());
    match (loopback, tls) {
        (false, _) => builder,
        (true, true) => builder.no_proxy(),
        (true, false) => builder.no_proxy().tls_certs_only(std::iter::empty()),
    }
}

fn build(reach: ClientProfile) -> Result<Client, reqwest::Error> {
    client_builder(reach.loopback, reach.tls)
        .connect_timeout(reach.connect_timeout)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .pool_idle_timeout(IDLE_CONNECTION_TIMEOUT)
        .tcp_nodelay(true)
        .tcp_keepalive(TCP_KEEPALIVE)
        // A redirect would send the key to an address that is not configured.
        .redirect(Policy::none())
        .build()
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
