//! A mail's bytes as a letter: decoded, bounded, and without anything that would run. In reading order: how much is read,
//! the whole of it, its parts, then what each of them may be.

mod limits;


mod address;
mod charset;
mod clean;
mod fields;
mod html;
mod mime;
mod params;
mod transfer;
mod words;

pub use limits::ReadLimits;
