//! `[mcp.NAME]`: the MCP servers whose tools the agent uses.

use std::collections::BTreeMap;
use std::time::Duration;

use daoyou_channels::settings::{HumanDuration, Secret, SettingFault, join_key};
use daoyou_channels::text::hex;
use globset::Glob;
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use smart_default::SmartDefault;

use super::listing::ListedTool;

/// The maximum length of a server's name. The names of its tools begin with it, and models accept 64 characters.
const NAME_CHARS: usize = 32;
/// The maximum time limits.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(3_600);

/// How a server with a `url` is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum McpTransport {
    /// Streamable HTTP, and the older HTTP with SSE where the server has no other.
    #[default]
    Auto,
    /// Streamable HTTP.
    Http,
    /// The HTTP with SSE of the protocol of 2024-11-05.
    Sse,
}

/// `[mcp.NAME.auth]`: where the bearer token for a `url` comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpAuthConfig {
    /// A program that prints the token, run outside the sandbox whenever a new one is needed.
    pub token_command: Vec<String>,
    /// The token endpoint for OAuth client credentials.
    pub token_url: String,
    pub client_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<Secret>,
    /// The scopes to ask for, separated by spaces; empty: those of the server.
    pub scope: String,
}

impl McpAuthConfig {
    /// Returns true if requests carry a token.
    pub fn is_set(&self) -> bool {
        !self.token_command.is_empty() || !self.token_url.is_empty() || !self.client_id.is_empty()
    }
}

/// `[mcp.NAME]`: one server, either a `command` or a `url`.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpServerConfig {
    /// The server is used.
    #[default = true]
    pub enabled: bool,
    /// The program and its arguments; it speaks over its standard input and output.
    pub command: Vec<String>,
    /// Environment variables of the program, in addition to those of commands.
    pub env: BTreeMap<String, Secret>,
    /// The program runs in the sandbox of commands.
    #[default = true]
    pub sandbox: bool,
    /// In the sandbox, the program may open network connections.
    #[default = true]
    pub network: bool,
    /// The address of a server that is reached by HTTP.
    pub url: String,
    /// How the address is reached.
    pub transport: McpTransport,
    /// HTTP headers of each request to the address.
    pub headers: BTreeMap<String, Secret>,
    /// Where the bearer token for the address comes from.
    pub auth: McpAuthConfig,
    /// The tools that the agent has of this server, by their own names, also with `*`; empty: all.
    pub tools: Vec<String>,
    /// The time limit of a call.
    #[default(HumanDuration::from_secs(30))]
    pub timeout: HumanDuration,
    /// How long the server may take to start and to list its tools.
    #[default(HumanDuration::from_secs(60))]
    pub start_timeout: HumanDuration,
    /// The server's results count as the owner's own words: they do not taint a turn.
    pub trusted: bool,
}

