//! Operations with a separate connection: finding a mail, storing a copy, probing the account.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::error::ImapError;
use super::mailbox_name::escape;
use super::session::ImapSession;
use super::settings::ImapTimings;
use super::stream::ConnectionCloser;
use crate::email::account::Account;
use crate::email::config::Tls;
use crate::finding::Finding;

/// The maximum number of search results that are checked in one mailbox. Some servers ignore the query and list all mails.
const MAX_CANDIDATES: usize = 50;

/// Returns the header of the mail with this Message-ID if one of `mailboxes` contains it. Changes nothing on the server.
///
/// # Errors
/// The mailboxes cannot be searched; the error is a sentence.
pub async fn find(account: &Arc<Account>, mailboxes: &[String], message_id: &str) -> Result<Option<Vec<u8>>, String> {
    let (mailboxes, id) = (mailboxes.to_vec(), message_id.to_owned());
    let query = format!("HEADER Message-ID \"{}\"", escape(message_id));
    let search = move |account: &Account, handle: &Handle| -> Result<Option<Vec<u8>>, ImapError> {
        let mut session = connect(account, handle)?;
        for mailbox in &mailboxes {
            session.examine(mailbox)?;
            for uid in session.search(&query)?.into_iter().rev().take(MAX_CANDIDATES) {
                let header = session.fetch_header(uid)?;
                if let Some(header) = header.filter(|header| String::from_utf8_lossy(header).contains(&id)) {
                    return Ok(Some(header));
                }
            }
        }
        Ok(None)
    };
    let result = run_blocking(account, search).await.ok_or("the search was stopped by a fault")?;
    result.map_err(|error| error.to_string())
}

/// Stores `mail` in `mailbox`, marked as read. Creates the mailbox if it is missing.
///
/// # Errors
/// The mail was not stored, or the outcome is unknown; the error is a sentence.
pub async fn append(account: &Arc<Account>, mailbox: &str, mail: Vec<u8>) -> Result<(), String> {
    let name = mailbox.to_owned();
    let store = move |account: &Account, handle: &Handle| connect(account, handle)?.append(&name, &mail);
    let result = run_blocking(account, store).await.ok_or("the copy was stopped by a fault")?;
    result.map_err(|error| format!("no copy in {mailbox}: {error}"))
}

/// Checks that `mailbox` exists. Creates it if it is missing, as the first mail for it would.
///
/// # Errors
/// The server refuses the mailbox; the error is a sentence.
pub async fn ensure_mailbox(account: &Arc<Account>, mailbox: &str) -> Result<(), String> {
    let name = mailbox.to_owned();
    let ensure = move |account: &Account, handle: &Handle| connect(account, handle)?.ensure(&name);
    let result = run_blocking(account, ensure).await.ok_or("the check was stopped by a fault")?;
    result.map_err(|error| error.to_string())
}

/// Connects, logs in, and opens each of `mailboxes` read-only.
pub async fn probe(account: &Arc<Account>, mailboxes: &[String]) -> Vec<Finding> {
    let mailboxes = mailboxes.to_vec();
    run_blocking(account, move |account, handle| probe_mailboxes(account, &mailboxes, handle))
        .await
        .unwrap_or_else(|| vec![Finding::fail("imap", "the check was stopped by a fault", "look into the log")])
}

/// Runs `work` on a thread that may block. Returns `None` if `work` panicked.
async fn run_blocking<A: Send + 'static>(
    account: &Arc<Account>,
    work: impl FnOnce(&Account, &Handle) -> A + Send + 'static,
) -> Option<A> {
    let (account, handle) = (Arc::clone(account), Handle::current());
    tokio::task::spawn_blocking(move || work(&account, &handle)).await.ok()
}

fn connect(account: &Account, handle: &Handle) -> Result<ImapSession, ImapError> {
    ImapSession::connect(account, handle, ImapTimings::default().silence, &ConnectionCloser::default())
}

fn probe_mailboxes(account: &Account, mailboxes: &[String], handle: &Handle) -> Vec<Finding> {
    let server = &account.imap;
    let address = format!("{}:{}", server.host, server.port);
    let privacy = match server.tls {
        Tls::Implicit => "TLS, certificate checked",
        Tls::Starttls => "STARTTLS, certificate checked",
        Tls::None => "without TLS, on this machine",
    };
    let reached = Finding::ok("imap", format!("{address} can be reached ({privacy})"));
    let mut session = match connect(account, handle) {
        Ok(session) => session,
        Err(ImapError::Login(reason)) => {
            let mend = "check imap_username and imap_password, or token_command; many providers want an app password";
            return vec![reached, Finding::fail("login", reason, mend)];
        }
        Err(error) => {
            let mend = "check imap_host, imap_port, imap_tls and ca_file, and whether the server runs";
            return vec![Finding::fail("imap", format!("{address}: {error}"), mend)];
        }
    };
    let mut findings = vec![reached, Finding::ok("login", format!("{} is logged in", server.username))];
    for mailbox in mailboxes {
        findings.push(match session.examine(mailbox) {
            Ok(selected) if selected.uid_validity.is_none() => Finding::fail(
                "mailbox",
                format!("{mailbox} reports no UIDVALIDITY, so its mails have no permanent ids"),
                "choose another mailbox or server: without permanent ids, a mail could be answered twice",
            ),
            Ok(_) => Finding::ok("mailbox", format!("{mailbox} can be opened")),
            Err(error) => Finding::fail(
                "mailbox",
                format!("{mailbox} cannot be opened: {error}"),
                "create that folder in your mail program, or name another one",
            ),
        });
    }
    findings.push(if session.supports("IDLE") {
        Finding::ok("idle", "the server announces new mail at once (IDLE)")
    } else {
        Finding::warn(
            "idle",
            "the server does not announce new mail (IDLE); it is polled every poll_interval",
            "shorten poll_interval if that is too slow",
        )
    });
    findings
}
