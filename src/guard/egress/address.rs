//! Decides which IP addresses belong to the public internet.
//!
//! Sources: the special-purpose registries of IANA for IPv4 and IPv6 (RFC 6890 and its updates), NAT64 (RFC 6052), 6to4 (RFC
//! 3056), Teredo (RFC 4380), ISATAP (RFC 5214).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the address that a connection to `address` finally reaches: the IPv4 address if an IPv6 address only wraps one.
pub(super) fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => embedded(v6).map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// Returns true if a canonical address belongs to the public internet. Addresses of this machine, of private networks and for
/// special purposes do not.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = match (a, b, c) {
        // This network, private, loopback, link-local, multicast and reserved.
        (0 | 10 | 127 | 224.., ..) | (169, 254, _) | (172, 16..=31, _) | (192, 168, _) => true,
        // Shared address space of carriers, protocol assignments, the 6to4 relay, benchmarks.
        (100, 64..=127, _) | (192, 0, 0) | (192, 88, 99) | (198, 18 | 19, _) => true,
        // Documentation.
        (192, 0, 2) | (198, 51, 100) | (203, 0, 113) => true,
        _ => false,
    };
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    // Global unicast is 2000::/3 alone; within it, 2001::/23 and the documentation range are special. An ISATAP interface leads
    // into the network of its IPv4 address.
    let is_global = (0x2000..0x4000).contains(&parts[0]);
    let is_special = (parts[0] == 0x2001 && (parts[1] < 0x0200 || parts[1] == 0x0db8))
        || (parts[0] == 0x3fff && parts[1] < 0x1000)
        || (matches!(parts[4], 0 | 0x0200) && parts[5] == 0x5efe);
    is_global && !is_special
}

/// Returns the IPv4 address that an IPv6 address embeds: IPv4-mapped, IPv4-compatible, NAT64 or 6to4.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let parts = address.segments();
    let join = |high: u16, low: u16| Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low));
    match parts {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => Some(join(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => Some(join(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_public_internet_is_public() {
        for (text, expected) in [
            ("1.1.1.1", true),
            ("93.184.216.34", true),
            ("172.32.0.1", true),
            ("100.128.0.1", true),
            ("2606:4700:4700::1111", true),
            ("::ffff:1.1.1.1", true),
            ("64:ff9b::101:101", true),
            ("0.0.0.0", false),
            ("0.1.2.3", false),
            ("10.0.0.1", false),
            ("100.64.0.1", false),
            ("100.127.255.255", false),
            ("127.0.0.1", false),
            ("127.255.255.254", false),
            ("169.254.169.254", false),
            ("172.16.0.1", false),
            ("172.31.255.255", false),
            ("192.0.0.8", false),
            ("192.0.2.1", false),
            ("192.88.99.1", false),
            ("192.168.1.1", false),
            ("198.18.0.1", false),
            ("198.19.255.255", false),
            ("198.51.100.1", false),
            ("203.0.113.1", false),
            ("224.0.0.1", false),
            ("240.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:169.254.169.254", false),
            ("::ffff:0:127.0.0.1", false),
            ("::127.0.0.1", false),
            ("64:ff9b::a00:1", false),
            ("64:ff9b::7f00:1", false),
            ("64:ff9b:1::1", false),
            ("2002:7f00:1::", false),
            ("2002:c0a8:101::1", false),
            ("2001::1", false),
            ("2001:0:7f00:1::", false),
            ("2001:db8::1", false),
            ("3fff::1", false),
            ("100::1", false),
            ("5f00::1", false),
            ("fc00::1", false),
            ("fd12:3456::1", false),
            ("fe80::1", false),
            ("fec0::1", false),
            ("ff02::1", false),
            ("2606:4700::5efe:7f00:1", false),
            ("4000::1", false),
        ] {
            assert_eq!(is_public(canonical(text.parse().unwrap())), expected, "{text}");
        }
    }
}
