//! A gateway that reads the assistant's mail, together with its servers.

use std::path::Path;

use crate::support::gateway::Gateway;
use crate::support::invariants::{self, Journal, Witness, wait_settled};
use crate::support::mail::{ASSISTANT, Dovecot, Draft, Mail, Postfix, ReceivedMail, Smtp};
use crate::support::{Model, Setup, until};

/// A gateway that sends through a scripted server, which records its mails.
pub struct ScriptedServers {
    pub gateway: Gateway,
    pub model: Model,
    pub smtp: Smtp,
    pub dovecot: Dovecot,
}

impl ScriptedServers {
    /// Starts only the servers. Returns `None` if there is no Dovecot.
    pub async fn stopped(more: impl FnOnce(Setup) -> Setup) -> Option<Self> {
        let dovecot = Dovecot::start().await?;
        let (model, smtp) = (Model::start().await, Smtp::start().await);
        let gateway = Gateway::new(more(Setup::new().model(&model).email(&dovecot, &smtp)));
        Some(Self { gateway, model, smtp, dovecot })
    }

    /// Starts the gateway and waits until it has read the mailbox, so that later mails are new.
    pub async fn start(more: impl FnOnce(Setup) -> Setup) -> Option<Self> {
        let mut servers = Self::stopped(more).await?;
        servers.gateway.up().await;
        wait_watching(&servers.gateway.database(), 1).await;
        Some(servers)
    }

    /// Delivers a mail to the assistant.
    pub fn receive(&self, draft: &Draft) {
        self.dovecot.deliver(ASSISTANT, draft);
    }

    /// Returns the sent mails, once there are exactly `count` of them and all work is done.
    pub async fn sent(&self, count: usize) -> Vec<ReceivedMail> {
        self.smtp.wait_taken(count).await;
        wait_settled(&self.gateway.database()).await;
        let taken = self.smtp.taken();
        let shown: Vec<_> = taken.iter().map(|taken| (taken.to.clone(), taken.mail.text())).collect();
        assert_eq!(taken.len(), count, "{shown:?}");
        taken
    }

    /// Checks all invariants.
    pub fn check(&self) -> Journal {
        assert_eq!(self.model.refused(), Vec::<String>::new());
        invariants::check(&self.gateway.database(), &Witness::default())
    }
}

/// A gateway like [`ScriptedServers`], whose replies go through a real server into the mailboxes of the senders.
pub struct RealServers {
    pub gateway: Gateway,
    pub model: Model,
    pub postfix: Postfix,
    pub dovecot: Dovecot,
}

impl RealServers {
    /// Starts everything. Returns `None` if the servers are missing.
    pub async fn start(more: impl FnOnce(Setup) -> Setup) -> Option<Self> {
        let dovecot = Dovecot::start().await?;
        let postfix = Postfix::start(&dovecot).await?;
        Self::with(dovecot, postfix, more).await
    }

    /// Starts like [`RealServers::start`], with a mail server that writes no results and keeps the results that a sender wrote.
    pub async fn start_without_results(more: impl FnOnce(Setup) -> Setup) -> Option<Self> {
        let dovecot = Dovecot::start().await?;
        let postfix = Postfix::without_results(&dovecot).await?;
        Self::with(dovecot, postfix, more).await
    }

    async fn with(dovecot: Dovecot, postfix: Postfix, more: impl FnOnce(Setup) -> Setup) -> Option<Self> {
        let model = Model::start().await;
        let gateway = Gateway::start(more(Setup::new().model(&model).email_through_postfix(&dovecot, &postfix))).await;
        wait_watching(&gateway.database(), 1).await;
        Some(Self { gateway, model, postfix, dovecot })
    }

    /// Writes to the assistant and returns the answer to this mail.
    pub async fn ask(&self, draft: &Draft) -> Mail {
        let from = draft.address();
        self.postfix.transfer(&from, &[ASSISTANT], draft).await;
        let id = draft.message_id();
        self.dovecot.wait_mail(&from, "the reply", |mail| mail.header("in-reply-to") == id).await
    }
}

/// Waits until `mailboxes` have been read once, so that it is settled which mails are old.
pub async fn wait_watching(database: &Path, mailboxes: usize) {
    const COUNT: &str = "SELECT count(*) FROM cursors WHERE channel = 'email'";
    until("the mailboxes to be watched", async || {
        let count: usize = invariants::open(database).and_then(|db| db.query_row(COUNT, [], |row| row.get(0))).ok()?;
        (count >= mailboxes).then_some(())
    })
    .await;
}

/// Returns the reasons for skipped mails in order, without those of the first read of the mailbox.
pub fn skip_reasons(database: &Path) -> Vec<String> {
    const REASONS: &str = "SELECT reason FROM skipped_messages WHERE channel = 'email'
        AND reason NOT LIKE '%the first start%' AND reason NOT LIKE 'the remaining mails%' ORDER BY at, position";
    let db = invariants::open(database).expect("the store can be read");
    let mut reasons = db.prepare(REASONS).expect("a table of the store");
    let rows = reasons.query_map([], |row| row.get(0)).expect("a table of the store");
    rows.map(|reason| reason.expect("a text")).collect()
}