impl McpServerConfig {
    /// Returns `stdio`, `http` or `sse`.
    pub fn transport_name(&self) -> &'static str {
        match (self.url.is_empty(), self.transport) {
            (true, _) => "stdio",
            (false, McpTransport::Sse) => "sse",
            (false, _) => "http",
        }
    }

    /// Returns true if the agent may use the tool that the server calls `tool`.
    pub fn has_tool(&self, tool: &str) -> bool {
        self.tools.is_empty() || self.tools.iter().any(|entry| fits(entry, tool))
    }

    /// Returns the entries of `tools` that fit none of the server's tools.
    pub fn unfit_entries<'a>(&'a self, tools: &[ListedTool]) -> impl Iterator<Item = &'a String> {
        self.tools.iter().filter(|entry| !tools.iter().any(|tool| fits(entry, &tool.own_name)))
    }

    /// Returns a digest of all settings that identify the server, without secrets.
    pub fn fingerprint(&self) -> String {
        let names = |map: &BTreeMap<String, Secret>| map.keys().cloned().collect::<Vec<_>>();
        let identity = json!([
            self.command,
            names(&self.env),
            self.sandbox,
            self.network,
            self.url,
            self.transport,
            names(&self.headers),
            self.auth.client_id,
            self.auth.scope,
        ]);
        hex(&Sha256::digest(identity.to_string().as_bytes())[..8])
    }

    /// Returns the faults of a server with this name. Their keys are relative to the server's table.
    pub fn faults(&self, name: &str) -> Vec<SettingFault> {
        let mut faults = Vec::new();
        if !is_server_name(name) {
            let wrong = format!("{name:?} is not a valid name of a server");
            faults.push(SettingFault::new(&[""], wrong, NAME_RULE));
        }
        match (self.command.is_empty(), self.url.is_empty()) {
            (true, true) => {
                faults.push(SettingFault::new(&["command", "url"], "neither command nor url is set", ONE));
            }
            (false, false) => {
                faults.push(SettingFault::new(&["url", "command"], "command is set as well", ONE));
            }
            (false, true) => self.command_faults(&mut faults),
            (true, false) => self.url_faults(&mut faults),
        }
        for pattern in &self.tools {
            if let Err(error) = Glob::new(pattern) {
                let wrong = format!("{pattern:?} is not a pattern: {}", error.kind());
                faults.push(SettingFault::new(&["tools"], wrong, "names of tools, also with \"*\""));
            }
        }
        for (key, span) in [("timeout", self.timeout), ("start_timeout", self.start_timeout)] {
            if span.0.is_zero() || span.0 > LONGEST_TIMEOUT {
                faults.push(SettingFault::new(&[key], format!("{span} is too short or too long"), "up to \"1h\""));
            }
        }
        faults
    }

    fn command_faults(&self, faults: &mut Vec<SettingFault>) {
        if self.command.first().is_none_or(|program| program.trim().is_empty()) {
            let allowed = "a program and its arguments, such as [\"npx\", \"-y\", \"some-server\"]";
            faults.push(SettingFault::new(&["command"], "the first entry names no program", allowed));
        }
        if self.command.iter().any(|word| word.contains('\0')) {
            faults.push(SettingFault::new(&["command"], "an entry holds a NUL character", "texts without NUL"));
        }
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) || value.expose().contains('\0') {
                let (key, wrong) = (join_key("env", name), format!("{name:?} cannot be an environment variable"));
                faults.push(SettingFault::new(&[&key], wrong, "a name without \"=\", a text without NUL"));
            }
        }
        for (key, is_set) in [("headers", !self.headers.is_empty()), ("auth", self.auth.is_set())] {
            if is_set {
                faults.push(SettingFault::new(&[key], format!("{key} needs a url"), "only with url"));
            }
        }
    }

    fn url_faults(&self, faults: &mut Vec<SettingFault>) {
        if !is_web_address(&self.url) {
            faults.push(SettingFault::new(&["url"], "the value is not a web address", ADDRESS));
        }
        for (name, value) in &self.headers {
            let key = join_key("headers", name);
            if HeaderName::from_bytes(name.as_bytes()).is_err() || HeaderValue::from_str(value.expose()).is_err() {
                let wrong = format!("{name:?} and its value cannot be sent as a header");
                faults.push(SettingFault::new(&[&key], wrong, "a name such as X-Title, and visible characters"));
            }
            if name.eq_ignore_ascii_case("authorization") && self.auth.is_set() {
                faults.push(SettingFault::new(&[&key, "auth"], "auth is set as well", "one of the two"));
            }
        }
        if !self.env.is_empty() {
            faults.push(SettingFault::new(&["env"], "env needs a command", "only with command"));
        }
        self.auth_faults(faults);
    }

    fn auth_faults(&self, faults: &mut Vec<SettingFault>) {
        let auth = &self.auth;
        let is_client = !auth.token_url.is_empty() || !auth.client_id.is_empty() || auth.client_secret.is_some();
        if *auth == McpAuthConfig::default() {
            return;
        }
        if is_client != auth.token_command.is_empty() || (!is_client && !auth.scope.is_empty()) {
            let wrong = "it names neither or both of a token_command and client credentials";
            let allowed = "token_command, or token_url, client_id and client_secret";
            faults.push(SettingFault::new(&["auth"], wrong, allowed));
        } else if is_client {
            if !is_web_address(&auth.token_url) {
                faults.push(SettingFault::new(&["auth.token_url"], "the value is not a web address", ADDRESS));
            }
            if auth.client_id.is_empty() || auth.client_secret.is_none() {
                let wrong = "client_id and client_secret belong together";
                faults.push(SettingFault::new(&["auth.client_id", "auth.client_secret"], wrong, "both"));
            }
        }
    }
}

