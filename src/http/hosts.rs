//! Which names this server answers to. A page of the web that has its own name point to this machine (DNS rebinding) is
//! refused by `Host`, one that writes here across origins by `Origin`.

use std::net::{IpAddr, SocketAddr};

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};
use daoyou_channels::HttpError;

/// The names beyond those that follow from the address.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    names: Vec<String>,
}

impl Hosts {
    /// `names` as in `gateway.hosts`; each has passed [`Hosts::check`].
    pub fn new(names: &[String]) -> Self {
        Self { names: names.iter().map(|name| plain(name).to_ascii_lowercase()).collect() }
    }

    /// Whether `name` can stand in `gateway.hosts`: a name or an IP address, without scheme, port or path.
    pub fn check(name: &str) -> bool {
        let name = plain(name);
        let ip = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        ip.is_ok() || (!name.is_empty() && name.len() <= 253 && name.chars().all(letters))
    }

    /// Whether a request that came to the address `local` of this machine may go on.
    ///
    /// # Errors
    /// 400 or 403, with the name and the key that would allow it.
    pub fn admit(&self, uri: &Uri, headers: &HeaderMap, local: SocketAddr) -> Result<(), HttpError> {
        let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (name, _) = split(host).ok_or_else(|| HttpError::bad_request("Host is no name of a host"))?;
        for name in [Some(name), uri.authority().map(Authority::host)].into_iter().flatten() {
            if !self.knows(name, local.ip()) {
                return Err(HttpError::forbidden(format!(
                    "this server does not answer to the name {name:.100?}; its owner can add it to gateway.hosts"
                )));
            }
        }
        for origin in headers.get_all(header::ORIGIN) {
            if !origin.to_str().is_ok_and(|origin| self.is_own(origin, host, local)) {
                return Err(HttpError::forbidden(format!(
                    "requests from pages of {:.100?} are not taken; the owner can add its name to gateway.hosts",
                    String::from_utf8_lossy(origin.as_bytes())
                )));
            }
        }
        Ok(())
    }

    /// `local` is the address that the client came to; to know it, a name must have been looked up already, so that no
    /// name of somebody else's gets in by it.
    fn knows(&self, name: &str, local: IpAddr) -> bool {
        let name = plain(name);
        match name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(ip) if ip.to_canonical().is_loopback() || ip.to_canonical() == local.to_canonical() => true,
            _ => name.eq_ignore_ascii_case("localhost") || self.is_listed(name),
        }
    }

    fn is_listed(&self, name: &str) -> bool {
        self.names.iter().any(|own| own.eq_ignore_ascii_case(name))
    }

    /// Whether a page of `origin` is of this server: of the very `host` that is asked, on another name of its address
    /// and port, or of a listed name. Another program's port on this machine is another's page.
    fn is_own(&self, origin: &str, host: &str, local: SocketAddr) -> bool {
        let (authority, usual) = match origin.split_once("://") {
            Some(("http", rest)) => (rest, 80),
            Some(("https", rest)) => (rest, 443),
            _ => return false,
        };
        let Some((name, port)) = split(authority) else { return false };
        let same = |(host, own): (&str, Option<u16>)| {
            host.eq_ignore_ascii_case(name) && own.unwrap_or(usual) == port.unwrap_or(usual)
        };
        split(host).is_some_and(same)
            || self.is_listed(plain(name))
            || (port.unwrap_or(usual) == local.port() && self.knows(name, local.ip()))
    }
}

/// Without the dot that may end a full name.
fn plain(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Name (an IPv6 address in its brackets) and port of `host[:port]`.
fn split(authority: &str) -> Option<(&str, Option<u16>)> {
    let end = match authority.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (name, rest) = authority.split_at(end);
    let port = match rest.strip_prefix(':') {
        Some("") => None,
        Some(port) => Some(port.parse().ok()?),
        None if rest.is_empty() => None,
        None => return None,
    };
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':' | '[' | ']');
    (!name.is_empty() && name.chars().all(good)).then_some((name, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(uri: &str, host: &str, origin: Option<&str>) -> u16 {
        let hosts = Hosts::new(&["Chat.example.org".to_owned(), "192.0.2.9".to_owned()]);
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        let local = "10.1.2.3:18790".parse().unwrap();
        hosts.admit(&uri.parse().unwrap(), &headers, local).map_or_else(|fault| fault.status.as_u16(), |()| 200)
    }

    #[test]
    fn only_own_names_are_answered_to() {
        for (host, expected) in [
            ("localhost:18790", 200),
            ("LOCALHOST.", 200),
            ("127.0.0.1:18790", 200),
            ("127.8.9.1", 200),
            ("[::1]:18790", 200),
            ("[::ffff:127.0.0.1]", 200),
            ("10.1.2.3:8080", 200),
            ("chat.example.org", 200),
            ("chat.example.org.:443", 200),
            ("192.0.2.9", 200),
            ("10.1.2.4:18790", 403),
            ("evil.example", 403),
            ("localhost.evil.example", 403),
            ("127.0.0.1.evil.example", 403),
            ("2130706433", 403),
            ("", 400),
            (":80", 400),
            ("localhost:99999", 400),
            ("localhost@evil.example", 400),
            ("localhost, evil.example", 400),
            ("[::1", 400),
        ] {
            assert_eq!(status("/", host, None), expected, "{host:?}");
        }
        assert_eq!(status("http://evil.example/", "localhost", None), 403);
        assert_eq!(status("http://localhost/", "localhost", None), 200);
    }

    #[test]
    fn pages_of_others_are_refused() {
        for (host, origin, expected) in [
            ("127.0.0.1:18790", "http://127.0.0.1:18790", 200),
            ("127.0.0.1:18790", "http://localhost:18790", 200),
            ("localhost:8080", "http://localhost:8080", 200),
            ("chat.example.org", "https://chat.example.org", 200),
            ("127.0.0.1:18790", "https://chat.example.org", 200),
            ("127.0.0.1:18790", "http://localhost:3000", 403),
            ("127.0.0.1:18790", "http://localhost", 403),
            ("127.0.0.1:18790", "https://evil.example", 403),
            ("127.0.0.1:18790", "http://127.0.0.1.evil.example:18790", 403),
            ("127.0.0.1:18790", "null", 403),
            ("127.0.0.1:18790", "file://", 403),
            ("127.0.0.1:18790", "chrome-extension://localhost", 403),
        ] {
            assert_eq!(status("/", host, Some(origin)), expected, "{host} {origin}");
        }
    }

    #[test]
    fn a_name_to_add_is_a_bare_name() {
        for (name, expected) in [
            ("chat.example.org", true),
            ("10.0.0.7", true),
            ("::1", true),
            ("[::1]", true),
            ("https://chat.example.org", false),
            ("chat.example.org:80", false),
            ("chat.example.org/", false),
            ("*", false),
            ("", false),
        ] {
            assert_eq!(Hosts::check(name), expected, "{name:?}");
        }
    }
}
