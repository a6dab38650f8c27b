//! E-mail: read by IMAP, answered by SMTP. In reading order: the settings, a mail as it was read, then the way of one
//! mail in (`mailbox` fetches, `read` decodes, `judge` decides, `intake` hands over) and out (`send`).

mod config;

mod answering;
mod letter;
pub mod presets;
mod source;

pub use config::{Done, EmailConfig, EmailFault, Mailboxes, Strangers, Tls, TrustBy};
