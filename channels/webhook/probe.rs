//! Whether a webhook's receiver can be reached.

use reqwest::StatusCode;

use super::send::Callback;
use crate::finding::Finding;

const NAME: &str = "callback";

/// Asks the receiver of the replies, where there is one.
pub async fn callback(callback: Option<&Callback>) -> Finding {
    let Some(callback) = callback else {
        return Finding::ok(NAME, "no callback_url: replies are picked up");
    };
    let place = callback.place();
    match callback.ask().await {
        Ok(StatusCode::GONE) => Finding::fail(
            NAME,
            format!("{place} answers 410 Gone: it wants no more replies"),
            "set callback_url to the receiver's new address",
        ),
        Ok(status) if status.is_server_error() => Finding::warn(
            NAME,
            format!("{place} can be reached, and answers OPTIONS with {status}"),
            "look at the receiver's own log",
        ),
        // A receiver need not know OPTIONS; that it answered is all that is asked.
        Ok(status) => Finding::ok(NAME, format!("{place} can be reached (OPTIONS: {status})")),
        Err(reason) => Finding::fail(
            NAME,
            format!("{place}: {reason}"),
            "start the receiver, or set callback_url to where it is; replies wait meanwhile",
        ),
    }
}
