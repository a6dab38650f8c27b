//! From a mail in a mailbox to a message in the inbox. In reading order: the whole way, then what is asked on it.

mod mail_intake;

mod content;
mod failing;
mod hours;
mod identity;
mod notes;
mod replying;
mod wishes;

#[cfg(test)]
mod tests;

pub use mail_intake::MailIntake;
