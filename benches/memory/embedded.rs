//! Embeddings of a service, requested as a gateway requests them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use daoyou::live::LivePart;
use daoyou::llm::{Embedder, EmbeddingDeadline, Models, ProviderConfig};
use daoyou::memory::vectors::EmbeddingIndexer;
use daoyou::memory::{Identities, MemoryConfig, MemoryService, MemorySettings};
use daoyou::store::search_index::SearchCorpus;
use daoyou::store::vectors;
use daoyou_channels::text::Language;
use indexmap::IndexMap;
use jiff::tz::TimeZone;
use tokio_util::sync::CancellationToken;

use super::{BenchArguments, World};

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

    /// Computes the vectors of everything searchable in `world`. Returns the service that answers queries with them.
    pub async fn embed(&self, world: &World) -> Result<Arc<MemoryService>> {
        let terms = MemorySettings {
            config: MemoryConfig::default(),
            identities: Identities::default(),
            language: Language::default(),
            zone: TimeZone::UTC,
            workspace: world.folder.path().to_owned(),
        };
        let embedder = self.embedder()?;
        embedder.embed(&["hello"], EmbeddingDeadline::Usual).await.context("the service makes no vectors")?;
        let desk = Arc::new(MemoryService::new(world.store.clone(), terms).with_embedder(Some(embedder)));
        let stop = CancellationToken::new();
        let keeper = tokio::spawn(EmbeddingIndexer::new(LivePart::fixed(desk.clone())).run(stop.clone()));
        let begun = Instant::now();
        while !world
            .store
            .read(|connection| {
                let newest = vectors::newest(connection, SearchCorpus::Messages)?;
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
        keeper.await?;
        Ok(desk)
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
