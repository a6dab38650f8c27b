//! `[otel]`: where telemetry goes.

use std::collections::BTreeMap;
use std::time::Duration;

use daoyou_channels::settings::{HumanDuration, Secret, SettingFault, join_key};
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::guard::mask_url;

/// `[otel]`: OpenTelemetry by OTLP over HTTP.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OtelConfig {
    /// The address of a collector, to which `/v1/traces` and `/v1/metrics` are added; empty: nothing is sent.
    pub endpoint: String,
    /// HTTP headers of each request, such as a key of the service.
    pub headers: BTreeMap<String, Secret>,
    /// The name of this gateway there.
    #[default = "daoyou"]
    pub service_name: String,
    /// Each turn is sent as a trace.
    #[default = true]
    pub traces: bool,
    /// The metrics are sent.
    #[default = true]
    pub metrics: bool,
    /// How often the metrics are sent.
    #[default(HumanDuration::from_secs(60))]
    pub interval: HumanDuration,
}

impl OtelConfig {
    /// Returns the faults. Their keys are relative to `[otel]`.
    pub fn faults(&self) -> Vec<SettingFault> {
        let mut found = Vec::new();
        if !self.endpoint.is_empty() {
            let url = Url::parse(&self.endpoint).ok();
            let is_usable = |url: &Url| {
                let is_bare = url.query().is_none() && url.fragment().is_none();
                matches!(url.scheme(), "http" | "https")
                    && is_bare
                    && url.username().is_empty()
                    && url.password().is_none()
            };
            if url.as_ref().is_none_or(|url| !is_usable(url)) {
                let wrong = format!("{:?} is not the address of a collector", mask_url(&self.endpoint));
                let allowed = "an address such as \"http://127.0.0.1:4318\"; keys and passwords go into otel.headers";
                found.push(SettingFault::new(&["endpoint"], wrong, allowed));
            }
        }
        for (name, value) in &self.headers {
            let is_name = HeaderName::try_from(name.as_str()).is_ok();
            if !is_name || HeaderValue::try_from(value.expose()).is_err() {
                let part = if is_name { "value" } else { "name" };
                let wrong = format!("this {part} cannot be in a header");
                found.push(SettingFault::new(&[&join_key("headers", name)], wrong, "printable ASCII"));
            }
        }
        if self.interval.0 < Duration::from_secs(1) || self.interval.0 > Duration::from_secs(86_400) {
            let wrong = format!("{} is too short or too long", self.interval);
            found.push(SettingFault::new(&["interval"], wrong, "from \"1s\" to \"1d\""));
        }
        found
    }
}
