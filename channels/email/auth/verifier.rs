//! The gateway's own check of a sender: DKIM (RFC 6376), SPF (RFC 7208) and DMARC (RFC 7489, RFC 9989).

use std::time::Duration;

use mail_auth::common::cache::NoCache;
use mail_auth::common::verify::{DomainKey, VerifySignature};
use mail_auth::dkim::Signature;
use mail_auth::dmarc::verify::DmarcParameters;
use mail_auth::spf::verify::SpfParameters;
use mail_auth::{
    AuthenticatedMessage, DkimOutput, DkimResult, DmarcOutput, DmarcResult, MessageAuthenticator, SpfOutput, SpfResult,
    Txt,
};
use parking_lot::Mutex;

use super::alignment::{aligned, related};
use super::received::smtp_peer;
use super::unproven_content::{ProofMethod, SINGLE_FIELDS};
use crate::email::address::{EmailAddress, ascii_domain};
use crate::email::mail::ParsedMail;

/// The time limit for all DNS queries about one mail.
const TIME_LIMIT: Duration = Duration::from_secs(20);
/// The maximum number of signatures checked in one mail.
const MAX_SIGNATURES: usize = 5;
/// The flag `t=y` of a key record (RFC 6376, section 3.6.1). mail-auth reads it and does not name it.
const TESTING: u64 = 0x10;

/// The result of checking a mail's From.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SenderProof {
    Proven(ProofMethod),
    /// The check failed for the given reason.
    Unproven(String),
    /// The check was not possible for the given reason; it may succeed later.
    Unknown(String),
}

/// Checks senders by DNS.
#[derive(Default)]
pub struct DnsVerifier {
    /// Created on first use, and again after a failure, because the system's settings may have changed.
    authenticator: Mutex<Option<MessageAuthenticator>>,
    /// The names that the receiving server uses in `Received`.
    servers: Vec<String>,
}

impl DnsVerifier {
    pub fn new(servers: Vec<String>) -> Self {
        Self { authenticator: Mutex::default(), servers }
    }

    #[cfg(test)]
    pub fn with(authenticator: MessageAuthenticator, servers: Vec<String>) -> Self {
        Self { authenticator: Mutex::new(Some(authenticator)), servers }
    }

    /// Checks whether the domain of `from` authorized the mail. SPF counts only if the header names the client
    /// unambiguously (see [`smtp_peer`]); otherwise only DKIM counts.
    pub async fn verify(&self, raw: &[u8], mail: &ParsedMail, from: &EmailAddress) -> SenderProof {
        let authenticator = match self.authenticator() {
            Ok(authenticator) => authenticator,
            Err(reason) => return SenderProof::Unknown(reason),
        };
        let checked = self.query(&authenticator, raw, mail, from);
        let proof = tokio::time::timeout(TIME_LIMIT, checked).await.unwrap_or_else(|_| {
            SenderProof::Unknown(format!("no answer about {} within {} s", from.domain(), TIME_LIMIT.as_secs()))
        });
        // The next check creates a new authenticator. Tests keep their scripted one.
        if matches!(proof, SenderProof::Unknown(_)) && !cfg!(test) {
            *self.authenticator.lock() = None;
        }
        proof
    }

    fn authenticator(&self) -> Result<MessageAuthenticator, String> {
        let mut cached = self.authenticator.lock();
        if let Some(authenticator) = &*cached {
            return Ok(authenticator.clone());
        }
        let made = MessageAuthenticator::new_system_conf()
            .map_err(|error| format!("the system's settings for names cannot be used: {error}"))?;
        Ok(cached.insert(made).clone())
    }

    async fn query(
        &self,
        dns: &MessageAuthenticator,
        raw: &[u8],
        mail: &ParsedMail,
        from: &EmailAddress,
    ) -> SenderProof {
        let Some(mut message) = AuthenticatedMessage::parse(raw) else {
            return SenderProof::Unproven("its header cannot be read".to_owned());
        };
        let domain = from.domain();
        let [known] = &message.from[..] else {
            return SenderProof::Unproven("it has not exactly one From".to_owned());
        };
        if known.rsplit_once('@').and_then(|(_, domain)| ascii_domain(domain)).as_deref() != Some(domain) {
            return SenderProof::Unproven("its From can be read in two ways".to_owned());
        }
        if !parsers_agree(&message, mail) {
            return SenderProof::Unproven("its header can be read in two ways".to_owned());
        }
        // Query only domains that can prove something, so that no sender can make the gateway query the sender's name
        // server or wait for it.
        message.errors.clear();
        let is_useful =
            |signature: &Signature| ascii_domain(&signature.d).is_some_and(|signer| related(&signer, domain));
        let signatures = std::mem::take(&mut message.dkim_headers);
        for signature in signatures.into_iter().filter(|found| is_useful(&found.header)).take(MAX_SIGNATURES) {
            // A mail with such a signature counts as unsigned.
            if !has_test_key(dns, &signature.header).await {
                message.dkim_headers.push(signature);
            }
        }
        let dkim = dns.verify_dkim(&message).await;
        let (mail_from, spf) = self.spf(dns, mail, domain).await;
        let dmarc = dns.verify_dmarc(DmarcParameters::new(&message, &dkim, &mail_from, &spf)).await;
        conclude(domain, &dkim, &mail_from, &spf, &dmarc)
    }

