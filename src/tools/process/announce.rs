//! How the session that started a process is told of its end. Tools do not know the bus; the gateway does.

use daoyou_channels::SessionKey;

use super::{ProcessEnd, Tail};
use crate::store::processes::ProcessRow;
use crate::store::{Connection, StoreError};

/// Announces ends.
pub trait Announce: Send + Sync {
    /// Puts the announcement into the inbox, within the commit of the end; answers whose session it is. A commit that is
    /// tried again calls it again.
    ///
    /// # Errors
    /// The store does not take it.
    fn write(
        &self,
        connection: &Connection,
        process: &ProcessRow,
        end: &ProcessEnd,
        printed: &Tail,
    ) -> Result<SessionKey, StoreError>;

    /// The commit is done: who has something to answer now is woken.
    fn written(&self, session: SessionKey);
}
