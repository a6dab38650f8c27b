//! What the user said, with the pictures that came along.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

use crate::chat::ImageRef;
use crate::llm::{Image, Images};

/// Plain text where there are no pictures: not every server knows parts.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum UserContent<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Part<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl<'a> },
}

#[derive(Serialize)]
pub(super) struct ImageUrl<'a> {
    #[serde(serialize_with = "data_url")]
    url: &'a Image,
}

impl<'a> UserContent<'a> {
    /// `text`, and those of its pictures that are in `images`.
    pub(super) fn new(text: &'a str, wanted: &'a [ImageRef], images: &'a Images) -> Self {
        let mut pictures =
            images.of(wanted).map(|image| Part::ImageUrl { image_url: ImageUrl { url: image } }).peekable();
        if pictures.peek().is_none() {
            return Self::Text(text.into());
        }
        let text = Some(text).filter(|text| !text.is_empty()).map(|text| Part::Text { text: text.into() });
        Self::Parts(text.into_iter().chain(pictures).collect())
    }

    /// Adds a paragraph.
    pub(super) fn push(&mut self, words: String) {
        match self {
            Self::Text(text) => {
                text.to_mut().push_str("\n\n");
                text.to_mut().push_str(&words);
            }
            Self::Parts(parts) => parts.push(Part::Text { text: words.into() }),
        }
    }
}

/// RFC 2397.
fn data_url<S: Serializer>(image: &&Image, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("data:{};base64,{}", image.media_type(), image.base64()))
}
