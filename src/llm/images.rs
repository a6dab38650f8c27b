//! Images that are sent with a request.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::chat::ImageRef;

/// An image in a format that services take: PNG, JPEG, GIF or WebP.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    media_type: &'static str,
    base64: String,
}

impl Image {
    /// Detects the format from the first bytes; `None` if the format is not supported.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let media_type = match bytes {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => "image/png",
            [0xff, 0xd8, 0xff, ..] => "image/jpeg",
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => "image/gif",
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
            _ => return None,
        };
        Some(Self { media_type, base64: STANDARD.encode(bytes) })
    }

    /// Returns the media type, such as `image/png`.
    pub fn media_type(&self) -> &'static str {
        self.media_type
    }

    /// Returns the bytes as base64 with padding.
    pub fn base64(&self) -> &str {
        &self.base64
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({}, {} characters)", self.media_type, self.base64.len())
    }
}

/// The images of one request, by path. If an image of a message is missing here, the model only reads the text that names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Images(Arc<BTreeMap<String, Image>>);

impl Images {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the images of `wanted` that this collection has, in that order.
    pub fn of<'a>(&'a self, wanted: &'a [ImageRef]) -> impl Iterator<Item = &'a Image> + 'a {
        wanted.iter().filter_map(|image| self.0.get(&image.path))
    }

    /// Returns path and SHA-256 of each image, for comparing requests.
    pub fn digests(&self) -> Vec<(&str, String)> {
        let digest = |image: &Image| STANDARD.encode(Sha256::digest(image.base64.as_bytes()));
        self.0.iter().map(|(path, image)| (path.as_str(), digest(image))).collect()
    }
}

impl FromIterator<(String, Image)> for Images {
    fn from_iter<T: IntoIterator<Item = (String, Image)>>(images: T) -> Self {
        Self(Arc::new(images.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_of_an_image_is_detected_from_its_first_bytes() {
        for (bytes, expected) in [
            (&b"\x89PNG\r\n\x1a\n...."[..], Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a", Some("image/gif")),
            (b"GIF87a;", Some("image/gif")),
            (b"RIFF\0\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"RIFF\0\0\0\0WAVE", None),
            (b"<svg onload=alert(1)>", None),
            (b"\x89PNG", None),
            (b"", None),
        ] {
            assert_eq!(Image::of(bytes).map(|image| image.media_type()), expected, "{bytes:?}");
        }
    }
}
