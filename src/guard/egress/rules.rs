//! Which hosts a guarded request may contact.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;
use thiserror::Error;
use url::{Host, Url};

use super::address::{canonical, is_public};

/// The reason why a guarded request has no response; the text is for the model.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EgressError {
    /// The rules forbid the request, the host does not exist, or its response cannot be read. A retry fails as well.
    #[error("{0}")]
    Refused(String),
    /// The host cannot be reached, or the response does not arrive whole. A retry may succeed.
    #[error("{0}")]
    Failed(String),
}

/// Hosts: a name with all names below it, or a range of IP addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// In the form that [`Url`] gives to hosts: lower case, and internationalized names as Punycode.
    Name(String),
    Range(IpNet),
}

impl HostPattern {
    fn covers_name(&self, name: &str) -> bool {
        let Self::Name(own) = self else { return false };
        name.strip_suffix(own.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    }

    fn covers_address(&self, address: IpAddr) -> bool {
        matches!(self, Self::Range(range) if range.contains(&address))
    }
}

impl FromStr for HostPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(range) = text.parse::<IpNet>() {
            return Ok(Self::Range(range));
        }
        let address = text.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = address.parse::<IpAddr>() {
            return Ok(Self::Range(canonical(address).into()));
        }
        let host = text.strip_prefix("*.").unwrap_or(text);
        match Host::parse(host) {
            Ok(Host::Domain(name)) if !name.trim_end_matches('.').is_empty() && !name.contains('*') => {
                Ok(Self::Name(name.trim_end_matches('.').to_owned()))
            }
            // Another way to write an address, such as `127.1`.
            Ok(Host::Ipv4(address)) => Ok(Self::Range(canonical(address.into()).into())),
            _ => Err(format!("{text:?} is neither a name nor an address of a host")),
        }
    }
}

/// The rules for guarded requests. Without any, all hosts of the public internet are allowed.
#[derive(Clone, Debug, Default)]
pub struct EgressRules {
    /// If not empty, only these hosts are allowed.
    pub allow: Vec<HostPattern>,
    pub deny: Vec<HostPattern>,
    /// The addresses outside the public internet that are allowed.
    pub private: Vec<IpNet>,
}

impl EgressRules {
    /// Checks a request before its host name is resolved.
    ///
    /// # Errors
    /// The reason why the request is forbidden, worded for the model.
    pub fn check_url(&self, url: &Url) -> Result<(), EgressError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(refused(format!("only http:// and https:// can be fetched, not {}:", url.scheme())));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused("the address holds a user name or a password, which is not sent anywhere"));
        }
        match url.host() {
            None | Some(Host::Domain("")) => Err(refused("the address names no host")),
            Some(Host::Domain(name)) => {
                let name = name.trim_end_matches('.');
                self.check_lists(&name, |pattern| pattern.covers_name(name))?;
                if is_local_name(name) { self.check_local(name) } else { Ok(()) }
            }
            Some(Host::Ipv4(address)) => self.check_literal(address.into()),
            Some(Host::Ipv6(address)) => self.check_literal(address.into()),
        }
    }

    /// Checks an address that `host` resolves to.
    ///
    /// # Errors
    /// As [`EgressRules::check_url`].
    pub fn check_address(&self, host: &str, address: IpAddr) -> Result<(), EgressError> {
        let address = canonical(address);
        if self.deny.iter().any(|pattern| pattern.covers_address(address)) {
            return Err(refused(format!("{host} is refused by tools.web.deny_hosts")));
        }
        if is_public(address) || self.private.iter().any(|range| range.contains(&address)) {
            return Ok(());
        }
        Err(refused(format!(
            "{host} is an address of this machine, of a private network or of a special purpose ({address}), which only \
             tools.web.allow_private opens"
        )))
    }

    /// Checks a name of this machine, which some resolvers do not know.
    fn check_local(&self, name: &str) -> Result<(), EgressError> {
        self.check_address(name, Ipv4Addr::LOCALHOST.into())
            .or_else(|refused| self.check_address(name, Ipv6Addr::LOCALHOST.into()).map_err(|_| refused))
    }

    fn check_literal(&self, address: IpAddr) -> Result<(), EgressError> {
        let address = canonical(address);
        self.check_lists(&address, |pattern| pattern.covers_address(address))?;
        self.check_address(&address.to_string(), address)
    }

    fn check_lists(&self, host: &dyn fmt::Display, covers: impl Fn(&HostPattern) -> bool) -> Result<(), EgressError> {
        if self.deny.iter().any(&covers) {
            return Err(refused(format!("{host} is refused by tools.web.deny_hosts")));
        }
        if !self.allow.is_empty() && !self.allow.iter().any(&covers) {
            return Err(refused(format!("{host} is not among tools.web.allow_hosts")));
        }
        Ok(())
    }
}

