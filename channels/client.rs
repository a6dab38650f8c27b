//! Who is at the other end of an HTTP request.

use std::net::IpAddr;

/// The address of the client behind a request, as the server found it: the other end of the connection, or what a proxy
/// that the owner trusts says. Canonical: an IPv4 address that came mapped into IPv6 is IPv4 here. The server puts it
/// into each request's extensions; nothing else says who calls, least of all `X-Forwarded-For` itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientAddr(pub IpAddr);

impl ClientAddr {
    /// What limits count by: an IPv4 address itself, of IPv6 the network of 64 bits, which is what one customer gets.
    pub fn bucket(self) -> IpAddr {
        match self.0.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => IpAddr::from((address.to_bits() & !u128::from(u64::MAX)).to_be_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_count_by_ipv4_address_and_ipv6_network() {
        for (address, bucket) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("::1", "::"),
        ] {
            let got = ClientAddr(address.parse().unwrap()).bucket();
            assert_eq!(got, bucket.parse::<IpAddr>().unwrap(), "{address}");
        }
    }
}
