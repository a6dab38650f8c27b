//! Turns a mail in a mailbox into a message in the inbox. In reading order: the whole process, then its steps.

mod mail_intake;

mod attachments;
mod content;
mod failures;
mod identity;
mod notes;
mod quota;
mod reply_context;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;

pub use identity::inline_code;
pub use mail_intake::MailIntake;
pub use notes::{NOTE_AGES, THREAD};
