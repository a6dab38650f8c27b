//! The files of the page. A release build embeds them, a debug build reads them from the source folder.

use std::collections::HashMap;
use std::io::Write;
use std::sync::LazyLock;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use daoyou_channels::HttpError;
use daoyou_channels::text::{hex, truncate};
use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use rust_embed::RustEmbed;

/// The media types of the files, by file extension; all are texts that compress well. A file with another extension is not served.
const MEDIA_TYPES: [(&str, &str); 5] = [
    ("html", "text/html; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("svg", "image/svg+xml"),
    // The license texts of libraries.
    ("", "text/plain; charset=utf-8"),
];

#[derive(RustEmbed)]
#[folder = "src/http/page/assets/"]
#[exclude = "*.md"]
struct PageFiles;

/// The compressed files by name, with the tag of the uncompressed content. There are at most as many as files.
static COMPRESSED: LazyLock<Mutex<HashMap<String, (String, Bytes)>>> = LazyLock::new(Mutex::default);

pub fn routes() -> Router {
    Router::new()
        .route("/", get(async |headers: HeaderMap| serve("index.html", &headers)))
        .route("/favicon.ico", get(async || StatusCode::NO_CONTENT))
        .route("/assets/{*file}", get(async |Path(file): Path<String>, headers: HeaderMap| serve(&file, &headers)))
}

fn serve(name: &str, request: &HeaderMap) -> Result<Response, HttpError> {
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    let media_type = MEDIA_TYPES.iter().find(|(known, _)| *known == ending).map(|(_, media_type)| *media_type);
    let (Some(file), Some(media_type)) = (PageFiles::get(name), media_type) else {
        return Err(HttpError::not_found(format!("there is no file {:?} of the page", truncate(name, 200))));
    };
    // Two encodings of a file have two tags (RFC 9110, section 8.8.3.3).
    let is_compressed = accepts_gzip(request);
    let tag = &hex(&file.metadata.sha256_hash())[..32];
    let tag = format!("\"{tag}{}\"", if is_compressed { "-gz" } else { "" });
    let headers = [
        (header::CONTENT_TYPE, media_type.to_owned()),
        (header::ETAG, tag.clone()),
        (header::CACHE_CONTROL, "no-cache".to_owned()),
        (header::VARY, "accept-encoding".to_owned()),
    ];
    if has_tag(request, &tag) {
        return Ok((StatusCode::NOT_MODIFIED, headers).into_response());
    }
    if is_compressed {
        let encoding = [(header::CONTENT_ENCODING, "gzip")];
        return Ok((headers, encoding, compressed(name, tag, &file.data)).into_response());
    }
    Ok((headers, Bytes::from(file.data.into_owned())).into_response())
}

/// Returns the compressed file; each content is compressed only once.
fn compressed(name: &str, tag: String, content: &[u8]) -> Bytes {
    if let Some((_, bytes)) = COMPRESSED.lock().get(name).filter(|(known, _)| *known == tag) {
        return bytes.clone();
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to a vector cannot fail.
    let written = encoder.write_all(content).and_then(|()| encoder.finish());
    let bytes = Bytes::from(written.unwrap_or_default());
    COMPRESSED.lock().insert(name.to_owned(), (tag, bytes.clone()));
    bytes
}

fn accepts_gzip(request: &HeaderMap) -> bool {
    let fields = request.get_all(header::ACCEPT_ENCODING).iter().filter_map(|field| field.to_str().ok());
    let mut codings = fields.flat_map(|field| field.split(','));
    codings.any(|coding| {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        let refused =
            parameters.replace(' ', "").strip_prefix("q=").is_some_and(|q| q.trim_matches(['0', '.']).is_empty());
        name.trim().eq_ignore_ascii_case("gzip") && !refused
    })
}

fn has_tag(request: &HeaderMap, tag: &str) -> bool {
    let fields = request.get_all(header::IF_NONE_MATCH).iter().filter_map(|field| field.to_str().ok());
    let mut tags = fields.flat_map(|field| field.split(','));
    tags.any(|known| known.trim().trim_start_matches("W/") == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_say_whether_they_take_gzip() {
        for (field, expected) in [
            ("gzip, deflate, br", true),
            ("br;q=1.0, GZIP;q=0.8", true),
            ("gzip;q=0", false),
            ("gzip; q=0.000", false),
            ("br", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT_ENCODING, field.parse().unwrap())]);
            assert_eq!(accepts_gzip(&headers), expected, "{field:?}");
        }
    }

    #[test]
    fn every_file_of_the_page_has_a_media_type() {
        let files: Vec<_> = PageFiles::iter().collect();
        assert!(files.iter().any(|file| file == "index.html"));
        for file in files {
            assert!(serve(&file, &HeaderMap::new()).is_ok(), "{file}");
        }
        for missing in ["", "nothing.js", "../mod.rs", "/etc/hosts.json", "..%2fmod.rs"] {
            assert!(serve(missing, &HeaderMap::new()).is_err(), "{missing}");
        }
    }
}
