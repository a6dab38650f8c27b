//! The client's address behind trusted proxies.

use std::net::IpAddr;

use axum::http::HeaderMap;
use daoyou_channels::ClientAddr;
use ipnet::IpNet;

const FORWARDED_FOR: &str = "x-forwarded-for";
const FORWARDED_PROTO: &str = "x-forwarded-proto";

/// The maximum number of addresses of `X-Forwarded-For` that are parsed.
const MAX_HOPS: usize = 32;

/// Parses a range of addresses (`10.0.0.0/8`) or a single address.
///
/// # Errors
/// The text is neither a range nor an address.
pub fn parse_network(text: &str) -> Result<IpNet, String> {
    let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    network.map_err(|_| format!("{text:?} is not an address or a range of addresses"))
}

/// `gateway.trusted_proxies`.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(pub Vec<IpNet>);

impl TrustedProxies {
    /// Returns the client of a connection from `peer`. If `peer` is a trusted proxy, that is the last address of `X-Forwarded-For`
    /// that is not a trusted proxy; otherwise it is `peer`. The loopback address of a proxy that reports no client stands for
    /// nobody: a proxy on this machine forwards the requests of others.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> ClientAddr {
        let mut client = peer.to_canonical();
        if !self.trusts(client) {
            return ClientAddr(client);
        }
        // Several fields form one list in order (RFC 9110, section 5.3).
        let hops = headers.get_all(FORWARDED_FOR).iter().rev().flat_map(|field| {
            let text = field.to_str().unwrap_or("unreadable");
            text.rsplit(',')
        });
        for hop in hops.take(MAX_HOPS) {
            // A trusted proxy wrote no valid address, so the client before it is unknown.
            let Some(address) = hop_address(hop.trim()) else { break };
            client = address;
            if !self.trusts(client) {
                break;
            }
        }
        if client.is_loopback() { ClientAddr::UNKNOWN } else { ClientAddr(client) }
    }

    /// Returns true if `peer` is a trusted proxy that the client reached by HTTPS.
    pub fn is_https(&self, peer: IpAddr, headers: &HeaderMap) -> bool {
        // The last value comes from the nearest proxy.
        let last = headers.get_all(FORWARDED_PROTO).iter().next_back().and_then(|field| field.to_str().ok());
        let scheme = last.and_then(|field| field.rsplit(',').next()).unwrap_or_default();
        self.trusts(peer.to_canonical()) && scheme.trim().eq_ignore_ascii_case("https")
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// Parses an address; some proxies append the port.
fn hop_address(text: &str) -> Option<IpAddr> {
    let bare = text.parse::<IpAddr>().ok();
    let with_port = || text.parse::<std::net::SocketAddr>().ok().map(|address| address.ip());
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    bare.or_else(with_port).or_else(bracketed).map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_addresses_with_its_prefix() {
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::a00:1", false),
            ("0.0.0.0/0", "203.0.113.7", true),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.8", false),
            ("fd00::/8", "fdff::1", true),
            ("::/0", "2001:db8::1", true),
            ("::1", "::2", false),
        ] {
            let got = parse_network(network).unwrap().contains(&address.parse::<IpAddr>().unwrap());
            assert_eq!(got, expected, "{network} {address}");
        }
        for wrong in ["10.0.0.0/33", "10.0.0/8", "::/129", "proxy.example.org", "10.0.0.0/", ""] {
            assert!(parse_network(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn only_a_trusted_proxy_can_name_its_client() {
        let proxies = TrustedProxies(["127.0.0.1", "10.0.0.0/8"].map(|text| parse_network(text).unwrap()).into());
        for (peer, fields, expected) in [
            ("203.0.113.9", &["198.51.100.1"][..], "203.0.113.9"),
            ("127.0.0.1", &[], "0.0.0.0"),
            ("127.0.0.1", &[""], "0.0.0.0"),
            ("::1", &[], "::1"),
            ("127.0.0.1", &["::1"], "0.0.0.0"),
            ("127.0.0.1", &["127.0.0.2"], "0.0.0.0"),
            ("127.0.0.1", &["127.0.0.1"], "0.0.0.0"),
            ("127.0.0.1", &["198.51.100.1, junk, 127.0.0.1"], "0.0.0.0"),
            ("10.0.0.5", &[], "10.0.0.5"),
            ("127.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("::ffff:127.0.0.1", &["::ffff:198.51.100.1"], "198.51.100.1"),
            ("127.0.0.1", &["1.2.3.4, 198.51.100.1, 10.0.0.5"], "198.51.100.1"),
            ("127.0.0.1", &["1.2.3.4", "198.51.100.1"], "198.51.100.1"),
            ("127.0.0.1", &["198.51.100.1:4711"], "198.51.100.1"),
            ("127.0.0.1", &["[2001:db8::1]:4711"], "2001:db8::1"),
            ("127.0.0.1", &["198.51.100.1, unknown"], "0.0.0.0"),
            ("127.0.0.1", &["198.51.100.1, nonsense, 10.0.0.5"], "10.0.0.5"),
            ("127.0.0.1", &["10.0.0.5, 10.0.0.6"], "10.0.0.5"),
        ] {
            let mut list = HeaderMap::new();
            for text in fields {
                list.append(FORWARDED_FOR, text.parse().unwrap());
            }
            let got = proxies.client(peer.parse().unwrap(), &list);
            assert_eq!(got.0, expected.parse::<IpAddr>().unwrap(), "{peer} {fields:?}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(FORWARDED_FOR, "198.51.100.1".parse().unwrap());
        let nobody = TrustedProxies::default().client("127.0.0.1".parse().unwrap(), &headers);
        assert_eq!(nobody.0, "127.0.0.1".parse::<IpAddr>().unwrap());
    }
}
