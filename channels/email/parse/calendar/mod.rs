//! Converts invitations (RFC 5545, 5546) to text: `ical` parses, `describe` and `recurrence` write.

mod describe;
mod ical;
mod recurrence;

pub use describe::describe;

#[cfg(test)]
mod tests;
