//! Measures what post-processing saves and loses: `cargo xtask bench results [--embeddings URL --embeddings-model NAME]
//! [--chat URL --chat-model NAME] [--cases]`. Prints the section of `docs/benchmarks.md`. The cases and their sources are in `corpus/`; the
//! tools are the real ones. With `--cases` it also lists each case.
#![expect(clippy::print_stdout, reason = "the bench's output")]

mod cases;
mod measure;
mod report;
mod workspace;

use anyhow::{Context, Result, bail};

use cases::read_cases;
use measure::{MeasuredCase, measure, speed};
use workspace::BenchWorkspace;

/// The parsed command line.
#[derive(Default)]
pub struct BenchArguments {
    /// The URL of a service with OpenAI's `/embeddings`, and its model.
    pub embeddings: Option<(String, String)>,
    /// The URL of a service with OpenAI's `/chat/completions`, and its model.
    pub chat: Option<(String, String)>,
    pub is_listing_cases: bool,
}

impl BenchArguments {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let (mut arguments, mut values) = (Self::default(), std::collections::HashMap::new());
        while let Some(word) = words.next() {
            match word.as_str() {
                "--embeddings" | "--embeddings-model" | "--chat" | "--chat-model" => {
                    let value = words.next().with_context(|| format!("{word} wants a value behind it"))?;
                    values.insert(word, value);
                }
                "--cases" => arguments.is_listing_cases = true,
                // cargo passes this argument to every benchmark.
                "--bench" => {}
                other => bail!(
                    "bench results knows --embeddings URL, --embeddings-model NAME, --chat URL, --chat-model NAME and --cases, not {other}"
                ),
            }
        }
        let mut pair = |url: &str, model: &str| match (values.remove(url), values.remove(model)) {
            (Some(url), Some(model)) => Ok(Some((url, model))),
            (None, None) => Ok(None),
            _ => bail!("{url} and {model} belong together"),
        };
        arguments.embeddings = pair("--embeddings", "--embeddings-model")?;
        arguments.chat = pair("--chat", "--chat-model")?;
        Ok(arguments)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    daoyou::llm::install_crypto();
    let arguments = BenchArguments::read(std::env::args().skip(1))?;
    let workspace = BenchWorkspace::build(&arguments).await?;
    let mut measured: Vec<MeasuredCase> = Vec::new();
    for case in read_cases()? {
        let done = measure(&workspace, case).await?;
        if arguments.is_listing_cases {
            let MeasuredCase { case, truncated, basic, lost, keywords, .. } = &done;
            println!(
                "- {}: {} to {} tokens; lost {lost:?}; keywords {keywords:?}",
                case.id, truncated.tokens, basic.tokens
            );
        }
        measured.push(done);
    }
    println!("{}", report::render(&measured, &speed(&workspace, &measured).await, &arguments));
    Ok(())
}
