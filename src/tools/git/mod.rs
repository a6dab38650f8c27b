//! The git tools. They run git itself, in the sandbox of commands, with a configuration of their own: nothing of a
//! repository's configuration, hooks or attributes runs a program.

mod commit;
mod read;
mod repository;
mod run;
mod settings;
mod status;

pub use commit::GitCommit;
pub use read::GitReader;
pub use run::GitRunner;
