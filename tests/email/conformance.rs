//! The suite that every channel must pass, with a real Dovecot for receiving and a scripted SMTP server for sending.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use daoyou_channels::channel::{Channel, ChannelContext};
use daoyou_channels::conformance::{self, ChannelSubject, InboxVerdict, PeerBehaviour, ScriptedInbox, WriteOutcome};
use daoyou_channels::email::{EmailChannel, EmailConfig, EmailSetup, Tls};
use daoyou_channels::outgoing::OutgoingFiles;
use daoyou_channels::settings::Secret;
use daoyou_channels::text::Language;
use daoyou_channels::trust::{AllowList, TrustLists};

use crate::support::mail::{ASSISTANT, AUTHSERV, Dovecot, Draft, PASSWORD, Smtp, SmtpAnswer};

const ADA: &str = "ada@example.test";
/// How long to wait to see that a stopped channel accepts nothing.
const NOTHING: Duration = Duration::from_secs(1);

struct Mailbox {
    channel: Arc<EmailChannel>,
    dovecot: Dovecot,
    smtp: Smtp,
    inbox: OnceLock<Arc<ScriptedInbox>>,
}

impl Mailbox {
    /// Delivers a mail and waits until the channel has handed it over or skipped it.
    async fn deliver(&self, draft: &Draft) -> WriteOutcome {
        let inbox = self.inbox.get().expect("it was opened");
        // The first read of the mailbox counts too: it determines which mails are old, in one step or two.
        let mut steps = 0;
        while steps == 0 || !inbox.note_of("email", "again", "INBOX").is_empty() {
            inbox.verdict_after(steps).await;
            steps += 1;
        }
        let before = inbox.verdicts().len();
        self.dovecot.deliver(ASSISTANT, draft);
        match tokio::time::timeout(NOTHING * 9, inbox.verdict_after(before)).await {
            Ok(InboxVerdict::Accepted | InboxVerdict::Duplicate) => WriteOutcome::Taken,
            Ok(InboxVerdict::Refused) => {
                // The channel would offer the mail again and delay later ones, so its sender withdraws it.
                self.dovecot.remove(ASSISTANT, draft.message_id());
                WriteOutcome::Refused
            }
            // The channel recognizes a second copy without asking the inbox.
            Ok(InboxVerdict::Skipped) if inbox.skipped().last().is_some_and(|why| why == "it was taken before") => {
                WriteOutcome::Taken
            }
            Ok(InboxVerdict::Skipped) => WriteOutcome::Refused,
            Err(_) => WriteOutcome::Nothing,
        }
    }
}

#[async_trait]
impl ChannelSubject for Mailbox {
    fn channel(&self) -> Arc<dyn Channel> {
        Arc::clone(&self.channel) as _
    }

    async fn open(&self, _context: &ChannelContext, inbox: &Arc<ScriptedInbox>) {
        assert!(self.inbox.set(Arc::clone(inbox)).is_ok(), "opened once");
    }

    async fn write(&self, text: &str, id: Option<&str>) -> WriteOutcome {
        let draft = Draft::new(ADA, "a word", text);
        match id {
            Some(id) => self.deliver(&draft.header("Message-ID", &format!("<{id}@people.test>"))).await,
            None => self.deliver(&draft).await,
        }
    }

    async fn write_as_unlisted_sender(&self, text: &str) -> Option<WriteOutcome> {
        Some(self.deliver(&Draft::new("mallory@other.test", "a word", text)).await)
    }

    fn has_ids(&self) -> bool {
        true
    }

    fn kept_id(&self, id: &str) -> String {
        format!("<{id}@people.test> {ADA}")
    }

    async fn set_peer_behaviour(&self, side: PeerBehaviour) -> Option<String> {
        // The replies to earlier messages arrive first and do not count here.
        self.smtp.wait_taken(self.inbox.get().expect("it was opened").accepted().len()).await;
        match side {
            PeerBehaviour::Takes => {}
            PeerBehaviour::RefusesForNow => self.smtp.then([SmtpAnswer::Recipient("450 4.2.0 greylisted")]),
            PeerBehaviour::RefusesForGood => self.smtp.then([SmtpAnswer::Recipient("550 5.1.1 no such user")]),
            PeerBehaviour::BreaksOff => self.smtp.then([SmtpAnswer::Drop]),
            PeerBehaviour::Away => return None,
        }
        Some(ADA.to_owned())
    }

    async fn received(&self) -> Vec<String> {
        self.smtp.taken().iter().map(|taken| taken.mail.text()).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_email_channel_passes_the_conformance_suite() {
    let Some(dovecot) = Dovecot::start().await else { return };
    rustls::crypto::ring::default_provider().install_default().ok();
    let smtp = Smtp::start().await;
    let config = EmailConfig {
        address: ASSISTANT.to_owned(),
        allow_from: AllowList::new(["@example.test"]),
        imap_host: "127.0.0.1".to_owned(),
        imap_port: Some(dovecot.imaps_port()),
        imap_password: Some(Secret::new(PASSWORD)),
        ca_file: Some(dovecot.ca_file().to_owned()),
        authserv_id: AUTHSERV.to_owned(),
        smtp_host: "127.0.0.1".to_owned(),
        smtp_port: Some(smtp.port()),
        smtp_tls: Tls::None,
        ..EmailConfig::default()
    };
    let workspace = tempfile::tempdir().unwrap();
    let setup = EmailSetup {
        workspace: workspace.path(),
        outgoing: OutgoingFiles::of_home(workspace.path()),
        lists: TrustLists::default(),
        language: Language::En,
    };
    let channel = Arc::new(EmailChannel::new(config, setup).unwrap());
    conformance::run(&Mailbox { channel, dovecot, smtp, inbox: OnceLock::new() }).await;
}
