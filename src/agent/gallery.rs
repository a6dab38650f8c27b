//! The pictures of a conversation, read where they lie when the model is asked.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::chat::{ChatMessage, ImageRef};
use crate::guard::Jail;
use crate::llm::{Image, Images};

/// The largest picture that is sent, in bytes: Anthropic takes 5 MB of base64, the others more.
const LARGEST: u64 = 3_700_000;
/// All pictures of a request together, in bytes, within the 32 MB that Anthropic takes.
const TOGETHER: usize = 15_000_000;
/// Pictures of one request.
const MOST: usize = 8;
/// What is left out is left out by so many, so that requests keep their beginning for some turns and the service's cache
/// hits.
const STEP: usize = 4;

/// Reads pictures of the workspace. The agent's commands can put a link in a file's place: none is followed, and nothing private is
/// read.
pub struct Gallery {
    jail: Arc<Jail>,
}

impl Gallery {
    /// # Errors
    /// When the workspace is not a folder that can be opened.
    pub fn open(workspace: &Path, closed: &[PathBuf]) -> io::Result<Self> {
        Ok(Self { jail: Arc::new(Jail::of_gateway(workspace, LARGEST)?.without(closed)) })
    }

    /// The newest pictures that `messages` name, within bounds. One that is gone, too large, or no picture is left to the
    /// words that name it.
    pub async fn load(&self, messages: &[ChatMessage]) -> Images {
        let wanted: Vec<String> = newest(messages).into_iter().map(|image| image.path.clone()).collect();
        if wanted.is_empty() {
            return Images::default();
        }
        let jail = self.jail.clone();
        tokio::task::spawn_blocking(move || read(&jail, wanted)).await.unwrap_or_else(|error| {
            tracing::error!(%error, "reading the images of a conversation failed");
            Images::default()
        })
    }
}

/// Those that fit by their number: the last of all, cut at the front in steps.
fn newest(messages: &[ChatMessage]) -> Vec<&ImageRef> {
    let all: Vec<&ImageRef> = messages.iter().flat_map(images_of).collect();
    all[first(all.len(), all.len().saturating_sub(MOST))..].to_vec()
}

/// Where the pictures begin that are sent, of `count`, when those before `least` must go.
fn first(count: usize, least: usize) -> usize {
    let rounded = least.next_multiple_of(STEP);
    if rounded < count { rounded } else { least }
}

fn images_of(message: &ChatMessage) -> &[ImageRef] {
    match message {
        ChatMessage::User { images, .. } => images,
        _ => &[],
    }
}

fn read(jail: &Jail, wanted: Vec<String>) -> Images {
    let look = |path: String| match jail.read(&path) {
        Ok(opened) => Image::of(&opened.bytes).map(|image| (path, image)),
        Err(error) => {
            tracing::debug!(%error, "an image is not shown to the model");
            None
        }
    };
    // By base64: four characters for three bytes.
    let bytes = |(_, image): &(String, Image)| image.base64().len() / 4 * 3;
    let images: Vec<_> = wanted.into_iter().filter_map(look).collect();
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

    fn said(paths: &[&str]) -> ChatMessage {
        let image = |path: &&str| ImageRef { path: (*path).to_owned(), media_type: "image/png".to_owned() };
        ChatMessage::User { content: "look".to_owned(), images: paths.iter().map(image).collect() }
    }

    #[test]
    fn the_newest_few_are_shown_and_what_is_left_out_moves_in_steps() {
        let shown = |count: usize| {
            let messages: Vec<_> = (0..count).map(|n| said(&[&n.to_string()])).collect();
            newest(&messages).first().map_or(0, |image| image.path.parse::<usize>().unwrap())
        };
        let starts: Vec<usize> = (0..18).map(shown).collect();
        assert_eq!(starts, [0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12]);
    }

    #[tokio::test]
    async fn only_pictures_of_the_workspace_are_read() {
        let outside = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
        put("a.png", b"\x89PNG\r\n\x1a\nxyz");
        put("b.png", b"no picture");
        put("c.gif", &[b"GIF89a".as_slice(), &vec![0; 3_700_000]].concat());
        std::fs::write(outside.path().join("d.gif"), b"GIF89a").unwrap();
        std::os::unix::fs::symlink(outside.path().join("d.gif"), folder.path().join("d.gif")).unwrap();
        let out = format!("../{}/d.gif", outside.path().file_name().unwrap().to_string_lossy());
        let messages =
            [said(&["a.png", "b.png", "c.gif"]), ChatMessage::assistant("hm"), said(&["d.gif", "gone", &out])];
        let images = Gallery::open(folder.path(), &[]).unwrap().load(&messages).await;
        let paths: Vec<_> = images.digests().into_iter().map(|(path, _)| path.to_owned()).collect();
        assert_eq!(paths, ["a.png"]);
    }

    #[test]
    fn together_they_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let large = [b"GIF89a".as_slice(), &vec![0; 3_600_000]].concat();
        let names: Vec<String> = (0..6).map(|n| format!("{n}.gif")).collect();
        for name in &names {
            std::fs::write(folder.path().join(name), &large).unwrap();
        }
        let jail = Jail::of_gateway(folder.path(), LARGEST).unwrap();
        assert_eq!(read(&jail, names[..4].to_vec()).len(), 4);
        assert_eq!(read(&jail, names).len(), 2, "cut in steps");
    }
}
