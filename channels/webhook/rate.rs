//! Rate limits of a webhook: the setting, and the limiters that enforce it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use crate::client::ClientAddr;
use crate::rate_limit::{Quota, RateLimiter};
use crate::settings::string_setting;

/// The rate of failed requests of one client that are answered with the reason. Further ones get 429.
const FAILURES: Rate = Rate { count: 600, unit: &UNITS[1] };
/// The maximum number of clients whose failures are counted separately. All other clients share one count.
const MAX_CLIENTS: usize = 4_096;
/// The largest count of a rate.
const MAX_COUNT: u32 = 1_000_000;

/// A number of requests per second, minute or hour, written `"10/s"`, `"60/m"`, `"1000/h"`. All of them may come at once;
/// after that, one more is allowed whenever its share of the period has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    count: u32,
    unit: &'static RateUnit,
}

#[derive(Debug, PartialEq, Eq)]
struct RateUnit {
    name: &'static str,
    length: Duration,
}

const UNITS: &[RateUnit; 3] = &[
    RateUnit { name: "s", length: Duration::from_secs(1) },
    RateUnit { name: "m", length: Duration::from_secs(60) },
    RateUnit { name: "h", length: Duration::from_secs(3_600) },
];

impl Rate {
    fn quota(self) -> Quota {
        Quota::Steady { count: self.count, period: self.unit.length }
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a rate such as \"10/s\", \"60/m\" or \"1000/h\"");
        let (count, unit) = text.trim().split_once('/').ok_or_else(wrong)?;
        let unit = UNITS.iter().find(|known| known.name == unit.trim()).ok_or_else(wrong)?;
        let count = count.trim();
        if count.is_empty() || !count.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong());
        }
        match count.parse() {
            Ok(count @ 1..=MAX_COUNT) => Ok(Self { count, unit }),
            Ok(0) => Err(format!("{text:?} lets nothing through; to close a webhook set enabled = false")),
            _ => Err(format!("{text:?} is more than {MAX_COUNT}")),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, self.unit.name)
    }
}

string_setting!(Rate, "rate");

/// The limits of one webhook. Requests that fail to authenticate are counted separately, for each client, so that they
/// never use up the quota of authenticated requests.
pub struct WebhookLimits {
    pub rate: Option<Rate>,
    requests: RateLimiter,
    failures: RateLimiter<Option<IpAddr>>,
}

impl WebhookLimits {
    /// Creates the limits. Without a rate, authenticated requests are not limited.
    pub fn new(rate: Option<Rate>) -> Self {
        Self { rate, requests: RateLimiter::new(1), failures: RateLimiter::new(MAX_CLIENTS) }
    }

    /// Checks whether one more authenticated request is allowed now. The error is the time until it is.
    pub fn check(&self) -> Result<(), Duration> {
        self.rate.map_or(Ok(()), |rate| self.requests.check(&(), rate.quota()))
    }

    /// Counts an authenticated request.
    pub fn take(&self) -> Result<(), Duration> {
        self.rate.map_or(Ok(()), |rate| self.requests.take(&(), rate.quota()))
    }

    /// Counts a failed request of `client`. After too many failures, the error is the time to wait.
    pub fn fail(&self, client: Option<ClientAddr>) -> Result<(), Duration> {
        self.failures.take(&client.map(ClientAddr::bucket), FAILURES.quota())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_and_written() {
        for (text, shown) in [("60/m", "60/m"), (" 5 / s ", "5/s"), ("1000000/h", "1000000/h")] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), shown);
        }
        for (text, words) in [
            ("", "not a rate"),
            ("60", "not a rate"),
            ("60/d", "not a rate"),
            ("+6/m", "not a rate"),
            ("-1/m", "not a rate"),
            ("1.5/s", "not a rate"),
            ("m/60", "not a rate"),
            ("0/m", "lets nothing through"),
            ("1000001/h", "more than 1000000"),
            ("99999999999/s", "more than 1000000"),
        ] {
            let fault = text.parse::<Rate>().unwrap_err();
            assert!(fault.contains(words), "{fault}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_counted_for_each_client_and_never_against_the_others() {
        let client = |n: u32| Some(ClientAddr(std::net::Ipv4Addr::from(n).into()));
        let limits = WebhookLimits::new(Some("1/h".parse().unwrap()));
        let failed = (0..1_000).filter(|_| limits.fail(client(1)).is_ok()).count();
        assert_eq!((failed, limits.fail(client(1)).is_err(), limits.fail(client(2))), (600, true, Ok(())));
        assert_eq!(limits.check(), Ok(()), "the good ones are not touched");
        for n in 0..20_000 {
            limits.fail(client(n)).ok();
        }
        assert!((0..10_000).all(|_| WebhookLimits::new(None).take().is_ok()));
        assert!(limits.failures.key_count() <= MAX_CLIENTS, "bounded");
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!((limits.fail(client(1)), limits.fail(client(30_000))), (Ok(()), Ok(())));
    }
}
