//! From a mail in a mailbox to a message in the inbox.

mod content;
mod hours;
mod mail_intake;
mod notes;
mod replying;

#[cfg(test)]
mod tests;

pub use mail_intake::MailIntake;
