//! Serves the pages of the corpus on loopback.

use anyhow::Result;
use axum::Router;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::routing::get;

use super::cases::corpus;

/// Starts the server; returns its address.
pub async fn serve() -> Result<String> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let app = Router::new().route("/{*page}", get(page));
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(format!("http://{address}"))
}

async fn page(Path(page): Path<String>) -> Result<([(header::HeaderName, &'static str); 1], Vec<u8>), StatusCode> {
    let bytes = std::fs::read(corpus().join("sources").join(&page)).map_err(|_| StatusCode::NOT_FOUND)?;
    let kind = if page.ends_with(".txt") || page.ends_with(".md") { "text/plain" } else { "text/html" };
    Ok(([(header::CONTENT_TYPE, kind)], bytes))
}
