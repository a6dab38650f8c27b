//! The cache key of a request.

use serde_json::json;

use super::ChatRequest;
use crate::cache::CacheKey;

/// Returns the key of a request to `provider`: a hash of everything that the answer may depend on. `as_asked` removes from a
/// user's message the parts that differ in each request and must not affect the key.
pub fn request_key(provider: &str, request: &ChatRequest, as_asked: impl Fn(&str) -> String) -> Option<CacheKey> {
    // The request is destructured, so that the compiler reports a new field that is not handled here.
    let ChatRequest { model, system, messages, images, tools, temperature, max_tokens } = request;
    let mut messages = serde_json::to_value(messages).ok()?;
    for message in messages.as_array_mut()? {
        if message["role"] == "user"
            && let Some(content) = message["content"].as_str()
        {
            message["content"] = as_asked(content).into();
        }
    }
    let tools = serde_json::to_value(&**tools).ok()?;
    let mut normal = json!([provider, model, &**system, messages, tools, temperature, max_tokens]);
    if !images.is_empty()
        && let Some(parts) = normal.as_array_mut()
    {
        parts.push(json!(images.digests()));
    }
    Some(CacheKey::of("response", &normal))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::chat::{ChatMessage, ToolSpec};
    use crate::llm::{Image, Images};

    #[test]
    fn every_part_of_a_request_counts_except_what_is_new_each_time() {
        let request = || ChatRequest {
            model: "m".to_owned(),
            system: "s".into(),
            messages: vec![ChatMessage::user("hi at 10:00").into()],
            temperature: Some(0.0),
            ..ChatRequest::default()
        };
        let key = |provider: &str, request: &ChatRequest| {
            request_key(provider, request, |text| text.split(" at ").next().unwrap_or_default().to_owned()).unwrap()
        };
        let usual = key("p", &request());
        let later = ChatRequest { messages: vec![ChatMessage::user("hi at 11:00").into()], ..request() };
        assert_eq!(key("p", &later), usual);
        assert_ne!(key("q", &request()), usual);
        let picture = |bytes: &[u8]| Images::from_iter([("a.gif".to_owned(), Image::of(bytes).unwrap())]);
        let tool = ToolSpec { name: "t".to_owned(), description: String::new(), parameters: json!({}) };
        for other in [
            ChatRequest { model: "n".to_owned(), ..request() },
            ChatRequest { system: "t".into(), ..request() },
            ChatRequest { messages: vec![ChatMessage::assistant("hi at 10:00").into()], ..request() },
            ChatRequest { tools: Arc::from([tool]), ..request() },
            ChatRequest { temperature: None, ..request() },
            ChatRequest { max_tokens: Some(1), ..request() },
            ChatRequest { images: picture(b"GIF89a 1"), ..request() },
        ] {
            assert_ne!(key("p", &other), usual, "{other:?}");
        }
        let [one, other] = [b"GIF89a 1", b"GIF89a 2"].map(|bytes| ChatRequest { images: picture(bytes), ..request() });
        assert_ne!(key("p", &one), key("p", &other));
    }
}
