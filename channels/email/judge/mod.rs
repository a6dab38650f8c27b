//! Whose mails are listened to. In reading order: addresses, the receiving server's word for a sender, our own check,
//! what machines send, and the verdict.

mod address;

mod authserv;
mod received;
mod results;
mod verify;

mod automatic;

#[expect(clippy::module_inception, reason = "a folder's main file bears its name")]
mod judge;

#[cfg(test)]
mod judge_tests;
#[cfg(test)]
mod verify_tests;

pub use address::Address;
pub use judge::{Judge, Verdict};
