//! The tools over a copy of the sources, and the tiers of post-processing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use axum::Router;
use axum::extract;
use axum::http::{StatusCode, header};
use axum::routing::get;
use daoyou::chat::ToolCall;
use daoyou::llm::Models;
use daoyou::postprocess::{
    PostprocessConfig, PostprocessMode, Postprocessor, ResultSummarizer, SemanticFilter, SummaryConfig,
};
use daoyou::tools::{ToolContext, ToolDeps, ToolExecutor, ToolsConfig, build};
use indexmap::IndexMap;
use tempfile::TempDir;

use super::BenchArguments;
use super::cases::{Case, corpus};

/// A gateway home whose workspace holds the sources.
pub struct BenchWorkspace {
    pub executor: ToolExecutor,
    pub basic: Postprocessor,
    pub semantic: Option<Postprocessor>,
    pub llm: Option<Postprocessor>,
    pages: String,
    _home: TempDir,
}

impl BenchWorkspace {
    pub async fn build(arguments: &BenchArguments) -> Result<Self> {
        let home = tempfile::tempdir()?;
        let workspace = home.path().join("workspace");
        copy(&corpus().join("sources"), &workspace)?;
        let mut config = ToolsConfig::default();
        config.web.allow_private = vec!["127.0.0.1".to_owned()];
        let exe = PathBuf::from(env!("CARGO_BIN_EXE_daoyou"));
        let executor = build(&config, &workspace, home.path(), exe, ToolDeps::default())?;
        let models = Arc::new(models(arguments)?);
        let with_mode = |mode| PostprocessConfig { mode, ..PostprocessConfig::default() };
        let semantic = match &arguments.embeddings {
            Some((_, model)) => {
                let embedder = models.embedder(&format!("vectors/{model}"), 0)?;
                let semantic = Some(SemanticFilter::new(embedder));
                Some(Postprocessor::new(with_mode(PostprocessMode::Semantic), semantic, None))
            }
            None => None,
        };
        let llm = arguments.chat.as_ref().map(|(_, model)| {
            let tools = executor.registry().names().map(str::to_owned).collect();
            let model = format!("chat/{model}");
            let llm = SummaryConfig { model: model.clone(), tools, ..SummaryConfig::default() };
            let summarizer = ResultSummarizer { models: models.clone(), model, on_use: Arc::new(|_| {}) };
            let config = PostprocessConfig { llm, ..with_mode(PostprocessMode::Llm) };
            Postprocessor::new(config, None, Some(summarizer))
        });
        let pages = serve_pages().await?;
        Ok(Self {
            executor,
            basic: Postprocessor::new(PostprocessConfig::default(), None, None),
            semantic,
            llm,
            pages,
            _home: home,
        })
    }

    /// Returns the complete result of the tool of a case.
    pub async fn result(&self, case: &Case) -> Result<String> {
        if let Some(output) = &case.output {
            return fs::read_to_string(corpus().join(output)).with_context(|| output.clone());
        }
        let mut arguments = case.arguments.clone();
        if let Some(page) = &case.page {
            arguments["url"] = format!("{}/{page}", self.pages).into();
        }
        let call = ToolCall { id: "call_1".to_owned(), name: case.tool.clone(), arguments: arguments.to_string() };
        let result = self.executor.run_whole(&call, &context()).await.result;
        if !result.success {
            bail!("{}: {}", case.id, result.render());
        }
        Ok(result.content)
    }
}

/// Returns the context of the owner's calls.
pub fn context() -> ToolContext {
    ToolContext { sender: "owner".to_owned(), ..ToolContext::of_owner("cli", "direct", "call_1") }
}

fn models(arguments: &BenchArguments) -> Result<Models> {
    let mut providers = IndexMap::new();
    for (name, service) in [("vectors", &arguments.embeddings), ("chat", &arguments.chat)] {
        if let Some((url, _)) = service {
            let text = format!("kind = \"openai\"\nbase_url = {url:?}\napi_key = \"none\"\n");
            providers.insert(name.to_owned(), toml::from_str(&text)?);
        }
    }
    let built = Models::build(&providers, |_| None);
    built.map_err(|faults| {
        anyhow::anyhow!("{}", faults.iter().map(|fault| fault.wrong.clone()).collect::<Vec<_>>().join("; "))
    })
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Serves the pages of the corpus on loopback; returns the address.
async fn serve_pages() -> Result<String> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let app = Router::new().route("/{*page}", get(page));
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(format!("http://{address}"))
}

async fn page(
    extract::Path(page): extract::Path<String>,
) -> Result<([(header::HeaderName, &'static str); 1], Vec<u8>), StatusCode> {
    let bytes = std::fs::read(corpus().join("sources").join(&page)).map_err(|_| StatusCode::NOT_FOUND)?;
    let kind = if page.ends_with(".txt") || page.ends_with(".md") { "text/plain" } else { "text/html" };
    Ok(([(header::CONTENT_TYPE, kind)], bytes))
}
