//! A service that refuses a part of a request is asked again at once without that part, and from then on.

use std::borrow::Cow;

use reqwest::Request;

use super::provider::RemoteProvider;
use super::sight::Objection;
use super::{Fault, ToolNames};
use crate::llm::{ChatRequest, Images, LlmErrorKind};

/// How often one call may be put otherwise; each refusal names one part of it.
pub(super) const CHANGES_LIMIT: u32 = 6;

impl RemoteProvider {
    /// The same request as this model takes it, after a refusal that told how; `None` where it told nothing that can be
    /// helped.
    pub(super) fn adapted(
        &self,
        chat: &mut Cow<'_, ChatRequest>,
        names: &ToolNames,
        refused: &Request,
        fault: &Fault,
    ) -> Option<Request> {
        if let Some(again) = self.without_images(chat, names, refused, fault) {
            return Some(again);
        }
        // llama.cpp answers 500 where it was started without the switch that tools need, and names the switch.
        let lacks_switch = fault.kind == LlmErrorKind::Server && fault.message.contains("requires --");
        if fault.kind != LlmErrorKind::BadRequest && !lacks_switch {
            return None;
        }
        let sent = refused.body()?.as_bytes()?;
        let change = self.dialect.learn(&chat.model, sent, &fault.message);
        if !chat.tools.is_empty() && !self.dialect.takes_tools(&chat.model) {
            // Without its tools the model would answer something else: whoever asked knows a better way.
            return None;
        }
        let again = self.prepare(chat, names).ok()?;
        // Another call may have learned it meanwhile: what counts is that something else is sent.
        if again.body()?.as_bytes()? == sent {
            return None;
        }
        if let Some(change) = change {
            let error = self.error(fault.clone());
            tracing::warn!(provider = error.provider, model = chat.model, change, %error, "the service refuses a part of the request; asked again without it, and so from now on");
        }
        Some(again)
    }

    /// The same request without its pictures, where the refusal speaks of them.
    fn without_images(
        &self,
        chat: &mut Cow<'_, ChatRequest>,
        names: &ToolNames,
        refused: &Request,
        fault: &Fault,
    ) -> Option<Request> {
        if chat.images.is_empty() {
            return None;
        }
        let objection = Objection::of(fault)?;
        chat.to_mut().images = Images::default();
        let again = self.prepare(chat, names).ok()?;
        if again.body()?.as_bytes()? == refused.body()?.as_bytes()? {
            return None;
        }
        let error = self.error(fault.clone());
        let (provider, model) = (&error.provider, &chat.model);
        match objection {
            Objection::ToAny => {
                self.sight.is_blind(model);
                tracing::warn!(provider, model, %error, "the model takes no images; asked again without them, and so from now on");
            }
            Objection::ToThese => {
                tracing::warn!(provider, model, %error, "the service does not take these images; asked again without them");
            }
        }
        Some(again)
    }
}
