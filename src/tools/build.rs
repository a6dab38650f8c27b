//! Builds the tools of one workspace and their executor.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use daoyou_channels::outgoing::OutgoingFiles;
use daoyou_channels::settings::SettingFault;
use thiserror::Error;

use super::code::{AstGrepReplace, CodeCache, ast_grep_search, repo_map, repo_structure, symbols};
use super::config::{ExecConfig, ToolsConfig};
use super::documents::DocumentReader;
use super::exec::{CommandRunner, ExecTool};
use super::executor::{ExecutorLimits, ToolExecutor};
use super::files::{
    Grep, ReadFile, ReadScope, WorkspaceJail, WriteScope, apply_patch, create_dir, delete_file, edit_file, file_info,
    glob, list_dir, write_file,
};
use super::find_tools::FindTools;
use super::git::{GitCommit, GitReader, GitRunner};
use super::lsp::{LspQuery, LspRename, LspService};
use super::message::{ATTACHMENT_BYTES, MessageTool};
use super::names::canonical_name;
use super::output_limits::OutputLimits;
use super::parallel::ParallelTool;
use super::private_folders::PrivateFolders;
use super::process::{ProcessTool, Processes};
use super::registry::{ToolRegistry, ToolRegistryError};
use super::result_cache::ToolResultCache;
use super::run_test::RunTest;
use super::spill::SpillStore;
use super::tool::Tool;
use super::trash::Trash;
use super::web::{WebFetch, WebSearch};
use crate::bus::DeliveryChannels;
use crate::guard::{Jail, KnownSecrets, protected_paths, remove_stale_temp};
use crate::postprocess::{PostprocessConfig, Postprocessor, ResultSummarizer, SemanticFilter, SummaryConfig};

/// The folder in the home for the private temp folders of commands.
const TEMP: &str = "tmp";

