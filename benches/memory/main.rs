//! Measures how well and how fast memory finds: `cargo xtask bench memory [--locomo FILE] [--quick]`. Prints the section of
//! `docs/benchmarks.md`. The index is the real one, filled as a gateway fills it; only words are used.
#![expect(clippy::print_stdout, reason = "the bench's output")]

mod bilingual;
mod locomo;
mod speed;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use daoyou::memory::{Ask, Owner};
use daoyou::store::{Connection, Store};
use tempfile::TempDir;

/// What was asked for on the command line.
#[derive(Default)]
struct Arguments {
    locomo: Option<PathBuf>,
    is_quick: bool,
}

impl Arguments {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut arguments = Self::default();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--locomo" => {
                    let file = words.next().context("--locomo wants the path of locomo10.json behind it")?;
                    arguments.locomo = Some(file.into());
                }
                "--quick" => arguments.is_quick = true,
                // cargo bench says so to every bench.
                "--bench" => {}
                other => bail!("the memory bench knows --locomo FILE and --quick, not {other}"),
            }
        }
        Ok(arguments)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::read(std::env::args().skip(1))?;
    println!("Found by words alone: no vectors, no model.\n");
    if let Some(file) = &arguments.locomo {
        println!("{}", locomo::measure(file, arguments.is_quick).await?);
    }
    println!("{}", bilingual::measure().await?);
    println!("{}", speed::measure(if arguments.is_quick { 10_000 } else { 100_000 }).await?);
    Ok(())
}

/// A store of its own, removed at the end.
struct World {
    store: Store,
    _folder: TempDir,
}

impl World {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let store = Store::open(&folder.path().join("daoyou.db"))?;
        Ok(Self { store, _folder: folder })
    }

    /// Fills the store in one write, outside of the ways that a gateway has.
    async fn fill<T: Send + 'static>(
        &self,
        fill: impl FnOnce(&Connection) -> Result<T, daoyou::store::StoreError> + Send + 'static,
    ) -> Result<T> {
        Ok(self.store.write(daoyou::store::Commit::Logged, fill).await?)
    }
}

fn ask(text: &str, owners: Vec<Owner>, limit: usize) -> Ask {
    Ask {
        text: text.to_owned(),
        owners,
        kinds: daoyou::memory::Kind::ALL.to_vec(),
        messages: true,
        session: None,
        since: None,
        until: None,
        least: 0.0,
        limit,
    }
}

/// About so many tokens has a text: four characters of English each.
fn tokens(text: &str) -> f64 {
    as_f64(text.chars().count()) / 4.0
}

#[expect(clippy::cast_precision_loss, reason = "counts of a bench")]
fn as_f64(count: usize) -> f64 {
    count as f64
}