/// Returns true if an entry of `tools` fits the tool that the server calls `tool`.
fn fits(entry: &str, tool: &str) -> bool {
    entry == tool || Glob::new(entry).is_ok_and(|glob| glob.compile_matcher().is_match(tool))
}

const ONE: &str = "either command = [\"PROGRAM\", …] or url = \"https://…\"";
const ADDRESS: &str = "an address that starts with \"https://\" or \"http://\"";
const NAME_RULE: &str =
    "1 to 32 of the letters a-z, A-Z, digits, '-' and '_', without \"__\" and without '_' at the end";

fn is_web_address(url: &str) -> bool {
    let is_whole = url.starts_with("http://") || url.starts_with("https://");
    is_whole && url.trim() == url && Url::parse(url).is_ok_and(|url| url.has_host())
}

/// Returns true for a valid name of a server. The rules make `NAME__tool` unambiguous.
pub fn is_server_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    (1..=NAME_CHARS).contains(&name.len()) && name.chars().all(is_plain) && !name.contains("__") && !name.ends_with('_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(text: &str) -> McpServerConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn each_fault_names_its_key() {
        for (name, text, expected) in [
            ("time", "command = ['mcp-server-time']", &[][..]),
            ("web", "url = 'https://example.org/mcp'", &[]),
            ("a__b", "command = ['x']", &[""]),
            ("a_", "command = ['x']", &[""]),
            ("", "command = ['x']", &[""]),
            ("x", "", &["command"]),
            ("x", "command = ['x']\nurl = 'https://example.org'", &["url"]),
            ("x", "command = ['']", &["command"]),
            ("x", "command = ['x']\nheaders = {A = 'b'}", &["headers"]),
            ("x", "command = ['x']\nenv = {'A=B' = 'b'}", &["env.\"A=B\""]),
            ("x", "command = ['x']\ntools = ['a[']", &["tools"]),
            ("x", "command = ['x']\ntimeout = '0s'", &["timeout"]),
            ("x", "command = ['x']\nstart_timeout = '2h'", &["start_timeout"]),
            ("x", "url = 'example.org'", &["url"]),
            ("x", "url = 'https://example.org'\nenv = {A = 'b'}", &["env"]),
            ("x", "url = 'https://example.org'\nheaders = {'A B' = 'b'}", &["headers.\"A B\""]),
            ("x", "url = 'https://example.org'\nauth = {client_id = 'a'}", &["auth.token_url", "auth.client_id"]),
            ("x", "url = 'https://example.org'\nauth = {token_command = ['t'], client_id = 'a'}", &["auth"]),
            ("x", "url = 'https://example.org'\nauth = {token_command = ['t']}", &[]),
        ] {
            let faults = server(text).faults(name);
            let keys: Vec<_> = faults.iter().map(SettingFault::key).collect();
            assert_eq!(keys, expected, "{name} {text}: {faults:?}");
        }
    }

    #[test]
    fn tools_are_selected_by_names_and_patterns() {
        let config = server("command = ['x']\ntools = ['echo', 'get-*']");
        for (tool, expected) in [("echo", true), ("get-sum", true), ("echo2", false), ("forget-it", false)] {
            assert_eq!(config.has_tool(tool), expected, "{tool}");
        }
        assert!(McpServerConfig::default().has_tool("anything"));
    }

    #[test]
    fn the_fingerprint_depends_on_the_server_and_not_on_its_secrets() {
        let of = |text: &str| server(text).fingerprint();
        let plain = of("command = ['x']\nenv = {KEY = 'one'}");
        assert_eq!(plain, of("command = ['x']\nenv = {KEY = 'two'}\ntimeout = '5s'\ntools = ['a']"));
        assert_ne!(plain, of("command = ['y']\nenv = {KEY = 'one'}"));
    }
}
