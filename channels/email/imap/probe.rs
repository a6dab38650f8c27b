//! Whether the account's mailboxes can be read.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::enter::enter;
use super::error::Trouble;
use super::settings::Pace;
use super::stream::Closer;
use crate::email::account::Account;
use crate::finding::Finding;

/// Connects, logs in, and opens each of `mailboxes` without changing anything.
pub async fn probe(account: &Arc<Account>, mailboxes: &[String]) -> Vec<Finding> {
    let (account, mailboxes, handle) = (Arc::clone(account), mailboxes.to_vec(), Handle::current());
    match tokio::task::spawn_blocking(move || examine(&account, &mailboxes, &handle)).await {
        Ok(findings) => findings,
        Err(_) => vec![Finding::fail("imap", "the check was stopped by a fault", "look into the log")],
    }
}

fn examine(account: &Account, mailboxes: &[String], handle: &Handle) -> Vec<Finding> {
    let server = &account.imap;
    let place = format!("{}:{}", server.host, server.port);
    let reached = Finding::ok("imap", format!("{place} can be reached ({})", privacy(account)));
    let mut link = match enter(account, handle, Pace::default().silence, &Closer::default()) {
        Ok(link) => link,
        Err(Trouble::Login(reason)) => {
            let mend = "check imap_username and imap_password, or token_command; many providers want an app password";
            return vec![reached, Finding::fail("login", reason, mend)];
        }
        Err(trouble) => {
            let mend = "check imap_host, imap_port, imap_tls and ca_file, and whether the server runs";
            return vec![Finding::fail("imap", format!("{place}: {trouble}"), mend)];
        }
    };
    let mut findings = vec![reached, Finding::ok("login", format!("{} is logged in", server.username))];
    for mailbox in mailboxes {
        findings.push(match link.examine(mailbox) {
            Ok(opened) if opened.validity.is_none() => Finding::fail(
                "mailbox",
                format!("{mailbox} gives its mails no lasting numbers (UIDVALIDITY)"),
                "choose another mailbox, or another server: without them mails would be answered twice",
            ),
            Ok(_) => Finding::ok("mailbox", format!("{mailbox} can be opened")),
            Err(trouble) => Finding::fail(
                "mailbox",
                format!("{mailbox} cannot be opened: {trouble}"),
                "make that folder in your mail program, or name another one",
            ),
        });
    }
    findings.push(if link.can.idle {
        Finding::ok("idle", "the server tells of new mail at once")
    } else {
        Finding::warn(
            "idle",
            "the server does not tell of new mail (IDLE); it is asked every poll_interval",
            "shorten poll_interval where that is too slow",
        )
    });
    findings
}

fn privacy(account: &Account) -> &'static str {
    match account.imap.tls {
        crate::email::config::Tls::Implicit => "TLS, certificate checked",
        crate::email::config::Tls::Starttls => "STARTTLS, certificate checked",
        crate::email::config::Tls::None => "without TLS, on this machine",
    }
}
