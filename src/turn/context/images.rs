//! Loads the images of a conversation from the workspace for a model call.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::chat::{ChatMessage, ImageRef, MAX_IMAGE_BYTES};
use crate::guard::Jail;
use crate::llm::{Image, Images};
use crate::tools::CONVERSATIONS;

/// The maximum size, in bytes, of all images of a request; Anthropic accepts requests of 32 MB.
const TOGETHER: usize = 15_000_000;
/// The maximum number of images of one request.
const MOST: usize = 8;
/// Images are left out in steps of this size. The beginning of requests then stays the same for some turns, and the service's prompt
/// cache hits.
const STEP: usize = 4;

/// Reads images of the workspace. The agent's commands can replace a file with a link, so the loader follows no link. It reads no
/// private folder except those of conversations, since a conversation names only its own images.
pub struct ImageLoader {
    jail: Arc<Jail>,
}

impl ImageLoader {
    /// Opens the workspace for loading images. The `closed` folders are private.
    ///
    /// # Errors
    /// When the workspace is not a folder that can be opened.
    pub fn open(workspace: &Path, closed: &[PathBuf]) -> io::Result<Self> {
        let jail = Jail::open_strict(workspace, Vec::new(), MAX_IMAGE_BYTES)?.with_closed(closed);
        Ok(Self { jail: Arc::new(jail.with_reopened(&[CONVERSATIONS])) })
    }

    /// Loads the newest images that `messages` name, up to the limits; reuses the images in `loaded`. A file that is missing, too
    /// large or not an image is skipped; its name stays in the text.
    pub async fn load(&self, messages: &[Arc<ChatMessage>], loaded: &LoadedImages) -> Images {
        let wanted: Vec<String> = newest(messages).into_iter().map(|image| image.path.clone()).collect();
        let mut loaded = loaded.0.lock().await;
        if loaded.0 != wanted {
            let (jail, paths) = (self.jail.clone(), wanted.clone());
            let images = tokio::task::spawn_blocking(move || read(&jail, paths)).await.unwrap_or_else(|error| {
                tracing::error!(%error, "reading the images of a conversation failed");
                Images::default()
            });
            *loaded = (wanted, images);
        }
        loaded.1.clone()
    }
}

/// The paths and the images that a turn has loaded last.
#[derive(Default)]
pub struct LoadedImages(tokio::sync::Mutex<(Vec<String>, Images)>);

/// Adds a user's message with images after the tool results that name them: services accept images only from the user.
pub fn with_images_of_results(messages: Vec<Arc<ChatMessage>>) -> Vec<Arc<ChatMessage>> {
    let mut shown = Vec::with_capacity(messages.len());
    let mut seen: Vec<ImageRef> = Vec::new();
    for message in messages {
        if !matches!(*message, ChatMessage::Tool { .. }) {
            shown.extend(message_of(std::mem::take(&mut seen)));
        }
        if let ChatMessage::Tool { images, .. } = &*message {
            seen.extend(images.iter().cloned());
        }
        shown.push(message);
    }
    shown.extend(message_of(seen));
    shown
}

fn message_of(images: Vec<ImageRef>) -> Option<Arc<ChatMessage>> {
    let names: Vec<&str> = images.iter().map(|image| image.path.as_str()).collect();
    let content = format!("[{}: read by the calls above]", names.join(", "));
    (!images.is_empty()).then(|| Arc::new(ChatMessage::User { content, images }))
}

/// Returns the newest images, at most `MOST`; the oldest are left out in steps of `STEP`.
fn newest(messages: &[Arc<ChatMessage>]) -> Vec<&ImageRef> {
    let all: Vec<&ImageRef> = messages.iter().flat_map(|message| images_of(message)).collect();
    all[first(all.len(), all.len().saturating_sub(MOST))..].to_vec()
}

/// Returns the index of the first of `count` images that is sent, if at least the first `least` are left out.
fn first(count: usize, least: usize) -> usize {
    let rounded = least.next_multiple_of(STEP);
    if rounded < count { rounded } else { least }
}

