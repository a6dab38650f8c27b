//! The labelled cases.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;

/// A question about the result of a tool, and the lines that answer it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub id: String,
    /// The language of the question: `en` or `zh`.
    pub language: String,
    pub tool: String,
    #[serde(default = "no_arguments")]
    pub arguments: serde_json::Value,
    /// The captured output of a command that other machines cannot repeat.
    pub output: Option<String>,
    /// The page that `web_fetch` fetches.
    pub page: Option<String>,
    pub question: String,
    /// Parts of the lines that the answer needs, one part for each line.
    pub answer: Vec<String>,
    #[serde(default)]
    pub held_out: bool,
}

#[derive(Deserialize)]
struct CaseFile {
    case: Vec<Case>,
}

fn no_arguments() -> serde_json::Value {
    serde_json::json!({})
}

/// Returns the folder of the corpus.
pub fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/results/corpus")
}

/// Reads all cases, in the order of their files.
pub fn read_cases() -> Result<Vec<Case>> {
    let folder = corpus().join("cases");
    let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file)?;
        let read: CaseFile = toml::from_str(&text).with_context(|| file.display().to_string())?;
        cases.extend(read.case);
    }
    Ok(cases)
}
