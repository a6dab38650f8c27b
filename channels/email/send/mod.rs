//! The way of a mail out. In reading order: the two forms of its text, what stands in its header, the whole mail; then
//! the connection to the server, and what goes wrong there.

mod flowed;
mod html;
mod markdown;
mod plain;

mod address;
mod references;
mod subject;
mod words;

mod compose;
#[cfg(test)]
mod compose_tests;

mod connect;
mod deliver;
mod failure;
mod mailer;
#[cfg(test)]
mod mailer_tests;
#[cfg(test)]
mod script_tests;
mod wire;

pub use deliver::Recipients;
pub use mailer::{Mailer, Sent, SentCopy};
pub use words::MailWords;
