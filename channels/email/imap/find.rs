//! Looks for one mail.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::enter::enter;
use super::error::Trouble;
use super::mailbox_name::escape;
use super::settings::Pace;
use super::stream::Closer;
use crate::email::account::Account;

/// The header of the mail with this Message-ID, if it lies in one of `mailboxes`. Over a connection of its own; nothing is
/// changed.
///
/// # Errors
/// The mailboxes could not be looked into; as a sentence.
pub async fn find(account: &Arc<Account>, mailboxes: &[String], message_id: &str) -> Result<Option<Vec<u8>>, String> {
    let (account, mailboxes, handle) = (Arc::clone(account), mailboxes.to_vec(), Handle::current());
    let query = format!("HEADER Message-ID \"{}\"", escape(message_id));
    let work = move || -> Result<Option<Vec<u8>>, Trouble> {
        let mut link = enter(&account, &handle, Pace::default().silence, &Closer::default())?;
        for mailbox in &mailboxes {
            link.examine(mailbox)?;
            for uid in link.search(&query)? {
                if let Some(header) = link.header(uid)? {
                    return Ok(Some(header));
                }
            }
        }
        Ok(None)
    };
    let ended = tokio::task::spawn_blocking(work).await;
    ended.map_err(|_| "the search was stopped by a fault".to_owned())?.map_err(|trouble| trouble.to_string())
}
