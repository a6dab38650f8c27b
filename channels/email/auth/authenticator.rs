//! Decides whether the sender of a mail is accepted.

use super::authserv::{TrustedAuthserv, check_authserv};
use super::automatic::automatic_reason;
use super::unproven_content::{ProofMethod, unproven_content};
use super::verifier::{DnsVerifier, SenderProof};
use crate::email::address::{AddressList, EmailAddress};
use crate::email::config::{EmailConfig, NAME, TrustMethod, UnlistedSenderPolicy};
use crate::email::mail::ParsedMail;
use crate::email::presets::preset_for_address;
use crate::message::Trust;
use crate::trust::{Author, SenderListing, SenderLists, TrustLists, trust_of};

/// The decision about the sender of a mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SenderDecision {
    /// The sender may talk to the agent.
    Accept { trust: Trust },
    /// Ignore the mail and log the reason.
    Ignore { reason: String },
    /// Tell the sender, whose address is proven, that the gateway does not read the mail.
    Refuse { reason: String },
    /// The sender cannot be checked now.
    Defer { sender: String, reason: String },
}

/// Decides whose mail is accepted. A proof concerns a domain and not a person: that Ann wrote a mail of `ann@example.org`
/// is the claim of `example.org`.
pub struct SenderAuthenticator {
    own: Option<EmailAddress>,
    allowed: AddressList,
    lists: TrustLists,
    trust: TrustMethod,
    authserv: TrustedAuthserv,
    strangers: UnlistedSenderPolicy,
    verifier: DnsVerifier,
}

impl SenderAuthenticator {
    /// Creates the authenticator. `lists` name the trusted senders. Even the owner's mail is accepted only through `allow_from`.
    pub fn new(config: &EmailConfig, lists: TrustLists) -> Self {
        let authserv = TrustedAuthserv::of(config);
        Self {
            own: EmailAddress::parse(&config.address),
            allowed: AddressList::new(&config.allow_from),
            lists,
            trust: config.trust,
            strangers: config.strangers,
            verifier: DnsVerifier::new(authserv.ids.clone()),
            authserv,
        }
    }

    #[cfg(test)]
    pub fn verified_by(self, verifier: DnsVerifier) -> Self {
        Self { verifier, ..self }
    }

    /// Decides about a mail; `raw` is the whole mail. Automatic mail and mail of unknown senders are ignored before any DNS query.
    pub async fn authenticate(&self, raw: &[u8], mail: &ParsedMail) -> SenderDecision {
        let (sender, is_allowed) = match self.candidate(mail) {
            Ok(found) => found,
            Err(reason) => return SenderDecision::Ignore { reason },
        };
        let proof = match self.trust {
            TrustMethod::Authserv => self.prove_by_authserv(mail, &sender),
            TrustMethod::Verify => {
                let proof = self.verifier.verify(raw, mail, &sender).await;
                tracing::debug!(%sender, ?proof, "a sender was checked");
                proof
            }
            TrustMethod::None if is_allowed => return self.accept(mail, &sender, ProofMethod::Signature),
            // The named person may not have written the mail, so the gateway sends nothing to that address.
            TrustMethod::None => return SenderDecision::Ignore { reason: unlisted_reason(&sender) },
        };
        self.decide(mail, &sender, is_allowed, proof)
    }

    /// Decides about a mail by its header alone. Without the body only the receiving server's results count, because a DKIM
    /// signature covers the body too.
    pub fn authenticate_header(&self, mail: &ParsedMail) -> SenderDecision {
        let (sender, is_allowed) = match self.candidate(mail) {
            Ok(found) => found,
            Err(reason) => return SenderDecision::Ignore { reason },
        };
        match self.trust {
            TrustMethod::Authserv => {
                let proof = self.prove_by_authserv(mail, &sender);
                self.decide(mail, &sender, is_allowed, proof)
            }
            TrustMethod::Verify | TrustMethod::None if is_allowed => {
                let reason = "only the whole mail could prove its sender".to_owned();
                SenderDecision::Defer { sender: sender.to_string(), reason }
            }
            TrustMethod::Verify | TrustMethod::None => SenderDecision::Ignore { reason: unlisted_reason(&sender) },
        }
    }

    /// Returns the single address in From, in the form in which addresses are compared.
    pub fn sender(mail: &ParsedMail) -> Option<EmailAddress> {
        match (&mail.from[..], mail.header("from").count()) {
            ([from], 1) => EmailAddress::parse(&from.address),
            _ => None,
        }
    }

