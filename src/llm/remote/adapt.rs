//! Repeats a request without the part that a service refuses, and leaves that part out from then on.

use std::borrow::Cow;

use reqwest::Request;

use super::image_support::ImageObjection;
use super::provider::RemoteProvider;
use super::{AttemptError, ToolNames};
use crate::llm::{ChatRequest, Images, LlmErrorKind};

impl RemoteProvider {
    /// Returns the request in a form that the model accepts, after a refusal that names the fault; `None` if nothing can be
    /// changed.
    pub(super) fn adapted(
        &self,
        chat: &mut Cow<'_, ChatRequest>,
        names: &ToolNames,
        refused: &Request,
        fault: &AttemptError,
    ) -> Option<Request> {
        if let Some(again) = self.without_images(chat, names, refused, fault) {
            return Some(again);
        }
        // llama.cpp answers 500 if it was started without the option that tools need, and names the option.
        let lacks_switch = fault.kind == LlmErrorKind::Server && fault.message.contains("requires --");
        if fault.kind != LlmErrorKind::BadRequest && !lacks_switch {
            return None;
        }
        let sent = refused.body()?.as_bytes()?;
        let parsed = serde_json::from_slice(sent).ok();
        let change = parsed.and_then(|sent| self.dialect.learn(&chat.model, &sent, &fault.message));
        if !chat.tools.is_empty() && !self.dialect.takes_tools(&chat.model) {
            // Without tools, the model would answer something else. The caller can describe the tools in text instead.
            return None;
        }
        let again = self.prepare(chat, names).ok()?;
        // Another call may have learned the same meanwhile, so the comparison of the bodies decides.
        if again.body()?.as_bytes()? == sent {
            return None;
        }
        if let Some(change) = change {
            let error = self.error(fault.clone());
            tracing::warn!(provider = error.provider, model = chat.model, change, %error, "the service refuses a part of the request; retrying without it, and leaving it out from now on");
        }
        Some(again)
    }

    /// Returns the request without its images, if the refusal is about them.
    fn without_images(
        &self,
        chat: &mut Cow<'_, ChatRequest>,
        names: &ToolNames,
        refused: &Request,
        fault: &AttemptError,
    ) -> Option<Request> {
        if chat.images.is_empty() {
            return None;
        }
        let objection = ImageObjection::of(fault)?;
        chat.to_mut().images = Images::default();
        let again = self.prepare(chat, names).ok()?;
        if again.body()?.as_bytes()? == refused.body()?.as_bytes()? {
            return None;
        }
        let error = self.error(fault.clone());
        let (provider, model) = (&error.provider, &chat.model);
        match objection {
            ImageObjection::ToAny => {
                self.image_support.mark_refusing(model);
                tracing::warn!(provider, model, %error, "the model takes no images; retrying without them, and leaving them out from now on");
            }
            ImageObjection::ToThese => {
                tracing::warn!(provider, model, %error, "the service does not take these images; retrying without them");
            }
        }
        Some(again)
    }
}
