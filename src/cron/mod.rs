//! Scheduled prompts: when they are due, what they are, and the service that puts each into the inbox at its time. It never
//! calls the agent: a job that is due is an inbound message.

mod config;

mod schedule;

pub mod heartbeat;

mod ended;
mod job;
mod jobs;

pub use config::CronConfig;
pub use ended::ended;
pub use heartbeat::HeartbeatConfig;
pub use job::{Deliver, Job, JobBody, Maker, Misfire, Target, Task};
pub use jobs::{JobError, NewJob, Scope, Settings, add, find, list, remove, set_enabled};
pub use schedule::{Language, Schedule, ScheduleError, Slots, time_zone};
