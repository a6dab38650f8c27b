//! Saves the attachments of a mail before the mail is handed over.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::failures::IntakeError;
use super::identity::MailIdentity;
use crate::attachment_folder::{AttachmentFolder, SavedFiles};
use crate::email::mail::ParsedMail;
use crate::email::threads::hash;
use crate::inbox::Refusal;
use crate::message::SessionKey;

/// The wait before a retry of a mail whose files this machine could not store.
const SAVE_AGAIN: Duration = Duration::from_secs(30);

/// Saves the files and the removed text of a mail.
///
/// # Errors
/// [`IntakeError::Failed`] if the mail itself is the cause; else [`IntakeError::Refused`], so that the mail is offered
/// again.
pub async fn save_attachments(
    files: Arc<AttachmentFolder>,
    session: SessionKey,
    identity: &MailIdentity,
    mail: Arc<ParsedMail>,
) -> Result<SavedFiles, IntakeError> {
    let key = hash(&[&identity.external_id]);
    let saving = tokio::task::spawn_blocking(move || files.save(&session, &key, &mail.attachments, &mail.cut));
    let saved = saving.await.map_err(|error| IntakeError::Failed(format!("saving its files failed: {error}")))?;
    saved.map_err(|error| {
        let reason = format!("its files could not be saved: {error}");
        if is_caused_by_mail(&error) {
            return IntakeError::Failed(reason);
        }
        IntakeError::Refused(Refusal::Store { reason, retry_after: SAVE_AGAIN })
    })
}

/// Returns true if this mail alone may cause the error: its names, its size, or the content of its folder. All other errors
/// (no space, no rights, no handles, a failing disk) come from the machine, and never cause a mail to be skipped.
fn is_caused_by_mail(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::InvalidInput
            | Kind::InvalidFilename
            | Kind::FileTooLarge
            | Kind::IsADirectory
            | Kind::DirectoryNotEmpty
            | Kind::AlreadyExists
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_machine_are_not_blamed_on_the_mail() {
        use rustix::io::Errno;
        for (errno, expected) in [
            (Errno::MFILE, false),
            (Errno::NFILE, false),
            (Errno::ROFS, false),
            (Errno::IO, false),
            (Errno::ACCESS, false),
            (Errno::PERM, false),
            (Errno::NOSPC, false),
            (Errno::DQUOT, false),
            (Errno::NOENT, false),
            (Errno::NOTDIR, false),
            (Errno::LOOP, false),
            (Errno::STALE, false),
            (Errno::NAMETOOLONG, true),
            (Errno::INVAL, true),
            (Errno::FBIG, true),
            (Errno::ISDIR, true),
            (Errno::NOTEMPTY, true),
        ] {
            assert_eq!(is_caused_by_mail(&io::Error::from(errno)), expected, "{errno:?}");
        }
    }
}
