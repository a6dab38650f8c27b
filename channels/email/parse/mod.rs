//! A mail's bytes as a letter: decoded, bounded, and without anything that would run. In reading order: how much is read,
//! the whole of a mail, its texts and files, then its parts, and what each of them may be.

mod limits;

mod reader;

mod body;
mod enclosures;
mod quote;

mod address;
mod fields;
mod mime;
mod params;

mod calendar;
mod charset;
mod clean;
mod flowed;
mod html;
mod sealed;
mod transfer;
mod words;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod mail_tests;

pub(super) use clean::clean_line;
pub use limits::ReadLimits;
pub use reader::read;
