//! `[tools]`.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use daoyou_channels::settings::{ByteSize, HumanDuration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::lsp::LspConfig;
use super::output_limits::OutputConfig;
use super::web::WebConfig;
use crate::guard::SandboxMode;
use crate::postprocess::PostprocessConfig;

/// The settings of the tools.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolsConfig {
    /// Tools that models do not see, by name.
    pub disabled: Vec<String>,
    /// The file tools stay inside the workspace.
    #[default = true]
    pub restrict_to_workspace: bool,
    /// Files and folders of the workspace that may be read for outside senders, in addition to the files that came with
    /// their own message; `.` is the whole workspace.
    pub strangers_read: Vec<String>,
    /// The largest file that the file tools write or change; larger texts can be read.
    #[default(ByteSize(10_000_000))]
    pub max_file_size: ByteSize,
    /// How long deleted files are kept.
    #[default(HumanDuration::from_secs(30 * 86_400))]
    pub trash: HumanDuration,
    /// The time limit of a call of a tool without a limit of its own.
    #[default(HumanDuration::from_secs(600))]
    pub timeout: HumanDuration,
    /// How many calls of one response run at the same time; calls that change something always run one after the other.
    #[schemars(range(min = 1, max = 256))]
    #[default(const { NonZeroUsize::new(8).expect("8 is not 0") })]
    pub parallel: NonZeroUsize,
    /// The maximum length, in characters, of a result that a model gets, whatever the tool; the whole is in a file.
    #[schemars(range(min = 100, max = 10_000_000))]
    #[default = 12_000]
    pub max_output: u32,
    /// By tool: the limit of its results, and what stays of longer ones.
    pub output: BTreeMap<String, OutputConfig>,
    pub exec: ExecConfig,
    pub lsp: LspConfig,
    pub web: WebConfig,
    pub postprocess: PostprocessConfig,
}

/// `[tools.exec]`: the settings of commands.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExecConfig {
    /// The time limit of a command and all that it started; a call may ask for less.
    #[default(HumanDuration::from_secs(60))]
    pub timeout: HumanDuration,
    /// Commands write only to the workspace and a private temp folder, and read only there, in system folders and in
    /// `read_paths`. Only this setting turns the sandbox off.
    pub sandbox: SandboxMode,
    /// The number of concurrent processes of one command.
    #[schemars(range(min = 1, max = 100_000))]
    #[default = 256]
    pub max_processes: u32,
    /// The memory of one command and all that it started.
    #[default(ByteSize(2_000_000_000))]
    pub max_memory: ByteSize,
    /// The space that one command may add to the disk. Each file or folder counts as at least 4 KiB.
    #[default(ByteSize(1_000_000_000))]
    pub max_disk: ByteSize,
    /// Allows commands to open network connections.
    pub network: bool,
    /// Further folders that commands may read.
    pub read_paths: Vec<String>,
    /// Environment variables that commands see in addition to PATH, HOME, LANG, LC_*, TERM, TZ, USER and TMPDIR.
    pub env: Vec<String>,
    /// The number of concurrent background commands; 0: none.
    #[default = 8]
    pub background: u32,
    /// The time limit of a background command that is not detached; a call may ask for less.
    #[default(HumanDuration::from_secs(86_400))]
    pub background_timeout: HumanDuration,
    /// The kept output of a background command; the middle of a longer output is left out.
    #[default(ByteSize(10_000_000))]
    pub background_output: ByteSize,
}