    /// Returns the domain of the envelope sender and the result of SPF; both empty if SPF could prove nothing.
    async fn spf(&self, dns: &MessageAuthenticator, mail: &ParsedMail, domain: &str) -> (String, SpfOutput) {
        let return_path = mail.header("return-path").next().unwrap_or_default();
        let sender = return_path.trim().trim_start_matches('<').trim_end_matches('>');
        let proves = EmailAddress::parse(sender).filter(|sender| related(sender.domain(), domain));
        let (Some(sender), Some(peer)) = (proves, smtp_peer(&mail.headers, &self.servers)) else {
            return (String::new(), SpfOutput::default());
        };
        let server = self.servers.first().map_or("", String::as_str);
        let query = SpfParameters::verify_mail_from(peer.ip, &peer.helo, server, sender.as_str());
        let spf = dns.verify_spf(query).await;
        (sender.domain().to_owned(), spf)
    }
}

/// Returns true if the program that checks signatures found the same single fields and the same end of the header as the
/// parser of this program. Otherwise a signature could cover another text than the one that is read.
fn parsers_agree(message: &AuthenticatedMessage<'_>, mail: &ParsedMail) -> bool {
    let header = message.raw_headers();
    let is_whole = message.raw_body().is_empty() || header.ends_with(b"\n\r\n") || header.ends_with(b"\n\n");
    let counted = |name: &str| {
        let names = message.raw_parsed_headers().iter().map(|(name, _)| *name);
        names.filter(|known| known.eq_ignore_ascii_case(name.as_bytes())).count()
    };
    is_whole && SINGLE_FIELDS.iter().all(|name| counted(name) == mail.header(name).count())
}

/// Returns true if the domain only tests this signature. A failing query is repeated by the check, which then reports it.
async fn has_test_key(dns: &MessageAuthenticator, signature: &Signature) -> bool {
    let key = dns.txt_lookup::<DomainKey>(signature.domain_key(), None::<&NoCache<Box<str>, Txt>>).await;
    key.is_ok_and(|key| key.has_flag(TESTING))
}

/// Decides by the domain's DMARC record if it has one, otherwise by [`aligned`].
fn conclude(
    domain: &str,
    dkim: &[DkimOutput<'_>],
    mail_from: &str,
    spf: &SpfOutput,
    dmarc: &DmarcOutput,
) -> SenderProof {
    let by_dmarc = [(dmarc.spf_result(), ProofMethod::Server), (dmarc.dkim_result(), ProofMethod::Signature)];
    if let Some((_, by)) = by_dmarc.iter().find(|(result, _)| **result == DmarcResult::Pass) {
        return SenderProof::Proven(*by);
    }
    if by_dmarc.iter().any(|(result, _)| matches!(result, DmarcResult::TempError(_))) {
        return SenderProof::Unknown(format!("{domain} could not be asked for its DMARC, DKIM or SPF record"));
    }
    if dmarc.dmarc_record().is_some() {
        return SenderProof::Unproven(format!("DMARC of {domain} failed: {}", summary(dkim, spf)));
    }
    let signed = |wanted: fn(&DkimResult) -> bool| {
        dkim.iter().any(|output| {
            let signer = output.signature().and_then(|signature| ascii_domain(&signature.d));
            wanted(output.result()) && signer.is_some_and(|signer| aligned(domain, &signer))
        })
    };
    let sent = aligned(domain, mail_from);
    if sent && spf.result() == SpfResult::Pass {
        return SenderProof::Proven(ProofMethod::Server);
    }
    if signed(|result| *result == DkimResult::Pass) {
        return SenderProof::Proven(ProofMethod::Signature);
    }
    if signed(|result| matches!(result, DkimResult::TempError(_))) || (sent && spf.result() == SpfResult::TempError) {
        return SenderProof::Unknown(format!("{domain} could not be asked for its DKIM or SPF record"));
    }
    SenderProof::Unproven(format!("nothing proves that it is from {domain}: {}", summary(dkim, spf)))
}

fn summary(dkim: &[DkimOutput<'_>], spf: &SpfOutput) -> String {
    let signed = dkim.first().map_or_else(|| "none".to_owned(), |output| output.result().to_string());
    format!("DKIM {signed}, SPF {}", spf.result().to_string().to_lowercase())
}
