//! From an account to a connection that is logged in.

use std::time::Duration;

use tokio::runtime::Handle;

use super::error::Trouble;
use super::login::Access;
use super::session::Link;
use super::stream::Closer;
use crate::email::account::{Account, Login};

/// Connects and logs in; for a thread that may block. A token that was good until now may be good no more, so the refusal of
/// one is not the last word.
///
/// # Errors
/// No connection, or no login.
pub fn enter(account: &Account, handle: &Handle, silence: Duration, closer: &Closer) -> Result<Link, Trouble> {
    let open = || Link::open(&handle.block_on(Access::to(account))?, silence, closer);
    match (open(), &account.imap.login) {
        (Err(Trouble::Login(_)), Login::Token(command)) => {
            handle.block_on(command.forget());
            open()
        }
        (opened, _) => opened,
    }
}
