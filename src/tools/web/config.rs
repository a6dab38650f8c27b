//! `[tools.web]`.

use std::net::IpAddr;

use daoyou_channels::settings::{Secret, SettingFault};
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::guard::{EgressRules, HostPattern};

/// A search service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SearchService {
    /// The one that the other settings suggest.
    #[default]
    Auto,
    Brave,
    Tavily,
    Searxng,
    Duckduckgo,
}

/// The settings of the web tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebConfig {
    /// The service of web_search.
    pub search: SearchService,
    /// The key of Brave or Tavily.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<Secret>,
    /// The address of SearXNG, or of another server that answers as the service does.
    pub base_url: String,
    /// The hosts that web_fetch may ask; empty: all. A name includes the names below it.
    pub allow_hosts: Vec<String>,
    /// The hosts that web_fetch never asks.
    pub deny_hosts: Vec<String>,
    /// Addresses of this machine and of private networks that web_fetch may ask.
    pub allow_private: Vec<String>,
}

impl WebConfig {
    /// Returns the egress rules of `web_fetch`.
    ///
    /// # Errors
    /// A setting is invalid.
    pub fn rules(&self) -> Result<EgressRules, SettingFault> {
        const HOSTS: &str = "a name such as \"example.org\", an IP address or a range such as \"10.0.0.0/8\"";
        let hosts = |key, texts: &[String]| {
            let read = texts.iter().map(|text| text.parse::<HostPattern>()).collect::<Result<Vec<_>, _>>();
            read.map_err(|wrong| SettingFault::new(&[key], wrong, HOSTS))
        };
        let network = |text: &String| {
            let read = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
            read.map_err(|_| {
                let (wrong, allowed) =
                    (format!("{text:?} is not an address"), "an IP address or a range such as \"10.0.0.0/8\"");
                SettingFault::new(&["tools.web.allow_private"], wrong, allowed)
            })
        };
        Ok(EgressRules {
            allow: hosts("tools.web.allow_hosts", &self.allow_hosts)?,
            deny: hosts("tools.web.deny_hosts", &self.deny_hosts)?,
            private: self.allow_private.iter().map(network).collect::<Result<_, _>>()?,
        })
    }

    /// Returns the search service, never `Auto`.
    ///
    /// # Errors
    /// As [`WebConfig::rules`].
    pub fn service(&self) -> Result<SearchService, SettingFault> {
        let fault = |key, wrong: &str, allowed| Err(SettingFault::new(&[key], wrong, allowed));
        let key = self.api_key.as_ref().map(Secret::expose);
        let service = match (self.search, key) {
            (SearchService::Auto, Some(key)) if key.starts_with("tvly-") => SearchService::Tavily,
            (SearchService::Auto, Some(_)) => SearchService::Brave,
            (SearchService::Auto, None) if !self.base_url.is_empty() => SearchService::Searxng,
            (SearchService::Auto, None) => SearchService::Duckduckgo,
            (SearchService::Brave | SearchService::Tavily, None) => {
                let wrong = "is missing, and the service of tools.web.search needs it";
                return fault("tools.web.api_key", wrong, "the key, such as \"env:BRAVE_API_KEY\"");
            }
            (SearchService::Searxng, _) if self.base_url.is_empty() => {
                let wrong = "is missing: there is no SearXNG that serves everybody";
                return fault("tools.web.base_url", wrong, "the address of a SearXNG that answers in JSON");
            }
            (named, _) => named,
        };
        let is_http = |url: Url| matches!(url.scheme(), "http" | "https") && url.has_host();
        if !self.base_url.is_empty() && !Url::parse(&self.base_url).is_ok_and(is_http) {
            let wrong = "is not the address of a web server";
            return fault("tools.web.base_url", wrong, "one that begins with http:// or https://");
        }
        Ok(service)
    }
}

#[cfg(test)]
mod tests {
    use super::SearchService::{Auto, Brave, Duckduckgo, Searxng, Tavily};
    use super::*;

    #[test]
    fn the_service_follows_from_what_is_configured() {
        for (search, key, base_url, expected) in [
            (Auto, "", "", Ok(Duckduckgo)),
            (Auto, "BSA-key", "", Ok(Brave)),
            (Auto, "tvly-key", "", Ok(Tavily)),
            (Auto, "", "http://search.example", Ok(Searxng)),
            (Searxng, "", "", Err("tools.web.base_url")),
            (Brave, "", "", Err("tools.web.api_key")),
            (Duckduckgo, "", "ftp://x", Err("tools.web.base_url")),
            (Duckduckgo, "", "", Ok(Duckduckgo)),
        ] {
            let api_key = (!key.is_empty()).then(|| Secret::new(key));
            let config = WebConfig { search, api_key, base_url: base_url.to_owned(), ..WebConfig::default() };
            let found = config.service();
            assert_eq!(
                found.as_ref().map_err(SettingFault::key),
                expected.as_ref().map_err(|key| *key),
                "{search:?} {key} {base_url}"
            );
        }
    }
}
