//! A finding, and what may be done about it without asking.

use std::fs;
use std::path::PathBuf;

use daoyou_channels::{Finding, Verdict};

use crate::agent::prepare_workspace;
use crate::guard;
use crate::home::{Home, modes};
use crate::memory::{Identities, rebuild_index};
use crate::store::{Connection, mend, write_alone};

/// One check.
#[derive(Debug)]
pub struct Check {
    pub finding: Finding,
    /// What `--fix` does; nothing that could lose anything.
    pub fix: Option<Fix>,
}

/// A repair.
#[derive(Clone, Debug)]
pub enum Fix {
    Mode {
        path: PathBuf,
        mode: u32,
    },
    /// Files and folders that nobody needs.
    Remove(Vec<PathBuf>),
    /// The socket of a gateway that is gone; only while the home is ours.
    RemoveSocket,
    MakeHome,
    /// Takes an unusable token's place, too.
    MakeToken,
    FillWorkspace(PathBuf),
    /// Makes the index of words anew, from the messages and memories.
    RebuildIndex(Identities),
    /// Keeps the damaged database aside and takes over what can be read; with what is wrong with it.
    MendDatabase(String),
}

impl From<Finding> for Check {
    fn from(finding: Finding) -> Self {
        Self { finding, fix: None }
    }
}

impl Check {
    pub fn with(finding: Finding, fix: Fix) -> Self {
        Self { finding, fix: Some(fix) }
    }

    /// What was found, after mending it where that was asked for and can be done.
    pub fn settle(self, home: &Home, mends: bool) -> Finding {
        let mut finding = self.finding;
        let Some(fix) = self.fix.filter(|_| mends && finding.state != Verdict::Ok) else { return finding };
        match fix.apply(home) {
            Ok(done) => Finding { state: Verdict::Ok, mend: None, fixed: Some(done), ..finding },
            Err(error) => {
                finding.message = format!("{}; it could not be mended: {error}", finding.message);
                finding
            }
        }
    }
}

impl Fix {
    /// Answers what was done.
    fn apply(&self, home: &Home) -> Result<String, String> {
        match self {
            Self::Mode { path, mode } => {
                // The home's own path may be a link, which is the owner's choice.
                let real = if path == home.dir() { fs::canonicalize(path) } else { Ok(path.clone()) };
                real.and_then(|real| modes::set_mode(&real, *mode)).map_err(|error| error.to_string())?;
                Ok(format!("chmod {mode:o} {}", path.display()))
            }
            Self::Remove(paths) => {
                for path in paths {
                    let removed = if path.is_dir() { guard::remove_tree(path) } else { fs::remove_file(path) };
                    removed.map_err(|error| format!("{}: {error}", path.display()))?;
                }
                Ok(format!("removed {}", paths.len()))
            }
            Self::RemoveSocket => {
                let _lock = home.lock().map_err(|error| error.to_string())?;
                fs::remove_file(home.socket()).map_err(|error| error.to_string())?;
                Ok(format!("removed {}", home.socket().display()))
            }
            Self::MakeHome => {
                Home::open(Some(home.dir().to_owned())).map_err(|error| error.to_string())?;
                Ok(format!("made {}", home.dir().display()))
            }
            Self::MakeToken => {
                // Only an empty one is in the way.
                if home.token().is_err() {
                    fs::remove_file(home.token_file()).map_err(|error| error.to_string())?;
                }
                home.token().map_err(|error| error.to_string())?;
                Ok(format!("made {}", home.token_file().display()))
            }
            Self::RebuildIndex(identities) => {
                let _lock = home.lock().map_err(|error| error.to_string())?;
                let rebuild = |connection: &Connection| rebuild_index(connection, identities);
                write_alone(&home.database(), rebuild).map_err(|error| error.to_string())?;
                Ok("the index was made anew from the messages and memories".to_owned())
            }
            Self::MendDatabase(reason) => {
                let _lock = home.lock().map_err(|error| error.to_string())?;
                mend(&home.database(), reason).map_err(|error| error.to_string())?;
                Ok("the damaged file is kept aside, what could be read was taken over; daoyou status says what is lost"
                    .to_owned())
            }
            Self::FillWorkspace(path) => {
                let written = prepare_workspace(path).map_err(|error| error.to_string())?;
                Ok(format!("wrote {} files of the template", written.len()))
            }
        }
    }
}
