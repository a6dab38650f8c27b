//! The images in a tool's result. They are saved in the folder of the conversation, so that models that accept images get them
//! with the result.

use std::io;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::chat::{ImageRef, MAX_IMAGE_BYTES, SEEN_IMAGES};
use crate::text::format_size;
use crate::tools::{ToolContext, save_image};

/// The maximum number of images of one result that are saved.
const MAX_IMAGES: usize = 8;

/// An image of a result.
struct FoundImage {
    /// The index of the image among the parts.
    place: usize,
    media_type: &'static str,
    extension: &'static str,
    bytes: Vec<u8>,
}

/// Saves the images of a result, and replaces each with a line that contains its path. An image that no model accepts stays as it
/// is.
pub(super) async fn save_images(
    answer: &mut Value,
    workspace: PathBuf,
    context: &ToolContext,
    is_foreign: bool,
) -> Vec<ImageRef> {
    let Some(parts) = answer.get_mut("content").and_then(Value::as_array_mut) else { return Vec::new() };
    let found: Vec<FoundImage> = parts.iter().enumerate().filter_map(image_of).take(MAX_IMAGES).collect();
    if found.is_empty() {
        return Vec::new();
    }
    let of_call = context.clone();
    let save = move |(number, image): (usize, FoundImage)| {
        let name = (number + 1, image.extension);
        let path = save_image(&workspace, &of_call, name, &image.bytes, is_foreign)?;
        Ok((image.place, image.bytes.len() as u64, ImageRef { path, media_type: image.media_type.to_owned() }))
    };
    let saving = move || found.into_iter().enumerate().map(save).collect::<io::Result<Vec<_>>>();
    let saved = tokio::task::spawn_blocking(saving).await.map_err(io::Error::other).flatten();
    let saved = saved.unwrap_or_else(|error| {
        tracing::warn!(%error, "the images of a result could not be saved");
        Vec::new()
    });
    for (place, size, ImageRef { path, media_type }) in &saved {
        let line = format!("[image {path}, {media_type}, {}]", format_size(*size));
        parts[*place] = json!({ "type": "text", "text": line });
    }
    saved.into_iter().map(|(_, _, image)| image).collect()
}

/// Returns the image in a part; `None` if there is none that a model accepts.
fn image_of((place, part): (usize, &Value)) -> Option<FoundImage> {
    if part["type"] != "image" {
        return None;
    }
    let data = part["data"].as_str().filter(|data| data.len() as u64 / 4 * 3 <= MAX_IMAGE_BYTES)?;
    let bytes = STANDARD.decode(data).ok()?;
    let kind = infer::get(&bytes).filter(|kind| SEEN_IMAGES.contains(&kind.mime_type()))?;
    Some(FoundImage { place, media_type: kind.mime_type(), extension: kind.extension(), bytes })
}
