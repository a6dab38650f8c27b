//! Mail servers for stories: a real Dovecot and a real Postfix as plain processes on loopback, a scripted SMTP server, a
//! proxy whose connections can become half-open, and the mails that pass through them.

mod certificates;
mod dovecot;
mod draft;
mod postfix;
pub mod process;
mod proxy;
mod received;
mod smtp;

pub use certificates::Authority;
pub use dovecot::{ASSISTANT, Dovecot, PASSWORD};
pub use draft::{AUTHSERV, Draft};
pub use postfix::Postfix;
pub use proxy::Proxy;
pub use received::Mail;
pub use smtp::{ReceivedMail, Smtp, SmtpAnswer};
