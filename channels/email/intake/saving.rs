//! What is enclosed in a mail goes to disk before the mail is handed over.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::failing::Trouble;
use super::identity::Identity;
use super::mail_intake::MailIntake;
use crate::email::files::SavedFiles;
use crate::email::letter::Letter;
use crate::email::threads::hash;
use crate::inbox::Refusal;
use crate::message::SessionKey;

/// When a mail is to be tried again whose files the machine could not take.
const SAVE_AGAIN: Duration = Duration::from_secs(30);

impl MailIntake {
    pub(super) async fn save(
        &self,
        session: SessionKey,
        identity: &Identity,
        letter: Arc<Letter>,
    ) -> Result<SavedFiles, Trouble> {
        let files = self.files.clone();
        let key = hash(&[&identity.external_id]);
        let saving = tokio::task::spawn_blocking(move || files.save(&session, &key, &letter));
        let saved = saving.await.map_err(|error| Trouble::Failed(format!("saving its files failed: {error}")))?;
        saved.map_err(|error| {
            let reason = format!("its files could not be saved: {error}");
            if is_of_the_mail(&error) {
                return Trouble::Failed(reason);
            }
            Trouble::Refused(Refusal::Store { reason, retry_after: SAVE_AGAIN })
        })
    }
}

/// Whether it may be the fault of this mail alone: its names, its size, or what lies in its own folder. All else is the
/// machine's (no room, no rights, no handles, a disk that fails), and no mail is given up for that.
fn is_of_the_mail(error: &io::Error) -> bool {
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
    fn what_the_machine_cannot_do_is_no_mails_fault() {
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
            assert_eq!(is_of_the_mail(&io::Error::from(errno)), expected, "{errno:?}");
        }
    }
}
