//! The e-mail channel against real servers, and against scripted ones where a server must misbehave.

mod conformance;
mod conversation;
mod deaths;
pub mod desk;
mod jobs;
mod loops;
mod outages;
mod reading;
mod sending;
mod servers;
mod strangers;
