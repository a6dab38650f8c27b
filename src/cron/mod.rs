//! Scheduled prompts: jobs, their schedules, and the service that puts each due job into the inbox. This module never calls the
//! agent: a due job is an inbound message.

mod config;

pub mod heartbeat;
mod schedule;

mod firing;
#[cfg(test)]
mod firing_tests;
mod history;
mod job;
mod job_context;
mod job_file;
#[cfg(test)]
mod job_file_tests;
mod job_request;
mod job_service;
mod job_text;
mod jobs;
mod misfire;
mod prompt;
mod run_end;
mod run_message;
mod run_times;
mod service;
#[cfg(test)]
mod testing;
mod tool;
#[cfg(test)]
mod tool_tests;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub use config::{CronConfig, CronHandle, CronSettings};
pub use firing::{FiringReport, run_now};
pub use heartbeat::HeartbeatConfig;
pub use history::{delivery, outcome};
pub use job::{DeliveryMode, DeliveryTarget, Job, JobBody, JobMaker, JobTask, MisfirePolicy};
pub use job_context::JobContext;
pub use job_file::{ImportReport, export, import};
pub use job_request::{JobOrigin, JobRequest};
pub use job_service::JobService;
pub use job_text::{lines, lines_by_name};
pub use jobs::{JobEntry, JobError, JobScope, NewJob, UnreadableJob, add, find, list, remove, replace, set_enabled};
pub use run_end::follow_ups_of;
pub use schedule::{PassedSlots, Schedule, ScheduleError, machine_zone, similar_time_zone, time_zone, zone_name};
pub use service::{CronService, note_stop};
pub use tool::CronTool;