/// Returns true for a name that refers to this machine (RFC 6761, section 6.3).
fn is_local_name(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

fn refused(reason: impl Into<String>) -> EgressError {
    EgressError::Refused(reason.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], deny: &[&str], private: &[&str]) -> EgressRules {
        let hosts = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let private = private.iter().map(|text| text.parse().unwrap()).collect();
        EgressRules { allow: hosts(allow), deny: hosts(deny), private }
    }

    /// Addresses of this machine and of private networks in many spellings.
    const INNER: &[&str] = &[
        "http://127.0.0.1/",
        "http://127.1/",
        "http://127.0.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.0.0.1/",
        "http://0177.0.0.1/",
        "http://0177.0x0.0.01/",
        "http://127.0.0.1./",
        "http://127.0.0.1:8080/",
        "http:127.0.0.1",
        "http:///127.0.0.1/",
        "http:\\\\127.0.0.1\\",
        "http://127.0.0.1\t/",
        "http://１２７.０.０.１/",
        "http://①②⑦.0.0.1/",
        "http://127。0。0。1/",
        "http://%31%32%37.0.0.1/",
        "http://0/",
        "http://0.0.0.0/",
        "http://00000000000000000000/",
        "http://[::]/",
        "http://[::1]/",
        "http://[0:0:0:0:0:0:0:1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[0:0:0:0:0:ffff:7f00:0001]/",
        "http://[::127.0.0.1]/",
        "http://[64:ff9b::127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://2852039166/",
        "http://0xa9fea9fe/",
        "http://0251.0376.0251.0376/",
        "http://[::ffff:169.254.169.254]/",
        "http://[::ffff:a9fe:a9fe]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[2002:a9fe:a9fe::1]/",
        "http://[fd00:ec2::254]/",
        "http://10.0.0.1/",
        "http://10.1/",
        "http://167772161/",
        "http://012.0.0.1/",
        "http://0xa.0.0.1/",
        "http://172.16.0.1/",
        "http://172.31.255.255/",
        "http://0xac100001/",
        "http://192.168.0.1/",
        "http://192.168.1/",
        "http://3232235521/",
        "http://0300.0250.0.1/",
        "http://[::ffff:192.168.0.1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://[64:ff9b::192.168.0.1]/",
        "http://100.64.0.1/",
        "http://100.100.100.200/",
        "http://198.18.0.1/",
        "http://198.19.255.255/",
        "http://192.0.0.192/",
        "http://192.0.2.1/",
        "http://203.0.113.9/",
        "http://224.0.0.1/",
        "http://239.255.255.250/",
        "http://255.255.255.255/",
        "http://240.0.0.1/",
        "http://[fe80::1]/",
        "http://[fe80::a9fe:a9fe]/",
        "http://[fec0::1]/",
        "http://[fc00::1]/",
        "http://[fd12:3456:789a::1]/",
        "http://[ff02::1]/",
        "http://[2001:db8::1]/",
        "http://[2001::7f00:1]/",
        "http://[64:ff9b:1::a00:1]/",
        "http://[::ffff:0:127.0.0.1]/",
        "http://[100::1]/",
        "http://user@127.0.0.1/",
        "http://example.org@127.0.0.1/",
        "http://127.0.0.1#@example.org/",
        "http://127.0.0.1\\@example.org/",
        "file:///etc/passwd",
        "gopher://example.org/",
        "data:text/plain,x",
        "ftp://example.org/",
        "http://user:pass@example.org/",
        "http://localhost/",
        "http://LOCALHOST./",
        "http://a.b.localhost:80/",
    ];

    /// Checks each spelling of an internal address in the form that `Url` gives it, so that no other parser can read it
    /// differently.
    #[test]
    fn no_spelling_of_an_inner_address_passes() {
        let rules = EgressRules::default();
        for url in INNER {
            // A text that is not a URL is refused earlier.
            if let Ok(read) = Url::parse(url) {
                assert!(rules.check_url(&read).is_err(), "{url} is {read}");
            }
        }
        for url in
            ["http://example.org/", "https://1.1.1.1/", "http://[2606:4700:4700::1111]/", "http://EXAMPLE.org.:81/"]
        {
            assert_eq!(rules.check_url(&Url::parse(url).unwrap()), Ok(()), "{url}");
        }
    }

    #[test]
    fn lists_hold_for_names_below_and_for_addresses() {
        for (allow, deny, private, url, expected) in [
            (&["example.org"][..], &[][..], &[][..], "https://example.org/", true),
            (&["example.org"], &[], &[], "https://www.Example.ORG./", true),
            (&["*.example.org"], &[], &[], "https://www.example.org/", true),
            (&["example.org"], &[], &[], "https://badexample.org/", false),
            (&["example.org"], &[], &[], "https://example.org.evil.net/", false),
            (&["example.org"], &[], &[], "https://1.1.1.1/", false),
            (&["1.1.1.0/24"], &[], &[], "https://1.1.1.1/", true),
            (&["bücher.example"], &[], &[], "https://xn--bcher-kva.example/", true),
            (&[], &["example.org"], &[], "https://a.example.org/", false),
            (&[], &["1.1.1.1"], &[], "https://16843009/", false),
            (&[], &["1.1"], &[], "https://1.0.0.1/", false),
            (&[], &["2606:4700::1"], &[], "https://[2606:4700::1]/", false),
            (&[], &["[2606:4700::1]"], &[], "https://[2606:4700::1]/", false),
            (&[], &["example.org"], &[], "https://example.com/", true),
            (&["example.org"], &["a.example.org"], &[], "https://a.example.org/", false),
            (&[], &[], &["127.0.0.1/32"], "http://127.0.0.1:99/", true),
            (&[], &[], &["127.0.0.1/32"], "http://[::ffff:127.0.0.1]/", true),
            (&[], &[], &["127.0.0.1/32"], "http://127.0.0.2/", false),
            (&[], &["127.0.0.1"], &["127.0.0.1/32"], "http://127.0.0.1/", false),
            (&["example.org"], &[], &["127.0.0.1/32"], "http://127.0.0.1/", false),
        ] {
            let url = Url::parse(url).unwrap();
            let allowed = rules(allow, deny, private).check_url(&url);
            assert_eq!(allowed.is_ok(), expected, "{allow:?} {deny:?} {private:?} {url}: {allowed:?}");
        }
        for text in ["", "http://example.org", "example.org/x", "a b", "*.", "10.0.0.0/99", "a:80", "[::1", "::1]"] {
            assert!(text.parse::<HostPattern>().is_err(), "{text}");
        }
    }
}
