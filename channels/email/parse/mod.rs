//! Parses mail into a decoded, bounded form without active content. In reading order: the limits, the whole mail, its text
//! and attachments, its header fields and MIME parts, then decoding and conversion.

mod limits;

mod mail;

mod attachments;
mod body;
mod quote;

mod address_list;
mod header_fields;
mod mime;
mod parameters;

mod calendar;
mod charset;
mod encoded_words;
mod html;
mod plain_text;
mod transfer_encoding;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod mail_tests;

pub use address_list::parse_address_list;
pub use limits::ParseLimits;
pub use mail::parse_mail;
