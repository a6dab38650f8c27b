//! Copies of what was sent.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::enter::enter;
use super::error::Trouble;
use super::settings::Pace;
use super::stream::Closer;
use crate::email::account::Account;

/// Lays `mail` into `mailbox`, marked as read. Over a connection of its own; the mailbox is made where it is not there.
///
/// # Errors
/// It does not lie there, or nobody knows; as a sentence.
pub async fn append(account: &Arc<Account>, mailbox: &str, mail: Vec<u8>) -> Result<(), String> {
    let (account, name, handle) = (Arc::clone(account), mailbox.to_owned(), Handle::current());
    let work = move || -> Result<(), Trouble> {
        let mut link = enter(&account, &handle, Pace::default().silence, &Closer::default())?;
        link.append(&name, &mail)
    };
    let ended = tokio::task::spawn_blocking(work).await;
    ended
        .map_err(|_| "the copy was stopped by a fault".to_owned())?
        .map_err(|trouble| format!("no copy in {mailbox}: {trouble}"))
}
