//! Measures how well and how fast memory finds entries: `cargo xtask bench memory [--locomo FILE [--embeddings URL
//! --embeddings-model NAME]] [--quick | --choose]`. Prints the section of `docs/benchmarks.md`. Index and vectors are built
//! as a gateway builds them. With `--choose` it prints what other weights of recall would find.
#![expect(clippy::print_stdout, reason = "the bench's output")]

#[expect(clippy::allow_attributes, reason = "the stories use the rest")]
#[allow(dead_code, unused_imports, clippy::print_stdout, reason = "a tool box: the bench uses a part of it")]
#[path = "../../tests/support/mod.rs"]
mod support;

mod bilingual;
mod embedded;
mod locomo;
mod speed;
mod survival;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use daoyou::memory::{MemoryOwner, RecallQuery};
use daoyou::store::{Connection, Store};
use embedded::Service;
use tempfile::TempDir;

/// The parsed command line.
#[derive(Default)]
struct BenchArguments {
    locomo: Option<PathBuf>,
    /// The URL of a service with OpenAI's `/embeddings`, and its model.
    embeddings: Option<String>,
    embeddings_model: Option<String>,
    is_quick: bool,
    is_choosing: bool,
}

impl BenchArguments {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut arguments = Self::default();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--locomo" => {
                    let file = words.next().context("--locomo wants the path of locomo10.json behind it")?;
                    arguments.locomo = Some(file.into());
                }
                "--embeddings" => {
                    let url = words.next().context("--embeddings wants the address of a service behind it")?;
                    arguments.embeddings = Some(url);
                }
                "--embeddings-model" => {
                    let model = words.next().context("--embeddings-model wants a name behind it")?;
                    arguments.embeddings_model = Some(model);
                }
                "--quick" => arguments.is_quick = true,
                "--choose" => arguments.is_choosing = true,
                // cargo passes this argument to every benchmark.
                "--bench" => {}
                other => {
                    bail!(
                        "the memory bench knows --locomo FILE, --embeddings URL, --embeddings-model NAME, --quick and --choose, not {other}"
                    )
                }
            }
        }
        Ok(arguments)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = BenchArguments::read(std::env::args().skip(1))?;
    let service = Service::of(&arguments)?;
    if arguments.is_choosing {
        let file = arguments.locomo.as_deref().context("--choose wants --locomo FILE beside it")?;
        println!("{}", locomo::choose(file, service.as_ref()).await?);
        return Ok(());
    }
    println!("Unless stated otherwise, search uses only words: no vectors and no model.\n");
    if let Some(file) = &arguments.locomo {
        println!("{}", locomo::measure(file, service.as_ref(), arguments.is_quick).await?);
    }
    println!("{}", bilingual::measure().await?);
    println!("{}", survival::measure().await?);
    println!("{}", speed::measure(if arguments.is_quick { 10_000 } else { 100_000 }).await?);
    Ok(())
}

/// A temporary store, removed at the end.
struct BenchStore {
    store: Store,
    folder: TempDir,
}

impl BenchStore {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let store = Store::open(&folder.path().join("daoyou.db"))?;
        Ok(Self { store, folder })
    }

    /// Fills the store in one write, bypassing the gateway.
    async fn fill<T: Send + 'static>(
        &self,
        fill: impl FnMut(&Connection) -> Result<T, daoyou::store::StoreError> + Send + 'static,
    ) -> Result<T> {
        Ok(self.store.write(daoyou::store::Durability::Logged, fill).await?)
    }
}

fn ask(text: &str, owners: Vec<MemoryOwner>, limit: usize) -> RecallQuery {
    RecallQuery {
        text: text.to_owned(),
        owners,
        kinds: daoyou::memory::MemoryKind::ALL.to_vec(),
        messages: true,
        session: None,
        since: None,
        until: None,
        least: 0.0,
        limit,
    }
}

/// Estimates the tokens of an English text, at four characters each.
fn tokens(text: &str) -> f64 {
    as_f64(text.chars().count()) / 4.0
}

#[expect(clippy::cast_precision_loss, reason = "counts of a bench")]
fn as_f64(count: usize) -> f64 {
    count as f64
}
