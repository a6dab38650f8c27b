//! Validates the settings of this channel.

use std::net::IpAddr;

use super::account::is_loopback;
use super::address::{is_address, is_domain};
use super::certificate::read_ca_file;
use super::config::{DoneAction, EmailConfig, Tls, TrustMethod};
use super::presets::{Preset, preset_for_address};
use crate::settings::{ByteSize, HumanDuration, SettingFault, quoted};
use crate::trust::AllowList;

/// The maximum number of mailboxes. Each mailbox needs a connection, and providers allow about ten to fifteen for one account.
const MAX_MAILBOXES: usize = 10;
const MAX_NAME_CHARS: usize = 200;
const POLL: (HumanDuration, HumanDuration) = (HumanDuration::from_secs(1), HumanDuration::from_secs(86_400));
/// The permitted range of `max_size`. A mail is in memory while it is read.
const SIZE: (ByteSize, ByteSize) = (ByteSize(1_000), ByteSize(100_000_000));
const MAX_RETRIES: usize = 50;
const LONGEST_WAIT: HumanDuration = HumanDuration::from_secs(7 * 86_400);
const MAX_COMMAND_WORDS: usize = 100;

const SENDER: &str = "addresses such as \"ann@example.org\", and \"@example.org\" for all of a domain";
const SECRET: &str = "\"env:NAME\", \"file:PATH\", \"cred:NAME\", or the password itself; or set token_command";

impl EmailConfig {
    /// Returns all invalid settings of an enabled channel.
    pub fn faults(&self) -> Vec<SettingFault> {
        let mut validator = SettingsValidator { config: self, faults: Vec::new() };
        if self.enabled {
            validator.account();
            validator.servers();
            validator.login();
            validator.mailboxes();
            validator.senders();
            validator.bounds();
        }
        validator.faults
    }

    /// Returns valid settings that are probably mistakes, as `(key, sentence)`. `owners` are the owner's addresses.
    pub fn warnings(&self, owners: &[&str]) -> Vec<(&'static str, String)> {
        let mut warnings = Vec::new();
        if !self.enabled {
            return warnings;
        }
        if let Some(reason) = self.inactive_reason() {
            warnings.push(("consent_granted", reason.to_owned()));
        }
        if self.allow_from.is_empty() {
            let sentence = "it is empty, so nobody's mail is answered: add addresses or an \"@domain\"";
            warnings.push(("allow_from", sentence.to_owned()));
        }
        for owner in owners.iter().filter(|owner| !self.allow_from.is_empty() && !covers(&self.allow_from, owner)) {
            let sentence =
                format!("{owner:?} is in owner.identities and not in this list: mail from there is not answered");
            warnings.push(("allow_from", sentence));
        }
        for entry in self.trusted_from.entries().filter(|entry| !covers(&self.allow_from, entry)) {
            let sentence = format!("{entry:?} is not in allow_from: mail from there is not answered");
            warnings.push(("trusted_from", sentence));
        }
        if self.trust == TrustMethod::None {
            let sentence =
                "\"none\" believes what anybody writes as From; all words are treated as a stranger's, the owner's too";
            warnings.push(("trust", sentence.to_owned()));
        }
        warnings
    }

    /// Returns the reason why an enabled channel does not run; `None` if it runs.
    pub fn inactive_reason(&self) -> Option<&'static str> {
        (self.enabled && !self.consent_granted).then_some(
            "the channel is inactive until consent_granted = true: the account's owner agrees that its mail is read and answered",
        )
    }

    /// Returns the preset of the account's provider, if it is known.
    pub fn preset(&self) -> Option<&'static Preset> {
        let by_host = || super::presets::preset_for_host(&self.imap_host);
        if self.imap_host.trim().is_empty() { preset_for_address(&self.address) } else { by_host() }
    }
}

struct SettingsValidator<'a> {
    config: &'a EmailConfig,
    faults: Vec<SettingFault>,
}

