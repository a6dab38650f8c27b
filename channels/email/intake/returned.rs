//! Mails of our own that came back. They are answered by nobody; the owner is told.

use super::failing::Trouble;
use super::identity::code;
use super::mail_intake::{Arrived, MailIntake};
use super::notes::BOUNCED;
use crate::email::judge::Bounce;
use crate::email::source::Taken;
use crate::email::words::fill;

impl MailIntake {
    /// Tells the owner once of each message that was sent and came back. A report can be made up by whoever got the mail, so
    /// nothing else follows from it. That a notice of ours came back is in the log alone: the next one might go the same way.
    pub(super) async fn came_back(&self, arrived: &Arrived, bounce: &Bounce, reason: &str) -> Result<Taken, Trouble> {
        let _turn = self.turn.lock().await;
        let Bounce { outbox, recipient, reason: said } = bounce;
        let Some(sent) = self.inbox().sent(&self.notes.channel, *outbox).await? else {
            return self.pass(arrived, reason).await;
        };
        let key = outbox.to_string();
        if self.notes.read::<bool>(BOUNCED, &key).await?.is_some() {
            return self.pass(arrived, &format!("{reason}; what it reports was told before")).await;
        }
        tracing::warn!(message = %outbox, recipient, said, "a mail that was sent came back");
        let notes = vec![self.notes.write(BOUNCED, key.as_str(), &true)];
        let notice = fill(self.words.bounced_notice, &[&code(recipient), &code(said), &key]);
        let notice = (!sent.is_notice).then_some(notice);
        self.pass_with(arrived, &format!("{reason}; it reports that message {outbox} came back"), notes, notice).await
    }
}
