//! What the kinds of the values do not say about `[gateway]`.

use daoyou_channels::settings::ByteSize;

use super::fault::quoted;
use super::settings::GatewayConfig;
use crate::http::{AllowedHosts, parse_network};

/// The shortest token where others than this machine can try it, in characters.
const MIN_TOKEN: usize = 16;

/// The least that bodies need: two of the API's largest.
const MIN_BODY_BUDGET: ByteSize = ByteSize(4_200_000);

/// A fault of the first of `keys`, unless the other ones are at fault.
pub(super) struct Finding {
    pub keys: &'static [&'static str],
    pub wrong: String,
    pub allowed: &'static str,
}

/// All that is wrong with `gateway`.
pub(super) fn findings(gateway: &GatewayConfig) -> Vec<Finding> {
    let mut found: Vec<Finding> = listening(gateway).into_iter().collect();
    if gateway.body_budget.0 < MIN_BODY_BUDGET.0 {
        let wrong = format!("{} is less than two bodies of the API", gateway.body_budget);
        found.push(Finding { keys: &["gateway.body_budget"], wrong, allowed: "4200KB or more" });
    }
    for (index, name) in gateway.hosts.iter().enumerate().filter(|(_, name)| !AllowedHosts::is_valid(name)) {
        let wrong = format!("entry {index} is {}", quoted(name));
        let allowed = "a name or an IP address without scheme, port and path, such as \"chat.example.org\"";
        found.push(Finding { keys: &["gateway.hosts"], wrong, allowed });
    }
    for (index, proxy) in gateway.trusted_proxies.iter().enumerate().filter(|(_, text)| parse_network(text).is_err()) {
        let wrong = format!("entry {index} is {}", quoted(proxy));
        let allowed = "an IP address or a range such as \"10.0.0.0/8\"";
        found.push(Finding { keys: &["gateway.trusted_proxies"], wrong, allowed });
    }
    found
}

/// Beyond this machine, whoever finds the port can try: not without a token, nor with one that can be guessed.
fn listening(gateway: &GatewayConfig) -> Option<Finding> {
    let address = match gateway.listen_addr() {
        Err(wrong) => {
            let allowed =
                "an IP address and a port such as \"127.0.0.1:18790\", \"[::1]:18790\" or \"localhost:18790\"";
            return Some(Finding { keys: &["gateway.listen"], wrong, allowed });
        }
        Ok(address) if address.ip().is_loopback() => return None,
        Ok(address) => address,
    };
    let reached = format!("{address} can be reached from other machines, and");
    match &gateway.token {
        None => {
            let wrong = format!("{reached} gateway.token is not set");
            let allowed = "an address of this machine alone such as \"127.0.0.1:18790\", or any with gateway.token";
            Some(Finding { keys: &["gateway.listen", "gateway.token"], wrong, allowed })
        }
        Some(token) if token.expose().chars().count() < MIN_TOKEN => {
            let wrong = format!("{reached} so short a token can be guessed");
            let allowed = "16 characters or more, such as what `openssl rand -hex 32` prints";
            Some(Finding { keys: &["gateway.token", "gateway.listen"], wrong, allowed })
        }
        Some(_) => None,
    }
}