impl SettingsValidator<'_> {
    fn fault(&mut self, key: &'static str, with: &'static [&'static str], wrong: String, allowed: impl Into<String>) {
        self.faults.push(SettingFault::new(&[&[key], with].concat(), wrong, allowed));
    }

    fn account(&mut self) {
        let config = self.config;
        if config.address.trim().is_empty() {
            let wrong = "it is not set, and there is no mail without an account".to_owned();
            self.fault("address", &[], wrong, "the account's own address, such as \"assistant@example.org\"");
        } else if !is_address(config.address.trim()) {
            let wrong = format!("{} is not an address", quoted(&config.address));
            self.fault("address", &[], wrong, "one address without a name, such as \"assistant@example.org\"");
        }
        if config.name.chars().any(char::is_control) || config.name.chars().count() > MAX_NAME_CHARS {
            let wrong = format!("{} is not valid in the header of a mail", quoted(&config.name));
            self.fault("name", &[], wrong, format!("one line of at most {MAX_NAME_CHARS} characters"));
        }
    }

    fn servers(&mut self) {
        let config = self.config;
        let (imap, smtp) = ((config.imap_host.as_str(), config.imap_tls), (config.smtp_host.as_str(), config.smtp_tls));
        self.server(["imap_host", "imap_tls"], imap, |preset| preset.imap.host);
        self.server(["smtp_host", "smtp_tls"], smtp, |preset| preset.smtp.host);
        for (key, port) in [("imap_port", config.imap_port), ("smtp_port", config.smtp_port)] {
            if port == Some(0) {
                self.fault(key, &[], "0 is not a port".to_owned(), "a port from 1 to 65535, or leave it out");
            }
        }
        if let Some(file) = &config.ca_file
            && let Err(wrong) = read_ca_file(file)
        {
            self.fault("ca_file", &[], wrong, "the path of a PEM file with one or more certificates");
        }
    }

    fn server(&mut self, [key, tls_key]: [&'static str; 2], (host, tls): (&str, Tls), of: fn(&Preset) -> &'static str) {
        const WITH: &[&str] = &["address"];
        let host = host.trim();
        if host.is_empty() {
            let domain = self.config.address.rsplit_once('@').map(|(_, domain)| domain.trim());
            if let (Some(domain), None) = (domain, preset_for_address(&self.config.address)) {
                let wrong = format!("it is not set, and the mail servers of {} are not known here", quoted(domain));
                let [google, microsoft] =
                    ["x@gmail.com", "x@onmicrosoft.com"].map(|address| preset_for_address(address).map_or("", of));
                let allowed = format!(
                    "the server's name as the provider says; where Google keeps the domain's mail it is {google:?}, \
                     where Microsoft does {microsoft:?}"
                );
                self.fault(key, WITH, wrong, allowed);
            }
            // The preset of a server includes its TLS mode.
            return;
        }
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if !is_domain(host) && bare.parse::<IpAddr>().is_err() {
            let wrong = format!("{} is not the name of a server", quoted(host));
            self.fault(key, &[], wrong, "a name or an IP address alone; the ports are set in imap_port and smtp_port");
        } else if tls == Tls::None && !is_loopback(host) {
            let wrong = format!("\"none\" would send the password in plain to {host}");
            let allowed = "\"implicit\" or \"starttls\"; \"none\" is for servers on this machine";
            let with: &[&str] = if key == "imap_host" { &["imap_host"] } else { &["smtp_host"] };
            self.fault(tls_key, with, wrong, allowed);
        }
    }

    fn login(&mut self) {
        let config = self.config;
        if let Some(command) = &config.token_command
            && (command.first().is_none_or(|program| program.trim().is_empty()) || command.len() > MAX_COMMAND_WORDS)
        {
            let allowed = "a program and its arguments, as a list: [\"/path/to/program\", \"me\"]";
            self.fault("token_command", &[], "it names no program".to_owned(), allowed);
        }
        if config.imap_password.is_none() && config.token_command.is_none() {
            let advice = config.preset().map(|preset| format!(". {}: {}", preset.name, preset.advice_en));
            let wrong = "neither it nor token_command is set, and nobody can log in without".to_owned();
            self.fault("imap_password", &["token_command"], wrong, format!("{SECRET}{}", advice.unwrap_or_default()));
        }
    }

    fn mailboxes(&mut self) {
        let config = self.config;
        let names = config.mailbox.names();
        let wrong = if names.is_empty() || names.iter().any(|name| !is_mailbox(name)) {
            Some("a mailbox without a name".to_owned())
        } else if names.len() > MAX_MAILBOXES {
            Some(format!("{} mailboxes are too many, because each needs a connection", names.len()))
        } else {
            let twice = names
                .iter()
                .enumerate()
                .find(|(at, name)| names[..*at].iter().any(|other| is_same_mailbox(other, name)));
            twice.map(|(_, name)| format!("{} is listed twice", quoted(name)))
        };
        if let Some(wrong) = wrong {
            let allowed = format!("\"INBOX\", or a list of up to {MAX_MAILBOXES} mailboxes, each once");
            self.fault("mailbox", &[], wrong, allowed);
        }
        let is_read = |name: &str| names.iter().any(|other| is_same_mailbox(other, name));
        if config.done == DoneAction::Move && !is_mailbox(&config.move_to) {
            let wrong = "it is not set, and done = \"move\" needs it".to_owned();
            self.fault("move_to", &["done"], wrong, "the mailbox that accepted mail goes to, such as \"Answered\"");
        }
        for (key, name) in [("move_to", &config.move_to), ("sent_mailbox", &config.sent_mailbox)] {
            if !name.is_empty() && is_read(name) {
                let wrong = format!("{} is one of the mailboxes that are read", quoted(name));
                self.fault(key, &["mailbox"], wrong, "another mailbox");
            }
        }
    }

    fn senders(&mut self) {
        let config = self.config;
        self.list("allow_from", &config.allow_from, &format!("{SENDER}; \"*\" for everybody"), |entry| entry == "*");
        self.list("trusted_from", &config.trusted_from, SENDER, |_| false);
        let has_ids = config.authserv_ids().next().is_some() && config.authserv_ids().all(is_authserv_id);
        if config.trust == TrustMethod::Authserv && !has_ids {
            let usual = config.preset().map(|preset| preset.authserv_id).filter(|id| !id.is_empty());
            let hint = usual.map(|id| format!(" ({id:?} at this provider)")).unwrap_or_default();
            let wrong = match config.authserv_id.trim() {
                "" => "it is not set, and trust = \"authserv\" needs it".to_owned(),
                id => format!("{} is not such a name", quoted(id)),
            };
            let allowed = format!(
                "the first word of the topmost Authentication-Results in the header of any mail that this account \
                 got{hint}; where there is none, or it changes from mail to mail, set trust = \"verify\""
            );
            self.fault("authserv_id", &["trust"], wrong, allowed);
        }
        if config.trust != TrustMethod::None {
            return;
        }
        if config.allow_from.entries().any(|entry| entry == "*") {
            let wrong = "\"*\" with trust = \"none\" lets everybody in under any name".to_owned();
            self.fault("allow_from", &["trust"], wrong, format!("{SENDER}; or trust = \"authserv\" or \"verify\""));
        }
        if !config.trusted_from.is_empty() {
            let wrong = "with trust = \"none\" nobody's address is proven, so nobody can be trusted".to_owned();
            self.fault("trusted_from", &["trust"], wrong, "an empty list; or trust = \"authserv\" or \"verify\"");
        }
    }

    fn list(&mut self, key: &'static str, list: &AllowList, allowed: &str, also: fn(&str) -> bool) {
        let good = |entry: &str| is_address(entry) || entry.strip_prefix('@').is_some_and(is_domain) || also(entry);
        for (number, entry) in (1..).zip(list.entries()).filter(|(_, entry)| !good(entry)) {
            self.fault(key, &[], format!("entry {number} is {}", quoted(entry)), allowed);
        }
    }

    fn bounds(&mut self) {
        let config = self.config;
        if config.poll_interval < POLL.0 || config.poll_interval > POLL.1 {
            let wrong = format!("{} is out of range", config.poll_interval);
            self.fault("poll_interval", &[], wrong, format!("a duration from \"{}\" to \"{}\"", POLL.0, POLL.1));
        }
        if config.max_size < SIZE.0 || config.max_size > SIZE.1 {
            let wrong = format!("{} is out of range", config.max_size);
            self.fault("max_size", &[], wrong, format!("a size from \"{}\" to \"{}\"", SIZE.0, SIZE.1));
        }
        if config.retry.len() > MAX_RETRIES || config.retry.iter().any(|wait| *wait > LONGEST_WAIT) {
            let wrong = "it has too many waits, or too long ones".to_owned();
            self.fault("retry", &[], wrong, format!("up to {MAX_RETRIES} waits, each of at most \"{LONGEST_WAIT}\""));
        }
    }
}

/// Returns true if a list accepts `sender`, which may also be an `@domain`.
fn covers(list: &AllowList, sender: &str) -> bool {
    let domain = sender.rfind('@').map(|at| &sender[at..]);
    let names = |name: &str| list.entries().any(|entry| entry.eq_ignore_ascii_case(name));
    list.allows_everyone() || names(sender) || domain.is_some_and(names)
}

/// Returns true if two names are the same mailbox; the case of INBOX does not matter (RFC 3501, section 5.1).
fn is_same_mailbox(one: &str, other: &str) -> bool {
    one == other || (one.eq_ignore_ascii_case("INBOX") && other.eq_ignore_ascii_case("INBOX"))
}

fn is_mailbox(name: &str) -> bool {
    !name.trim().is_empty() && !name.chars().any(char::is_control) && name.chars().count() <= MAX_NAME_CHARS
}

/// Returns true for a single word, the form of an authserv-id (RFC 8601, section 2.5).
fn is_authserv_id(text: &str) -> bool {
    text.len() <= 255 && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == ';')
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
