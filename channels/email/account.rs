//! The account that mail is read from and sent by: where its servers are, and how one logs in there.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::config::{EmailConfig, Tls};
use super::presets::{self, Preset};
use super::token::TokenCommand;
use crate::settings::Secret;

/// An account, checked and ready to be used.
pub struct Account {
    /// The address that replies come from.
    pub address: String,
    /// The name beside it; may be empty.
    pub name: String,
    pub imap: Server,
    pub smtp: Server,
    tls: Arc<ClientConfig>,
}

/// One of the account's servers.
#[derive(Clone, Debug)]
pub struct Server {
    pub host: String,
    pub port: u16,
    pub tls: Tls,
    pub username: String,
    pub login: Login,
}

/// How one logs in.
#[derive(Clone)]
pub enum Login {
    None,
    Password(Secret),
    /// XOAUTH2, with what the command prints.
    Token(Arc<TokenCommand>),
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Password(_) => "Password",
            Self::Token(_) => "Token",
        })
    }
}

impl Account {
    /// Puts the account of `config` together; a server that it does not name is the usual one of the address's provider.
    ///
    /// # Errors
    /// A server or a secret is missing, `ca_file` cannot be read, or a connection would be in plain to another machine;
    /// as a sentence that names the key.
    pub fn new(config: &EmailConfig) -> Result<Self, String> {
        let address = config.address.trim().to_owned();
        if !address.contains('@') {
            return Err("address is not set: it wants the account's own, such as \"assistant@example.org\"".to_owned());
        }
        let token = config.token_command.clone().map(TokenCommand::new).transpose()?.map(Arc::new);
        let login = |password: Option<&Secret>| match (&token, password) {
            (Some(token), _) => Login::Token(Arc::clone(token)),
            (None, Some(password)) => Login::Password(password.clone()),
            (None, None) => Login::None,
        };
        let preset = presets::usual(&address);
        let imap_username = first([&config.imap_username, &address]);
        let imap = Server {
            login: login(config.imap_password.as_ref()),
            username: imap_username.clone(),
            ..imap_place(config, preset)?
        };
        if matches!(imap.login, Login::None) {
            return Err("imap_password is not set, and no token_command: nobody can log in without".to_owned());
        }
        let smtp = Server {
            login: login(config.smtp_password.as_ref().or(config.imap_password.as_ref())),
            username: first([&config.smtp_username, &imap_username]),
            ..smtp_place(config, preset)?
        };
        let tls = tls_config(config.ca_file.as_deref())?;
        Ok(Self { address, name: config.name.trim().to_owned(), imap, smtp, tls })
    }

    /// Trusts the system's roots and those of `ca_file`; names are always checked.
    pub fn tls_config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.tls)
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Whether `host` is this machine: by its usual name, or by a loopback address.
pub fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn imap_place(config: &EmailConfig, preset: Option<&Preset>) -> Result<Server, String> {
    let preset = preset.map(|preset| (preset.imap_host, preset.imap_port, preset.imap_tls));
    let own = if config.imap_tls == Tls::Implicit { 993 } else { 143 };
    place("imap", &config.imap_host, config.imap_port, (own, config.imap_tls), preset)
}

fn smtp_place(config: &EmailConfig, preset: Option<&Preset>) -> Result<Server, String> {
    let preset = preset.map(|preset| (preset.smtp_host, preset.smtp_port, preset.smtp_tls));
    let own = match config.smtp_tls {
        Tls::Implicit => 465,
        Tls::Starttls => 587,
        Tls::None => 25,
    };
    place("smtp", &config.smtp_host, config.smtp_port, (own, config.smtp_tls), preset)
}

/// A provider's host, port and TLS belong together: they are taken as a whole, where no host is set.
fn place(
    kind: &str,
    host: &str,
    port: Option<u16>,
    own: (u16, Tls),
    preset: Option<(&str, u16, Tls)>,
) -> Result<Server, String> {
    let (host, usual_port, tls) = match (host.trim(), preset) {
        ("", Some(preset)) => preset,
        ("", None) => {
            return Err(format!("{kind}_host is not set, and the address's provider is not one of those known"));
        }
        (host, _) => (host, own.0, own.1),
    };
    if tls == Tls::None && !is_loopback(host) {
        return Err(format!(
            "{kind}_tls = \"none\" would send the password in plain to {host}: it is for servers on this machine; \
             use \"implicit\" or \"starttls\""
        ));
    }
    Ok(Server {
        host: host.to_owned(),
        port: port.unwrap_or(usual_port),
        tls,
        username: String::new(),
        login: Login::None,
    })
}

/// The first that is not empty.
fn first<const N: usize>(words: [&str; N]) -> String {
    words.into_iter().map(str::trim).find(|word| !word.is_empty()).unwrap_or_default().to_owned()
}

fn tls_config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let own = ca_file.map(certificates).transpose()?.unwrap_or_default();
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

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: rustls::pki_types::pem::Error| {
        format!("ca_file {} cannot be read as certificates in PEM: {error}", file.display())
    };
    let found = CertificateDer::pem_file_iter(file).map_err(wrong)?.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    if found.is_empty() {
        return Err(format!("ca_file {} holds no certificate in PEM", file.display()));
    }
    Ok(found)
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
    fn ports_and_logins_have_their_usual_values() {
        let account = Account::new(&config(|_| {})).unwrap();
        assert_eq!((account.imap.port, account.smtp.port), (993, 587));
        assert_eq!(
            (account.imap.username.as_str(), account.smtp.username.as_str()),
            (account.address.as_str(), account.address.as_str())
        );
        assert!(matches!(&account.smtp.login, Login::Password(secret) if secret.expose() == "canary"));
        assert!(!format!("{:?} {:?}", account, account.imap).contains("canary"));
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

    type Change = fn(&mut EmailConfig);

    #[test]
    fn what_is_missing_is_named() {
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
