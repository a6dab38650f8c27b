//! The git tools. They run git itself, in the sandbox of commands, with a configuration composed by daoyou. A repository's own
//! configuration, hooks and attributes cannot run a program.

mod commit;
mod read;
mod repository;
mod run;
mod settings;
mod status;

pub use commit::GitCommit;
pub use read::GitReader;
pub use run::GitRunner;
