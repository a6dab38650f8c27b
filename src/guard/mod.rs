//! Protection: the path jail of file tools, the sandbox and supervisor of commands, the guard of
//! outgoing requests, and the redaction of secrets.

mod access_rules;
mod approval;
mod beneath;
mod bubblewrap;
mod cgroup;
mod closed_folders;
mod confine;
mod egress;
mod entries;
mod file_version;
mod jail;
mod jail_error;
#[cfg(test)]
mod jail_tests;
mod jail_writer;
mod namespace_support;
mod output_pump;
mod ownership;
mod path_rules;
mod procfs;
mod protocol;
mod redact;
mod remove;
mod resource_limits;
mod sandbox;
mod secrets;
mod supervisor;
mod syscalls;
mod walk;

pub use access_rules::{AccessKind, AccessPermission, AccessRule, AccessRules, AccessSettings};
pub use approval::{ApprovalConfig, ApprovalPolicy, Taint, means_tool, runs_project_code};
pub(crate) use beneath::{create_dir_beneath, open_beneath, open_beneath_on_any_mount, rename_to_new, sync_folder};
pub use confine::{CONFINE_COMMAND, confine_main};
pub use egress::{EgressClient, EgressError, EgressRules, HostPattern};
pub use entries::{EntryFacts, JailEntry};
pub use file_version::FileVersion;
pub use jail::{FileContent, Jail, OpenFile};
pub(crate) use jail::{quote_controls, show_listed};
pub use jail_error::JailError;
pub use jail_writer::JailWriter;
pub use namespace_support::{NAMESPACE_HELP, NamespaceSupport, namespace_support};
pub use path_rules::{protected_paths, readable_links, readable_paths, resolve_links};
pub use procfs::{is_same_process, process_start_identity, signal_group};
pub use protocol::{BackgroundOptions, CommandLimits, ExecReport, ExecRequest, SandboxPolicy, ShellExit};
pub use redact::{mask_url, redact};
pub use remove::remove_tree;
pub use sandbox::{Sandbox, SandboxMode, SandboxStatus, SocketAccess, give_up_access, status, try_sockets};
pub use secrets::KnownSecrets;
pub use supervisor::{EXEC_COMMAND, exec_main, remove_stale_temp, stale_temp_folders};
pub use walk::{EntryKind, SkipCounts, StopSignal, Walk, WalkSelection, WalkStop, WalkedEntry};
