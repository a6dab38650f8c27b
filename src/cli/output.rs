//! The output option that the commands share.

use clap::Args;

/// The format of printed data.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Output {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
