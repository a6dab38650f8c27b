//! Invitations (RFC 5545, 5546) as readable text: `object` reads, `words` says.

mod object;
mod repeats;
mod words;

pub use words::describe;

#[cfg(test)]
mod tests;
