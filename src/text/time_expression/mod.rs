//! Time expressions in English and Chinese: "tomorrow at 9", "every Monday and Thursday", “每月1号早上8点”. An expression that is not
//! completely understood is refused; the error has the part that was understood.
//!
//! A lexer for each language cuts the text into tokens. A grammar for each language reads clauses from the tokens: a wait, a
//! day, clock times, an interval. `clauses` combines them: each kind may occur once, in any order, and together they must make
//! one time or one schedule.

mod boundary;
mod clauses;
mod clock;
mod cron_fields;
mod error;
mod expression;
mod grammar;
mod grammar_en;
mod grammar_zh;
mod lexer_en;
mod lexer_zh;
mod parse;
mod token;

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tables_tests;

pub use boundary::{
    ends_with_time, explain_partial_time, has_second_time, has_time_before_joint, starts_with_period, starts_with_time,
    time_ends,
};
pub use cron_fields::ranges;
pub use error::{TimeFault, TimeParseError};
pub use expression::{DayTime, DueTime, MAX_SECONDS, TimeExpression, instant_at, is_skipped};
pub use parse::{MAX_LENGTH, parse, parse_duration};
