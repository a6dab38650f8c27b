//! The client of an HTTP request, the headers that it may send only once, and the wait that a response asks for.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

use crate::message::Trust;

/// The address of the client behind a request: the peer of the connection, or the address that a trusted proxy reports. An
/// IPv4 address mapped into IPv6 is stored as IPv4. The server puts this value into the extensions of each request; routes
/// never read `X-Forwarded-For` themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientAddr(pub IpAddr);

impl ClientAddr {
    /// The client behind a trusted proxy that does not report it. It counts as one client, and is never on this machine.
    pub const UNKNOWN: Self = Self(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

    /// Returns true if the client is on this machine.
    pub fn is_local(self) -> bool {
        self.0.to_canonical().is_loopback()
    }

    /// Returns the key for rate limits: an IPv4 address, or the /64 network of an IPv6 address, which is the usual
    /// allocation of one customer.
    pub fn bucket(self) -> IpAddr {
        match self.0.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => IpAddr::from((address.to_bits() & !u128::from(u64::MAX)).to_be_bytes()),
        }
    }
}

/// The sender of an authenticated client's messages. The server puts it into the extensions of each request that passes the access check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSender {
    /// `owner`, or `token:NAME`.
    pub id: String,
    pub trust: Trust,
    /// The client may use only the sessions that it started.
    pub is_confined: bool,
}

/// Returns the value of the header `name`, if there is one. Several values are rejected, even equal ones, since a proxy and
/// this program could use different ones.
///
/// # Errors
/// A sentence that names the header.
pub(crate) fn single_header<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a HeaderValue>, String> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    match values.next() {
        None => Ok(value),
        Some(_) => Err(format!("the header {name} occurs more than once")),
    }
}

/// Returns the wait that `Retry-After` asks for, in seconds or as a date (RFC 9110, section 10.2.3). It is zero for a past date.
pub fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
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

    #[test]
    fn a_header_has_one_value_or_none() {
        for (values, expected) in
            [(&[][..], Ok(None)), (&["a"], Ok(Some("a"))), (&["a", "a"], Err(())), (&["a", ""], Err(()))]
        {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("x-one", HeaderValue::from_static(value));
            }
            let found = single_header(&headers, "x-one").map(|value| value.map(|value| value.to_str().unwrap()));
            assert_eq!(found.map_err(|reason| assert!(reason.contains("x-one"))), expected, "{values:?}");
        }
    }
}
