//! From a mail in a mailbox to a message in the inbox. In reading order: the whole way, then what is asked on it.

mod mail_intake;

mod content;
mod failing;
mod hours;
mod identity;
mod notes;
mod replying;
mod returned;
mod saving;
mod wishes;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;

pub use identity::code;
pub use mail_intake::MailIntake;
