//! The channel for e-mail, which reads by IMAP and answers by SMTP. In reading order: the settings, the account, the types
//! that pass between the stages, then the path of an incoming mail (`imap` fetches, `parse` decodes, `auth` decides,
//! `intake` hands over) and of an outgoing one (`smtp`).

mod config;
pub mod presets;
mod validate;

mod account;
mod certificate;
mod token;

mod address;
mod mail;
mod message_id;
mod subject;
mod texts;

mod imap;

pub mod parse;

mod auth;
mod threads;

mod intake;

mod smtp;

mod channel;
mod mailboxes;
mod self_test;

pub use address::is_address;
pub use auth::listing_of;
pub use channel::{EmailChannel, EmailSetup};
pub use config::{ATTACHMENTS, DoneAction, EmailConfig, Mailboxes, NAME, Tls, TrustMethod, UnlistedSenderPolicy};
pub use intake::THREAD as THREAD_NOTE;
pub use mail::{NamedAddress, ParsedMail};
pub use message_id::is_thread;
pub use smtp::check_chat;
