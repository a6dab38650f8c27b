//! E-mail: read by IMAP, answered by SMTP. In reading order: the settings, a mail as it was read, then the way of one
//! mail in (`mailbox` fetches, `read` decodes, `judge` decides, `intake` hands over) and out (`send`).

mod account;
mod config;
mod token;

mod mailbox;

mod answering;
pub mod ids;
pub mod intake;
pub mod judge;
mod letter;
pub mod presets;
mod source;
mod threads;
pub mod words;

pub mod files;
pub mod read;

pub use config::{Done, EmailConfig, EmailFault, Mailboxes, Strangers, Tls, TrustBy};
pub use letter::{Enclosed, Letter, Mailbox};
