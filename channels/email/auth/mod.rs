//! Decides whose mail is accepted. In reading order: domain alignment, unproven content of a proven mail, the receiving
//! server's results, the check by DNS, automatic mail, bounces, and the decision.

mod alignment;

mod unproven_content;

mod authentication_results;
mod authserv;
mod received;
mod verifier;

mod automatic;
mod bounce;

mod authenticator;

#[cfg(test)]
mod authenticator_tests;
#[cfg(test)]
pub mod verifier_tests;

pub use authenticator::{SenderAuthenticator, SenderDecision, listing_of};
pub use authserv::{TopmostResults, TrustedAuthserv, check_authserv, topmost_results};
pub use bounce::{Bounce, classify_bounce};
