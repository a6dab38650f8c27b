//! E-mail: read by IMAP, answered by SMTP. In reading order: the settings, a mail as it was read, then the way of one
//! mail in (`mailbox` fetches, `read` decodes, `judge` decides, `intake` hands over) and out (`send`).

mod checks;
mod config;
pub mod presets;

mod account;
mod certificate;
mod token;

mod address;
mod ages;
mod answering;
mod ids;
mod letter;
mod source;
mod words;

mod imap;

pub mod parse;

pub mod files;
mod judge;
mod threads;

mod intake;

mod send;

mod channel;
mod probe;

pub use address::is_address;
pub use channel::{EmailChannel, MailLanguage, Surroundings};
pub use config::{Done, EmailConfig, EmailFault, Mailboxes, NAME, Strangers, Tls, TrustBy};
pub use letter::{Enclosed, Letter, Mailbox};