pub fn images_of(message: &ChatMessage) -> &[ImageRef] {
    match message {
        ChatMessage::User { images, .. } | ChatMessage::Tool { images, .. } => images,
        ChatMessage::Assistant { .. } => &[],
    }
}

fn read(jail: &Jail, wanted: Vec<String>) -> Images {
    let load = |path: String| match jail.read(&path) {
        Ok(opened) => Image::of(&opened.bytes).map(|image| (path, image)),
        Err(error) => {
            tracing::debug!(%error, "an image is not shown to the model");
            None
        }
    };
    // Base64 has four characters for three bytes.
    let bytes = |(_, image): &(String, Image)| image.base64().len() / 4 * 3;
    let images: Vec<_> = wanted.into_iter().filter_map(load).collect();
    let mut together = 0;
    let fitting = images.iter().rev().take_while(|image| {
        together += bytes(image);
        together <= TOGETHER
    });
    let cut = images.len() - fitting.count();
    let from = first(images.len(), cut);
    images.into_iter().skip(from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user_message(paths: &[&str]) -> Arc<ChatMessage> {
        let image = |path: &&str| ImageRef { path: (*path).to_owned(), media_type: "image/png".to_owned() };
        ChatMessage::User { content: "look".to_owned(), images: paths.iter().map(image).collect() }.into()
    }

    #[test]
    fn the_newest_images_are_sent_and_the_cut_moves_in_steps() {
        let shown = |count: usize| {
            let messages: Vec<_> = (0..count).map(|n| user_message(&[&n.to_string()])).collect();
            newest(&messages).first().map_or(0, |image| image.path.parse::<usize>().unwrap())
        };
        let starts: Vec<usize> = (0..18).map(shown).collect();
        assert_eq!(starts, [0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12]);
    }

    #[tokio::test]
    async fn only_images_of_the_workspace_are_read() {
        let outside = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
        put("a.png", b"\x89PNG\r\n\x1a\nxyz");
        put("b.png", b"no picture");
        put("c.gif", &[b"GIF89a".as_slice(), &vec![0; 3_700_000]].concat());
        std::fs::write(outside.path().join("d.gif"), b"GIF89a").unwrap();
        std::os::unix::fs::symlink(outside.path().join("d.gif"), folder.path().join("d.gif")).unwrap();
        let out = format!("../{}/d.gif", outside.path().file_name().unwrap().to_string_lossy());
        let messages = [
            user_message(&["a.png", "b.png", "c.gif"]),
            ChatMessage::assistant("hm").into(),
            user_message(&["d.gif", "gone", &out]),
        ];
        let images = ImageLoader::open(folder.path(), &[]).unwrap().load(&messages, &LoadedImages::default()).await;
        let paths: Vec<_> = images.digests().into_iter().map(|(path, _)| path.to_owned()).collect();
        assert_eq!(paths, ["a.png"]);
    }

    #[tokio::test]
    async fn of_the_private_folders_only_those_of_conversations_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["memory/a.gif", ".daoyou/trash/b.gif", ".daoyou/conversations/c/images/c.gif"];
        for path in paths {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, b"GIF89a").unwrap();
        }
        let loader = ImageLoader::open(folder.path(), &["memory", ".daoyou"].map(PathBuf::from)).unwrap();
        let images = loader.load(&[user_message(&paths)], &LoadedImages::default()).await;
        let seen: Vec<_> = images.digests().into_iter().map(|(path, _)| path.to_owned()).collect();
        assert_eq!(seen, [paths[2]]);
    }

    #[test]
    fn the_bytes_of_all_images_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let large = [b"GIF89a".as_slice(), &vec![0; 3_600_000]].concat();
        let names: Vec<String> = (0..6).map(|n| format!("{n}.gif")).collect();
        for name in &names {
            std::fs::write(folder.path().join(name), &large).unwrap();
        }
        let jail = Jail::open_strict(folder.path(), Vec::new(), MAX_IMAGE_BYTES).unwrap();
        assert_eq!(read(&jail, names[..4].to_vec()).len(), 4);
        assert_eq!(read(&jail, names).len(), 2, "cut in steps");
    }
}
