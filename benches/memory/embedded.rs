//! Embeddings of a service, requested as a gateway requests them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use daoyou::live::LivePart;
use daoyou::llm::{Embedder, EmbeddingDeadline, Models, ProviderConfig};
use daoyou::memory::vectors::EmbeddingIndexer;
use daoyou::memory::{Identities, MemoryConfig, MemoryService, MemorySettings};
use daoyou::store::search_index::{self, SearchCorpus};
use daoyou::store::vectors;
use daoyou_channels::text::Language;
use indexmap::IndexMap;
use jiff::tz::TimeZone;
use tokio_util::sync::CancellationToken;

use super::{BenchArguments, BenchStore};

/// If vectors are still missing after this time, the service does not work.
const LONGEST: Duration = Duration::from_secs(1_800);

/// A service that speaks OpenAI's `/embeddings`.
pub struct Service {
    url: String,
    model: String,
}

impl Service {
    pub fn of(arguments: &BenchArguments) -> Result<Option<Self>> {
        let Some(url) = arguments.embeddings.clone() else { return Ok(None) };
        let model = arguments.embeddings_model.clone();
        let model =
            model.context("--embeddings wants --embeddings-model NAME beside it: the name of what serves there")?;
        Ok(Some(Self { url, model }))
    }

    pub fn model(&self) -> &str {
        &self.model
    }

    /// Computes the vectors of everything searchable in the store. Returns the service that answers queries with them.
    pub async fn embed(&self, bench_store: &BenchStore) -> Result<Arc<MemoryService>> {
        let settings = MemorySettings {
            config: MemoryConfig::default(),
            identities: Identities::default(),
            language: Language::default(),
            zone: TimeZone::UTC,
            workspace: bench_store.folder.path().to_owned(),
        };
        let embedder = self.embedder()?;
        embedder.embed(&["hello"], EmbeddingDeadline::Usual).await.context("the service makes no vectors")?;
        let memory = Arc::new(MemoryService::new(bench_store.store.clone(), settings).with_embedder(Some(embedder)));
        let stop = CancellationToken::new();
        let indexer = tokio::spawn(EmbeddingIndexer::new(LivePart::fixed(memory.clone())).run(stop.clone()));
        let begun = Instant::now();
        while !bench_store
            .store
            .read(|connection| {
                let newest = search_index::highest_id(connection, SearchCorpus::Messages)?;
                Ok(vectors::indexed_up_to(connection)?.parse().is_ok_and(|done: i64| done >= newest))
            })
            .await?
        {
            if begun.elapsed() > LONGEST {
                bail!("{} does not make the vectors", self.url);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stop.cancel();
        indexer.await?;
        Ok(memory)
    }

    fn embedder(&self) -> Result<Embedder> {
        daoyou::llm::install_crypto();
        let config = ProviderConfig { base_url: Some(self.url.clone()), ..ProviderConfig::default() };
        let configs = IndexMap::from([("openai".to_owned(), config)]);
        let models = Models::build(&configs, |name| std::env::var(name).ok());
        let models = models.map_err(|faults| anyhow::anyhow!("{faults:?}"))?;
        models.embedder(&format!("openai/{}", self.model), 0).context("no vectors can be had")
    }
}
