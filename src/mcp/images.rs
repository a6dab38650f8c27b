//! The images in a tool's result: saved in the workspace, so that models that see get them with the result.

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use daoyou_channels::SessionKey;
use daoyou_channels::attachment_folder::{AttachmentFolder, IncomingFile};
use serde_json::{Value, json};

use crate::chat::ImageRef;
use crate::text::format_size;
use crate::tools::ToolContext;

/// The folder of the workspace for images of servers.
const FOLDER: &str = "mcp";
/// The most images of one result that are saved.
const MAX_IMAGES: usize = 8;
/// The largest image that models are sent, in bytes.
const MAX_BYTES: usize = 3_700_000;
/// The formats that models take, by what the bytes show.
const SEEN: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Saves the images of a result, and puts a line with its path in the place of each. An image that no model takes stays as it is.
pub(super) async fn save_images(answer: &mut Value, workspace: PathBuf, context: &ToolContext) -> Vec<ImageRef> {
    let Some(parts) = answer.get_mut("content").and_then(Value::as_array_mut) else { return Vec::new() };
    let found: Vec<(usize, IncomingFile)> = parts
        .iter()
        .enumerate()
        .filter_map(|(at, part)| Some((at, image_of(part)?)))
        .take(MAX_IMAGES)
        .enumerate()
        .map(|(number, (at, file))| (at, IncomingFile { name: format!("{}-{}", number + 1, file.name), ..file }))
        .collect();
    if found.is_empty() {
        return Vec::new();
    }
    let (places, files): (Vec<usize>, Vec<IncomingFile>) = found.into_iter().unzip();
    let (session, key) = (context.session.clone(), format!("{}:{}", context.turn, context.call_id));
    let saved = tokio::task::spawn_blocking(move || save(&workspace, &session, &key, &files)).await;
    let saved = saved.map_err(io::Error::other).flatten().unwrap_or_else(|error| {
        tracing::warn!(%error, "the images of a result could not be saved");
        Vec::new()
    });
    for (at, (image, size)) in places.into_iter().zip(&saved) {
        let line = format!(
            "[image {}, {}, {}; a model that sees gets it with this result]",
            image.path,
            image.media_type,
            format_size(*size)
        );
        parts[at] = json!({ "type": "text", "text": line });
    }
    saved.into_iter().map(|(image, _)| image).collect()
}

fn save(workspace: &Path, session: &SessionKey, key: &str, files: &[IncomingFile]) -> io::Result<Vec<(ImageRef, u64)>> {
    let saved = AttachmentFolder::open(workspace, FOLDER)?.save(session, key, files, "")?.attachments.into_iter();
    Ok(saved.map(|file| (ImageRef { path: file.path, media_type: file.media_type }, file.size)).collect())
}

/// Returns the image of a part; `None` if it is none that a model takes.
fn image_of(part: &Value) -> Option<IncomingFile> {
    if part["type"] != "image" {
        return None;
    }
    let data = part["data"].as_str().filter(|data| data.len() / 4 * 3 <= MAX_BYTES)?;
    let bytes = STANDARD.decode(data).ok()?;
    let kind = infer::get(&bytes).filter(|kind| SEEN.contains(&kind.mime_type()))?;
    let name = format!("image.{}", kind.extension());
    Some(IncomingFile { name, media_type: kind.mime_type().to_owned(), bytes })
}
