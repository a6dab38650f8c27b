//! Our own check of a sender: DKIM (RFC 6376), SPF (RFC 7208) and DMARC (RFC 7489, RFC 9989).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mail_auth::dmarc::verify::DmarcParameters;
use mail_auth::spf::verify::SpfParameters;
use mail_auth::{
    AuthenticatedMessage, DkimOutput, DkimResult, DmarcOutput, DmarcResult, MessageAuthenticator, SpfOutput, SpfResult,
};

use super::address::{Address, aligned, ascii_domain, related};
use super::received::client;
use crate::email::letter::Letter;

/// All questions about one mail together.
const TIME_LIMIT: Duration = Duration::from_secs(20);
/// Signatures of one mail that are looked at.
const MAX_SIGNATURES: usize = 5;

/// What is known of a mail's From.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    Proven,
    /// And why not.
    Not(String),
    /// It could not be found out; later it may be.
    Unknown(String),
}

/// Asks the domain name system.
#[derive(Default)]
pub struct Verifier {
    /// Made when it is first needed, and again after a failure: the system's settings may have changed.
    authenticator: Mutex<Option<MessageAuthenticator>>,
    /// The names under which the receiving server writes `Received`.
    servers: Vec<String>,
}

impl Verifier {
    pub fn new(servers: Vec<String>) -> Self {
        Self { authenticator: Mutex::default(), servers }
    }

    #[cfg(test)]
    pub fn with(authenticator: MessageAuthenticator, servers: Vec<String>) -> Self {
        Self { authenticator: Mutex::new(Some(authenticator)), servers }
    }

    /// Whether the domain of `from` stands behind the mail. SPF counts only where the mail's way tells surely which
    /// client brought it, see [`client`], else DKIM alone.
    pub async fn check(&self, raw: &[u8], letter: &Letter, from: &Address) -> Proof {
        let authenticator = match self.authenticator() {
            Ok(authenticator) => authenticator,
            Err(reason) => return Proof::Unknown(reason),
        };
        let checked = self.ask(&authenticator, raw, letter, from);
        let proof = tokio::time::timeout(TIME_LIMIT, checked).await.unwrap_or_else(|_| {
            Proof::Unknown(format!("no answer about {} within {} s", from.domain(), TIME_LIMIT.as_secs()))
        });
        if matches!(proof, Proof::Unknown(_)) {
            *self.authenticator.lock().unwrap_or_else(PoisonError::into_inner) = self.kept();
        }
        proof
    }

    /// What is used after a failure.
    #[cfg(not(test))]
    fn kept(&self) -> Option<MessageAuthenticator> {
        None
    }

    /// A scripted one stays.
    #[cfg(test)]
    fn kept(&self) -> Option<MessageAuthenticator> {
        self.authenticator().ok()
    }

    fn authenticator(&self) -> Result<MessageAuthenticator, String> {
        let mut kept = self.authenticator.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(authenticator) = &*kept {
            return Ok(authenticator.clone());
        }
        let made = MessageAuthenticator::new_system_conf()
            .map_err(|error| format!("the system's settings for names cannot be used: {error}"))?;
        Ok(kept.insert(made).clone())
    }

    async fn ask(&self, dns: &MessageAuthenticator, raw: &[u8], letter: &Letter, from: &Address) -> Proof {
        let Some(mut message) = AuthenticatedMessage::parse(raw) else {
            return Proof::Not("its header cannot be read".to_owned());
        };
        let domain = from.domain();
        let [known] = &message.from[..] else {
            return Proof::Not("it has not exactly one From".to_owned());
        };
        if known.rsplit_once('@').and_then(|(_, domain)| ascii_domain(domain)).as_deref() != Some(domain) {
            return Proof::Not("its From can be read in two ways".to_owned());
        }
        // Only what can prove something is asked for: nobody makes us ask his server, or wait for it.
        message.errors.clear();
        message
            .dkim_headers
            .retain(|signature| ascii_domain(&signature.header.d).is_some_and(|signer| related(&signer, domain)));
        message.dkim_headers.truncate(MAX_SIGNATURES);
        let dkim = dns.verify_dkim(&message).await;
        let (mail_from, spf) = self.spf(dns, letter, domain).await;
        let dmarc = dns.verify_dmarc(DmarcParameters::new(&message, &dkim, &mail_from, &spf)).await;
        conclude(domain, &dkim, &mail_from, &spf, &dmarc)
    }

    /// The domain of the envelope's sender, and what SPF says of it; nothing where it could prove nothing.
    async fn spf(&self, dns: &MessageAuthenticator, letter: &Letter, domain: &str) -> (String, SpfOutput) {
        let return_path = letter.header("return-path").next().unwrap_or_default();
        let sender = return_path.trim().trim_start_matches('<').trim_end_matches('>');
        let proves = Address::parse(sender).filter(|sender| related(sender.domain(), domain));
        let (Some(sender), Some(client)) = (proves, client(&letter.headers, &self.servers)) else {
            return (String::new(), SpfOutput::default());
        };
        let server = self.servers.first().map_or("", String::as_str);
        let asked = SpfParameters::verify_mail_from(client.ip, &client.helo, server, sender.as_str());
        let spf = dns.verify_spf(asked).await;
        (sender.domain().to_owned(), spf)
    }
}

/// Where the domain has a DMARC record, that says what is aligned; else [`aligned`] does.
fn conclude(domain: &str, dkim: &[DkimOutput<'_>], mail_from: &str, spf: &SpfOutput, dmarc: &DmarcOutput) -> Proof {
    let by_dmarc = [dmarc.dkim_result(), dmarc.spf_result()];
    if by_dmarc.contains(&&DmarcResult::Pass) {
        return Proof::Proven;
    }
    let failed = by_dmarc.iter().any(|result| matches!(result, DmarcResult::TempError(_)));
    if failed {
        return Proof::Unknown(format!("{domain} could not be asked for its DMARC, DKIM or SPF record"));
    }
    if dmarc.dmarc_record().is_some() {
        return Proof::Not(format!("DMARC of {domain} failed: {}", summary(dkim, spf)));
    }
    let signed = |wanted: fn(&DkimResult) -> bool| {
        dkim.iter().any(|output| {
            let signer = output.signature().and_then(|signature| ascii_domain(&signature.d));
            wanted(output.result()) && signer.is_some_and(|signer| aligned(domain, &signer))
        })
    };
    let sent = aligned(domain, mail_from);
    if signed(|result| *result == DkimResult::Pass) || (sent && spf.result() == SpfResult::Pass) {
        return Proof::Proven;
    }
    if signed(|result| matches!(result, DkimResult::TempError(_))) || (sent && spf.result() == SpfResult::TempError) {
        return Proof::Unknown(format!("{domain} could not be asked for its DKIM or SPF record"));
    }
    Proof::Not(format!("nothing proves that it is from {domain}: {}", summary(dkim, spf)))
}

fn summary(dkim: &[DkimOutput<'_>], spf: &SpfOutput) -> String {
    let signed = dkim.first().map_or_else(|| "none".to_owned(), |output| output.result().to_string());
    format!("DKIM {signed}, SPF {}", spf.result().to_string().to_lowercase())
}
