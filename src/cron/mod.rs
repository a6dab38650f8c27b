//! Scheduled prompts: when they are due, what they are, and the service that puts each into the inbox at its time. It never
//! calls the agent: a job that is due is an inbound message.

mod config;

mod schedule;

mod clock;
mod ended;
mod firing;
mod history;
mod job;
mod jobs;
mod misfire;
mod prompt;
mod rules;
mod run_message;
mod service;
mod moments;

pub use config::CronConfig;
pub use ended::ended;
pub use firing::{Fired, run_now};
pub use history::{delivery, outcome};
pub use job::{Deliver, Job, JobBody, Maker, Misfire, Target, Task};
pub use jobs::{JobError, NewJob, Scope, Settings, add, find, list, remove, set_enabled};
pub use rules::{CronHandle, Rules, Words};
pub use schedule::{Language, Schedule, ScheduleError, Slots, time_zone};
pub use service::{CronService, note_stop};