    /// Returns true if the configured check proves the addresses of accepted senders.
    pub fn proves(&self) -> bool {
        self.trust != TrustMethod::None
    }

    /// Returns true if the reply to `sender` may go to `other`, an address that only the mail's Reply-To names. No server
    /// proves that field; anybody may have added it to a proven mail. Addresses in `allow_from` may get the reply. If the
    /// sender is proven, addresses of the sender's domain may get it too, unless the domain is a provider's, where anybody
    /// can have an address.
    pub fn may_answer_to(&self, sender: &EmailAddress, other: &EmailAddress) -> bool {
        let is_same_domain = sender.domain() == other.domain() && preset_for_address(sender.as_str()).is_none();
        self.allowed.names(other) || (self.proves() && is_same_domain)
    }

    /// Returns the sender of a mail that a person may have written, and whether the sender is allowed. The error is the
    /// reason to ignore the mail.
    fn candidate(&self, mail: &ParsedMail) -> Result<(EmailAddress, bool), String> {
        let sender = Self::sender(mail);
        if let Some(reason) = automatic_reason(mail, sender.as_ref(), self.own.as_ref()) {
            return Err(reason);
        }
        let Some(sender) = sender else {
            return Err(match &mail.from[..] {
                [from] if mail.header("from").count() == 1 => {
                    format!("its address {:?} is one that daoyou cannot answer", from.address)
                }
                // RFC 5322, section 3.6.2 permits several addresses, but the author is then unknown.
                _ => "it has not exactly one From with one address".to_owned(),
            });
        };
        let is_allowed = self.allowed.contains(&sender);
        if !is_allowed && self.strangers == UnlistedSenderPolicy::Ignore {
            return Err(unlisted_reason(&sender));
        }
        Ok((sender, is_allowed))
    }

    fn prove_by_authserv(&self, mail: &ParsedMail, sender: &EmailAddress) -> SenderProof {
        match check_authserv(&mail.headers, &self.authserv, sender.domain()) {
            Ok(by) => SenderProof::Proven(by),
            Err(reason) => SenderProof::Unproven(reason),
        }
    }

    fn decide(&self, mail: &ParsedMail, sender: &EmailAddress, is_allowed: bool, proof: SenderProof) -> SenderDecision {
        match proof {
            SenderProof::Proven(by) if is_allowed => self.accept(mail, sender, by),
            SenderProof::Proven(_) => SenderDecision::Refuse { reason: unlisted_reason(sender) },
            SenderProof::Unknown(reason) if is_allowed => SenderDecision::Defer { sender: sender.to_string(), reason },
            SenderProof::Unknown(reason) | SenderProof::Unproven(reason) => {
                SenderDecision::Ignore { reason: format!("{sender} is not proven to be its sender: {reason}") }
            }
        }
    }

    fn accept(&self, mail: &ParsedMail, sender: &EmailAddress, proven_by: ProofMethod) -> SenderDecision {
        let unproven = unproven_content(mail, sender, proven_by);
        if let Some(reason) = &unproven {
            tracing::info!(%sender, reason, "the content of a mail is untrusted");
        }
        let author = if unproven.is_some() { Author::Unproven } else { self.trust.author() };
        SenderDecision::Accept { trust: trust_of(author, self.listing(sender)) }
    }

    fn listing(&self, sender: &EmailAddress) -> SenderListing {
        listing_of_address(&self.lists.of(NAME), sender)
    }
}

/// Returns how the lists of this channel name a sender's address.
pub fn listing_of(lists: &SenderLists, sender: &str) -> SenderListing {
    EmailAddress::parse(sender).map_or(SenderListing::Unlisted, |sender| listing_of_address(lists, &sender))
}

/// Returns the configured listing of an address. The lists may contain whole domains.
fn listing_of_address(lists: &SenderLists, sender: &EmailAddress) -> SenderListing {
    if lists.owners.iter().filter_map(|owner| EmailAddress::parse(owner)).any(|owner| owner == *sender) {
        SenderListing::Owner
    } else if AddressList::new(&lists.trusted).names(sender) {
        SenderListing::Listed
    } else {
        SenderListing::Unlisted
    }
}

fn unlisted_reason(sender: &EmailAddress) -> String {
    format!("{sender} is not in allow_from")
}
