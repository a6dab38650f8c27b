//! A finding and its automatic repair.

use std::fs;
use std::path::PathBuf;

use anyhow::anyhow;
use daoyou_channels::{Finding, Severity};

use crate::agent::prepare_workspace;
use crate::guard;
use crate::home::{Home, modes};
use crate::memory::{Identities, rebuild_index};
use crate::store::{Connection, repair, write_alone};

/// The result of one check.
#[derive(Debug)]
pub struct DoctorCheck {
    pub finding: Finding,
    /// The repair that `--fix` makes; it never loses data.
    pub fix: Option<Repair>,
}

/// A repair.
#[derive(Clone, Debug)]
pub enum Repair {
    Mode {
        path: PathBuf,
        mode: u32,
    },
    /// Removes unused files and folders.
    Remove(Vec<PathBuf>),
    /// Removes the socket of a dead gateway, while this process holds the home's lock.
    RemoveSocket,
    CreateHome,
    /// Creates a token, which replaces an unusable one.
    CreateToken,
    FillWorkspace(PathBuf),
    /// Rebuilds the word index from the messages and memories.
    RebuildIndex(Identities),
    /// Moves the damaged database aside and recovers its readable rows; the text describes the damage.
    SalvageDatabase(String),
}

impl From<Finding> for DoctorCheck {
    fn from(finding: Finding) -> Self {
        Self { finding, fix: None }
    }
}

impl DoctorCheck {
    pub fn with(finding: Finding, fix: Repair) -> Self {
        Self { finding, fix: Some(fix) }
    }

    /// Returns the finding, after the repair if `repairs` is set and the repair succeeds.
    pub fn resolve(self, home: &Home, repairs: bool) -> Finding {
        let mut finding = self.finding;
        let Some(fix) = self.fix.filter(|_| repairs && finding.state != Severity::Ok) else { return finding };
        match fix.apply(home) {
            Ok(done) => Finding { state: Severity::Ok, mend: None, fixed: Some(done), ..finding },
            Err(error) => {
                finding.message = format!("{}; it could not be repaired: {error:#}", finding.message);
                finding
            }
        }
    }
}

impl Repair {
    /// Makes the repair and describes it.
    fn apply(&self, home: &Home) -> anyhow::Result<String> {
        match self {
            Self::Mode { path, mode } => {
                // The owner may have replaced the path of the home by a link.
                let real = if path == home.dir() { fs::canonicalize(path) } else { Ok(path.clone()) };
                real.and_then(|real| modes::set_mode(&real, *mode))?;
                Ok(format!("chmod {mode:o} {}", path.display()))
            }
            Self::Remove(paths) => {
                for path in paths {
                    let removed = if path.is_dir() { guard::remove_tree(path) } else { fs::remove_file(path) };
                    removed.map_err(|error| anyhow!("{}: {error}", path.display()))?;
                }
                Ok(format!("removed {}", paths.len()))
            }
            Self::RemoveSocket => {
                let _lock = home.lock_for_command()?;
                fs::remove_file(home.socket())?;
                Ok(format!("removed {}", home.socket().display()))
            }
            Self::CreateHome => {
                Home::open(Some(home.dir().to_owned()))?;
                Ok(format!("created {}", home.dir().display()))
            }
            Self::CreateToken => {
                // An empty file prevents the creation of a new token.
                if home.token().is_err() {
                    fs::remove_file(home.token_file())?;
                }
                home.token()?;
                Ok(format!("created {}", home.token_file().display()))
            }
            Self::RebuildIndex(identities) => {
                let _lock = home.lock_for_command()?;
                let rebuild = |connection: &Connection| rebuild_index(connection, identities);
                write_alone(&home.database(), rebuild)?;
                Ok("the index was rebuilt from the messages and memories".to_owned())
            }
            Self::SalvageDatabase(reason) => {
                let _lock = home.lock_for_command()?;
                repair(&home.database(), reason)?;
                Ok("the damaged file is kept aside, what could be read was taken over; daoyou status says what is lost"
                    .to_owned())
            }
            Self::FillWorkspace(path) => {
                let written = prepare_workspace(path)?;
                Ok(format!("wrote {} files of the template", written.len()))
            }
        }
    }
}
