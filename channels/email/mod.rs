//! E-mail: read by IMAP, answered by SMTP. In reading order: the settings, a mail as it was read, then the way of one
//! mail in (`mailbox` fetches, `read` decodes, `judge` decides, `intake` hands over) and out (`send`).

mod config;
pub mod presets;

mod account;
mod token;

mod answering;
mod ids;
mod letter;
mod source;
mod words;

mod mailbox;

pub mod read;

mod files;
pub mod judge;
mod threads;

mod intake;

mod send;

mod channel;

pub use channel::{EmailChannel, MailLanguage, NAME, Surroundings};
pub use config::{Done, EmailConfig, EmailFault, Mailboxes, Strangers, Tls, TrustBy};
pub use letter::{Enclosed, Letter, Mailbox};
