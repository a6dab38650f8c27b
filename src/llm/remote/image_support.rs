//! Tracks which models of a provider accept images.

use super::{AttemptError, LearnedByModel};
use crate::llm::{LlmErrorKind, ModelFacts};

/// The image support of a provider's models, as configured, known, or learned from refusals.
#[derive(Debug, Default)]
pub(super) struct ImageSupport {
    /// The configured value. Without one, the table of models decides, and unknown models get no images.
    settled: Option<bool>,
    /// Models that have refused images.
    blind: LearnedByModel<()>,
}

/// The reason why images were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ImageObjection {
    /// The model accepts no images.
    ToAny,
    /// The images of this request are too large, broken, or too many.
    ToThese,
}

impl ImageSupport {
    pub(super) fn new(settled: Option<bool>) -> Self {
        Self { settled, ..Self::default() }
    }

    pub(super) fn takes_images(&self, model: &str) -> bool {
        let known = || ModelFacts::known("", model).abilities.is_some_and(|abilities| abilities.vision);
        self.settled.unwrap_or_else(known) && self.blind.get(model).is_none()
    }

    /// Records that `model` accepts no images.
    pub(super) fn mark_refusing(&self, model: &str) {
        self.blind.learn(model, (), |_| Some(()));
    }
}

impl ImageObjection {
    /// Returns the objection to images in `fault`, the refusal of a request with images; `None` if the refusal is about
    /// something else.
    pub(super) fn of(fault: &AttemptError) -> Option<Self> {
        match fault.kind {
            // llama.cpp and Ollama answer 500 if a model accepts no images.
            LlmErrorKind::BadRequest | LlmErrorKind::Server => Self::in_words(&fault.message.to_lowercase()),
            // A request that is too long is first retried without its images.
            LlmErrorKind::ContextTooLong => Some(Self::ToThese),
            _ => None,
        }
    }

    fn in_words(words: &str) -> Option<Self> {
        /// Phrases about images, or about content parts in place of plain text.
        const TOPIC: [&str; 10] = [
            "image", "multimodal", "multi-modal", "vision", "content.type", "must be a string", "expected a string",
            "be a valid string", "图片", "图像",
        ];
        const THESE: [&str; 12] = [
            "too large", "too big", "exceed", "dimension", "pixel", "format", "could not process", "unable to process",
            "decode", "corrupt", "invalid image", "image data",
        ];
        const ANY: [&str; 16] = [
            "not support", "n't support", "unsupported", "only supported", "no endpoints", "unknown variant",
            "not enabled", "at most 0", "not a multi", "not multi", "must be one of", "string", "content.type",
            "mmproj", "not allowed", "data required for image",
        ];
        let says = |phrases: &[&str]| phrases.iter().any(|phrase| words.contains(phrase));
        if !says(&TOPIC) {
            return None;
        }
        // Any other text about images also means that the request may succeed without them.
        Some(if says(&ANY) && !says(&THESE) { Self::ToAny } else { Self::ToThese })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_decides_about_images_unless_the_configuration_or_a_refusal_does() {
        for (settled, model, expected) in [
            (None, "gpt-5", true),
            (None, "claude-sonnet-5", true),
            (None, "deepseek-v4-pro", false),
            (None, "of-ones-own", false),
            (Some(true), "of-ones-own", true),
            (Some(false), "gpt-5", false),
        ] {
            let image_support = ImageSupport::new(settled);
            assert_eq!(image_support.takes_images(model), expected, "{settled:?} {model}");
            image_support.mark_refusing(model);
            assert!(!image_support.takes_images(model), "{model}");
        }
    }

    #[test]
    fn refusals_concern_the_model_or_the_images() {
        use ImageObjection::*;
        for (words, expected) in [
            ("Invalid content type. image_url is only supported by certain models.", Some(ToAny)),
            ("messages[1]: unknown variant `image_url`, expected `text` at line 1 column 9", Some(ToAny)),
            ("At most 0 image(s) may be provided in one request.", Some(ToAny)),
            ("m is not a multimodal model", Some(ToAny)),
            ("image input is not supported - hint: you may need to provide the mmproj", Some(ToAny)),
            ("No endpoints found that support image input", Some(ToAny)),
            ("messages[1].content must be a string", Some(ToAny)),
            ("invalid type: sequence, expected a string at line 1", Some(ToAny)),
            ("Image input is not enabled for this model", Some(ToAny)),
            ("this model does not support images", Some(ToAny)),
            ("messages.content.type 参数非法，取值范围 ['text']", Some(ToAny)),
            ("messages.0.content.0.image.source.base64: image exceeds 5 MB maximum", Some(ToThese)),
            ("Could not process image", Some(ToThese)),
            ("You uploaded an unsupported image. Please make sure it has of one the following formats", Some(ToThese)),
            ("At least one of the image dimensions exceed max allowed size: 8000 pixels", Some(ToThese)),
            ("The image is funny", Some(ToThese)),
            ("temperature is not supported", None),
            ("", None),
        ] {
            let fault = AttemptError::new(LlmErrorKind::BadRequest, words);
            assert_eq!(ImageObjection::of(&fault), expected, "{words}");
        }
        assert_eq!(ImageObjection::of(&AttemptError::new(LlmErrorKind::ContextTooLong, "")), Some(ToThese));
        assert_eq!(ImageObjection::of(&AttemptError::new(LlmErrorKind::RateLimit, "images")), None);
    }
}
