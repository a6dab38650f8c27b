//! What was said stays short: the older part of a conversation becomes a summary, and what matters of it is remembered. Off
//! the way of every reply: a worker beside the lanes looks at what is due, has a model write the summary, and puts it in the
//! place of what it tells in one commit.

mod places;
mod worker;

mod part;
mod transcript;

mod answer;
mod asking;
mod grounds;
mod plain;

mod keeping;

pub use worker::Consolidator;
pub(super) use worker::is_conversation;
