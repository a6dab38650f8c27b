//! The e-mail account of the channel: its servers and its login.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::ClientConfig;

use super::certificate::{CertificateExpiries, MailTls, read_ca_file};
use super::config::{EmailConfig, Tls};
use super::presets::{ServerAddress, preset_for_address};
use super::token::TokenCommand;
use crate::settings::Secret;

/// A validated account, ready for use.
pub struct Account {
    /// The address of the account, which replies come from.
    pub address: String,
    /// The display name; may be empty.
    pub name: String,
    pub imap: MailServer,
    pub smtp: MailServer,
    /// The settings trust the system's roots and the certificates of `ca_file`, and always check names.
    pub tls: MailTls,
}

/// A server of the account.
#[derive(Clone)]
pub struct MailServer {
    pub host: String,
    pub port: u16,
    pub tls: Tls,
    pub username: String,
    pub login: Login,
}

/// The way the account logs in.
#[derive(Clone)]
pub enum Login {
    None,
    Password(Secret),
    /// XOAUTH2 with the token that the command prints.
    Token(Arc<TokenCommand>),
}

impl Account {
    /// Builds the account of `config`. A server that is not configured comes from the preset of the address's provider.
    ///
    /// # Errors
    /// One sentence that names the key: a server or a secret is missing, `ca_file` cannot be read, or a connection to
    /// another machine would not be encrypted.
    pub fn new(config: &EmailConfig) -> Result<Self, String> {
        let address = config.address.trim().to_owned();
        if !address.contains('@') {
            return Err("address is not set: set it to the account's own, such as \"assistant@example.org\"".to_owned());
        }
        let token = config.token_command.clone().map(TokenCommand::new).transpose()?.map(Arc::new);
        let login = |password: Option<&Secret>| match (&token, password) {
            (Some(token), _) => Login::Token(Arc::clone(token)),
            (None, Some(password)) => Login::Password(password.clone()),
            (None, None) => Login::None,
        };
        let preset = preset_for_address(&address);
        let usual_imap_port = if config.imap_tls == Tls::Implicit { 993 } else { 143 };
        let own_imap = ServerAddress { host: config.imap_host.trim(), port: usual_imap_port, tls: config.imap_tls };
        let imap_username = first_non_empty([&config.imap_username, &address]);
        let imap = MailServer {
            login: login(config.imap_password.as_ref()),
            username: imap_username.clone(),
            ..resolve_server("imap", own_imap, config.imap_port, preset.map(|preset| preset.imap))?
        };
        if matches!(imap.login, Login::None) {
            return Err("imap_password or token_command must be set; a login needs one of them".to_owned());
        }
        let usual_smtp_port = match config.smtp_tls {
            Tls::Implicit => 465,
            Tls::Starttls => 587,
            Tls::None => 25,
        };
        let own_smtp = ServerAddress { host: config.smtp_host.trim(), port: usual_smtp_port, tls: config.smtp_tls };
        let smtp = MailServer {
            login: login(config.smtp_password.as_ref().or(config.imap_password.as_ref())),
            username: first_non_empty([&config.smtp_username, &imap_username]),
            ..resolve_server("smtp", own_smtp, config.smtp_port, preset.map(|preset| preset.smtp))?
        };
        let tls = MailTls { config: tls_config(config.ca_file.as_deref())?, expiries: CertificateExpiries::default() };
        Ok(Self { address, name: config.name.trim().to_owned(), imap, smtp, tls })
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Returns the initial response of SASL's PLAIN (RFC 4616).
pub fn plain_response(username: &str, password: &Secret) -> String {
    format!("\0{username}\0{}", password.expose())
}

/// Returns the initial response of XOAUTH2, the mechanism of Google and Microsoft.
pub fn xoauth2_response(username: &str, token: &Secret) -> String {
    format!("user={username}\x01auth=Bearer {}\x01\x01", token.expose())
}

/// Removes a secret from a server's reply in every form that a login sends, because some servers repeat a command that they
/// reject. The reply may end within the secret.
pub fn redact(reply: &str, username: &str, secret: &Secret) -> String {
    const HIDDEN: &str = "(hidden)";
    /// The shortest beginning of a secret that is removed from the end of a reply.
    const MIN_BEGINNING: usize = 4;
    let plain = secret.expose();
    let forms = [
        STANDARD.encode(plain_response(username, secret)),
        STANDARD.encode(xoauth2_response(username, secret)),
        STANDARD.encode(plain),
        plain.replace('\\', "\\\\").replace('"', "\\\""),
        plain.to_owned(),
    ];
    let mut redacted = reply.to_owned();
    for form in forms.iter().filter(|form| !form.is_empty()) {
        redacted = redacted.replace(form.as_str(), HIDDEN);
        let end = redacted.trim_end_matches('…');
        let mut beginnings = form.char_indices().rev().map(|(at, _)| &form[..at]);
        if let Some(rest) =
            beginnings.find_map(|beginning| end.strip_suffix(beginning).filter(|_| beginning.len() >= MIN_BEGINNING))
        {
            redacted = format!("{rest}{HIDDEN}");
        }
    }
    redacted
}

/// Returns true if `host` is this machine: `localhost` or a loopback address.
pub fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Completes the address of one server. If no host is configured, the preset replaces the whole address; the configured
/// port takes precedence over both.
fn resolve_server(
    kind: &str,
    configured: ServerAddress<'_>,
    port: Option<u16>,
    preset: Option<ServerAddress<'_>>,
) -> Result<MailServer, String> {
    let ServerAddress { host, port: usual_port, tls } = if configured.host.is_empty() {
        preset.ok_or_else(|| format!("{kind}_host is not set, and the provider of the address is not known"))?
    } else {
        configured
    };
    if tls == Tls::None && !is_loopback(host) {
        return Err(format!(
            "{kind}_tls = \"none\" would send the password in plain to {host}: it is for servers on this machine; \
             use \"implicit\" or \"starttls\""
        ));
    }
    let port = port.unwrap_or(usual_port);
    Ok(MailServer { host: host.to_owned(), port, tls, username: String::new(), login: Login::None })
}

/// Returns the first text that is not empty.
fn first_non_empty<const N: usize>(texts: [&str; N]) -> String {
    texts.into_iter().map(str::trim).find(|text| !text.is_empty()).unwrap_or_default().to_owned()
}

fn tls_config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let own = ca_file.map(read_ca_file).transpose().map_err(|wrong| format!("ca_file {wrong}"))?.unwrap_or_default();
    let verifier =
        rustls_platform_verifier::Verifier::new_with_extra_roots(own, Arc::clone(&provider)).map_err(|error| {
            format!("no certificate authorities to trust: {error}; install ca-certificates, or set ca_file")
        })?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be set up: {error}"))?
        .dangerous() // A verifier of one's own is set here; this one is the system's.
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(change: impl FnOnce(&mut EmailConfig)) -> EmailConfig {
        let mut config = EmailConfig {
            address: "assistant@example.test".to_owned(),
            imap_host: "imap.example.test".to_owned(),
            imap_password: Some(Secret::new("canary")),
            smtp_host: "smtp.example.test".to_owned(),
            ..EmailConfig::default()
        };
        change(&mut config);
        config
    }

    #[test]
    fn ports_and_logins_have_their_defaults() {
        let account = Account::new(&config(|_| {})).unwrap();
        assert_eq!((account.imap.port, account.smtp.port), (993, 587));
        assert_eq!(
            (account.imap.username.as_str(), account.smtp.username.as_str()),
            (account.address.as_str(), account.address.as_str())
        );
        assert!(matches!(&account.smtp.login, Login::Password(secret) if secret.expose() == "canary"));
        assert!(!format!("{account:?}").contains("canary"));
        let plain = Account::new(&config(|config| {
            (config.imap_tls, config.smtp_tls) = (Tls::Starttls, Tls::Implicit);
            config.smtp_username = "other".to_owned();
        }))
        .unwrap();
        assert_eq!((plain.imap.port, plain.smtp.port, plain.smtp.username.as_str()), (143, 465, "other"));
    }

    #[test]
    fn a_known_provider_needs_no_hosts() {
        let account = Account::new(&config(|config| {
            config.address = "someone@163.com".to_owned();
            (config.imap_host, config.smtp_host) = (String::new(), String::new());
        }))
        .unwrap();
        assert_eq!(
            (account.imap.host.as_str(), account.imap.port, account.imap.tls),
            ("imap.163.com", 993, Tls::Implicit)
        );
        assert!(account.smtp.host.ends_with("163.com"));
    }

    #[test]
    fn no_form_of_a_secret_stays_in_a_reply() {
        let redacted = |reply: &str| redact(reply, "me", &Secret::new("can\"ary"));
        for (reply, expected) in [
            ("535 wrong password", "535 wrong password"),
            ("bad can\"ary, LOGIN \"can\\\"ary\"", "bad (hidden), LOGIN \"(hidden)\""),
            ("unknown: AUTH PLAIN AG1lAGNhbiJhcnk=", "unknown: AUTH PLAIN (hidden)"),
            ("unknown: Y2FuImFyeQ== here", "unknown: (hidden) here"),
            ("unknown: AUTH XOAUTH2 dXNlcj1tZQFhdXRoPUJlYXJlciBjYW4iYXJ5AQE=", "unknown: AUTH XOAUTH2 (hidden)"),
            ("unknown: AUTH XOAUTH2 dXNlcj1tZQFhdXRoPUJlYXJlciBjYW4…", "unknown: AUTH XOAUTH2 (hidden)"),
            ("a login as can\"a", "a login as (hidden)"),
            ("you can", "you can"),
        ] {
            assert_eq!(redacted(reply), expected);
        }
        assert_eq!(redact("nothing", "me", &Secret::new("")), "nothing");
    }

    type Change = fn(&mut EmailConfig);

    #[test]
    fn an_invalid_setting_is_named() {
        let cases: [(Change, &str); 6] = [
            (|config| config.address = String::new(), "address"),
            (|config| config.imap_host = String::new(), "imap_host"),
            (|config| config.imap_password = None, "imap_password"),
            (|config| config.imap_tls = Tls::None, "imap_tls"),
            (|config| config.smtp_tls = Tls::None, "smtp_tls"),
            (|config| config.ca_file = Some("/does/not/exist.pem".into()), "ca_file"),
        ];
        for (change, key) in cases {
            let error = Account::new(&config(change)).unwrap_err();
            assert!(error.starts_with(key), "{key}: {error}");
        }
    }
}