/// The reason why the tools cannot be built.
#[derive(Debug, Error)]
pub enum ToolSetupError {
    #[error("the workspace {path}: {error}")]
    Workspace { path: PathBuf, error: io::Error },
    #[error("the workspace {workspace} holds daoyou's own folder {home}; choose one inside it or elsewhere")]
    ContainsHome { workspace: PathBuf, home: PathBuf },
    #[error("the folder for temporary files {path}: {error}")]
    Temp { path: PathBuf, error: io::Error },
    #[error("{0}")]
    Setting(String),
    #[error(transparent)]
    ToolRegistry(#[from] ToolRegistryError),
}

/// The dependencies of the tools, except the workspace.
#[derive(Default)]
pub struct ToolDeps {
    /// `None`: nothing runs in the background.
    pub processes: Option<Arc<Processes>>,
    /// Tools that other modules implement.
    pub further: Vec<Arc<dyn Tool>>,
    /// Folders of the workspace that only some turns may use.
    pub private: PrivateFolders,
    /// The number of bytes that commands leave free on the disk.
    pub reserve: u64,
    /// The secrets that are removed from everything that the tools return.
    pub secrets: KnownSecrets,
    /// The embedding model and the chat model that `tools.postprocess` uses.
    pub semantic: Option<SemanticFilter>,
    pub summarizer: Option<ResultSummarizer>,
    /// `None`: no result is cached.
    pub cache: Option<ToolResultCache>,
    /// `None`: the channels are not known, and messages to any channel are accepted.
    pub channels: Option<DeliveryChannels>,
}

/// Builds the tools of `workspace`, and adds those of other modules. `workspace` and `home` must exist. `exe` is the path of this
/// program; `/proc/self/exe` stays valid even after the program was replaced on disk.
///
/// # Errors
/// A folder cannot be used; the error names it.
pub fn build(
    config: &ToolsConfig,
    workspace: &Path,
    home: &Path,
    exe: PathBuf,
    ToolDeps { processes, further, private, reserve, secrets, semantic, summarizer, cache, channels }: ToolDeps,
) -> Result<ToolExecutor, ToolSetupError> {
    let failed = |error| ToolSetupError::Workspace { path: workspace.to_owned(), error };
    let protected = protected_paths(home);
    let jail = Jail::open(workspace, config.restrict_to_workspace, protected.clone(), config.max_file_size.0);
    let jail = jail.map_err(failed)?;
    let root = jail.root().to_owned();
    if std::fs::canonicalize(home).is_ok_and(|home| home.starts_with(&root)) {
        return Err(ToolSetupError::ContainsHome { workspace: root, home: home.to_owned() });
    }
    let files = WorkspaceJail::new(jail, private);
    let strict_jail = |max_bytes| Jail::open_strict(&root, protected.clone(), max_bytes).map_err(failed);
    // The jail for untrusted senders follows no links, so that only the named paths are open to them.
    let for_untrusted = WorkspaceJail::new(strict_jail(config.max_file_size.0)?, private);
    let readable = ReadScope::new(files.clone(), for_untrusted.clone(), &config.strangers_read);
    let writable = WriteScope::new(files.clone(), for_untrusted);
    // Attachments leave the workspace, so a link must not decide their content.
    let outgoing = WorkspaceJail::new(strict_jail(ATTACHMENT_BYTES)?, private);
    let spill = Arc::new(SpillStore::open(&root, config.max_file_size.0).map_err(failed)?);
    let trash = Arc::new(Trash::open(&root).map_err(failed)?);
    let timeout = config.timeout.0;
    let documents = DocumentReader::new(exe.clone());
    let runner = Arc::new(command_runner(&config.exec, &root, home, private, reserve, exe)?);
    let git = GitRunner::new(Arc::clone(&runner), files.clone());
    let rules = config.web.rules().map_err(|fault| setting(&fault))?;
    let service = config.web.service().map_err(|fault| setting(&fault))?;
    config.lsp.fault().map_or(Ok(()), |fault| Err(setting(&fault)))?;
    let [git_status, git_diff, git_log] = GitReader::all(&git).map(|tool| Arc::new(tool) as Arc<dyn Tool>);
    let mut registry = ToolRegistry::new(&config.disabled);
    let tools: [Arc<dyn Tool>; 27] = [
        Arc::new(ReadFile::new(readable.clone(), documents.clone())),
        write_file(writable.clone()),
        edit_file(writable.clone(), readable.clone()),
        apply_patch(writable.clone(), readable.clone(), Arc::clone(&trash)),
        list_dir(readable.clone(), timeout),
        Arc::new(Grep::new(readable.clone(), timeout, secrets.clone())),
        glob(readable.clone(), timeout),
        repo_map(readable.clone(), CodeCache::new(home), timeout),
        repo_structure(readable.clone(), timeout),
        symbols(readable.clone(), timeout),
        ast_grep_search(readable.clone(), timeout),
        Arc::new(AstGrepReplace::new(writable.clone(), readable.clone(), timeout)),
        file_info(readable.clone(), timeout),
        create_dir(writable.clone()),
        delete_file(writable.clone(), trash),
        Arc::new(ExecTool::new(Arc::clone(&runner), Arc::clone(&spill), processes.clone())),
        Arc::new(ProcessTool::new(processes)),
        Arc::new(RunTest::new(Arc::clone(&runner), files, Arc::clone(&spill))),
        git_status,
        git_diff,
        git_log,
        Arc::new(GitCommit::new(git)),
        Arc::new(MessageTool::new(outgoing, OutgoingFiles::of_home(home), channels)),
        Arc::new(WebFetch::new(rules, documents)),
        Arc::new(WebSearch::new(&config.web, service)),
        Arc::new(FindTools::new()),
        Arc::new(ParallelTool::new(timeout, config.max_output)),
    ];
    let lsp = Arc::new(LspService::new(runner, readable, &config.lsp));
    let queries = LspQuery::all(&lsp).map(|tool| Arc::new(tool) as Arc<dyn Tool>);
    let rename: Arc<dyn Tool> = Arc::new(LspRename::new(lsp, writable));
    for tool in tools.into_iter().chain(queries).chain([rename]).chain(further) {
        let is_own = tool.definition().is_own;
        match registry.register(tool) {
            // A faulty self-description of an MCP server must not keep the gateway from starting.
            Err(error) if !is_own => tracing::warn!(%error, "a tool of a server is left out"),
            registered => registered?,
        }
    }
    let postprocess = with_canonical_names(config.postprocess.clone());
    let postprocessor = Postprocessor::new(postprocess, semantic, summarizer);
    Ok(ToolExecutor {
        registry,
        spill,
        limits: ExecutorLimits { timeout, at_once: config.parallel },
        outputs: Arc::new(OutputLimits::new(config.max_output, &config.output)),
        secrets,
        postprocessor: Arc::new(postprocessor),
        cache: cache.map(Arc::new),
    })
}

/// Builds the runner of commands in `workspace`. The arguments are those of [`build`].
///
/// # Errors
/// A folder cannot be used; the error names it.
pub fn command_runner(
    config: &ExecConfig,
    workspace: &Path,
    home: &Path,
    private: PrivateFolders,
    reserve: u64,
    exe: PathBuf,
) -> Result<CommandRunner, ToolSetupError> {
    let failed = |error| ToolSetupError::Workspace { path: workspace.to_owned(), error };
    let workspace = std::fs::canonicalize(workspace).map_err(failed)?;
    let (temp, protected) = (prepare_temp(home)?, protected_paths(home));
    let (config, skill_folders) = (config.clone(), Vec::new());
    Ok(CommandRunner { config, workspace, temp, protected, private, reserve, exe, skill_folders })
}

/// Replaces aliases of tools with the tools' canonical names.
fn with_canonical_names(config: PostprocessConfig) -> PostprocessConfig {
    let own = |name: &String| canonical_name(name).map_or_else(|| name.clone(), str::to_owned);
    let tools = config.tools.iter().map(|(name, tool)| (own(name), tool.clone())).collect();
    let llm = SummaryConfig { tools: config.llm.tools.iter().map(own).collect(), ..config.llm.clone() };
    PostprocessConfig { tools, llm, ..config }
}

fn setting(fault: &SettingFault) -> ToolSetupError {
    ToolSetupError::Setting(format!("{}: {}; allowed is {}", fault.key(), fault.wrong, fault.allowed))
}

/// Makes the folder of temporary files in the home if it is missing, and removes what killed commands have left in it; returns its path.
///
/// # Errors
/// The folder cannot be made.
pub fn prepare_temp(home: &Path) -> Result<PathBuf, ToolSetupError> {
    let path = home.join(TEMP);
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
    let real = made.and_then(|()| std::fs::canonicalize(&path));
    let real = real.map_err(|error| ToolSetupError::Temp { path, error })?;
    remove_stale_temp(&real);
    Ok(real)
}
