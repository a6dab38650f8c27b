//! The HTTP client of guarded requests. It resolves a name once, checks every address, connects to what was checked, and does the
//! same again for each redirect.

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::rate_limit::{Quota, RateLimiter};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, HeaderMap, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use tokio::sync::OnceCell;
use tokio::time::Instant;
use url::Url;

use super::rules::{EgressError, EgressRules};

const MAX_REDIRECTS: usize = 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit of one response with its body.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// The rate limit of requests to one host.
const HOST_QUOTA: Quota = Quota::Steady { count: 10, period: Duration::from_secs(10) };
/// How the resolver's errors end if a name has no address. Only these texts distinguish such errors from temporary ones; the
/// first are glibc's, the others musl's.
const UNKNOWN_HOST: [&str; 4] = [
    "Name or service not known",
    "No address associated with hostname",
    "Name does not resolve",
    "Name has no usable address",
];
/// The maximum number of hosts with a separate rate limit.
const MAX_HOSTS: usize = 1_000;

/// A response of any status.
#[derive(Clone, Debug)]
pub struct EgressResponse {
    /// The address after the last redirect.
    pub url: Url,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    /// True if the body is longer, and this is only its beginning.
    pub is_cut: bool,
}

/// The guarded client. It ignores proxies of the environment: a proxy would resolve names itself, unchecked.
#[derive(Debug)]
pub struct EgressClient {
    rules: Arc<EgressRules>,
    /// Built on first use: certificate authorities cost time and memory.
    client: OnceCell<Client>,
    requests: RateLimiter<String>,
    resolver: Arc<dyn Lookup>,
}

impl EgressClient {
    pub fn new(rules: EgressRules) -> Self {
        Self::with_resolver(rules, Arc::new(SystemLookup))
    }

    fn with_resolver(rules: EgressRules, resolver: Arc<dyn Lookup>) -> Self {
        Self { rules: Arc::new(rules), client: OnceCell::new(), requests: RateLimiter::new(MAX_HOSTS), resolver }
    }

    /// Gets `url`, with up to `max_body` bytes of its body, and follows redirects.
    ///
    /// # Errors
    /// The rules forbid the request, or no response arrives.
    pub async fn get(&self, url: Url, accept: &'static str, max_body: usize) -> Result<EgressResponse, EgressError> {
        let client = self.client.get_or_try_init(async || self.build()).await;
        let client = client.map_err(|error| EgressError::Failed(format!("TLS cannot be used: {error}")))?;
        let mut url = url;
        for _ in 0..=MAX_REDIRECTS {
            self.rules.check_url(&url)?;
            self.wait_for_host(&url).await?;
            let sent = client.get(url.clone()).header(ACCEPT, accept).send().await;
            let response = sent.map_err(|error| failure(&url, &error))?;
            if let Some(target) = redirect_target(&url, response.status(), response.headers())? {
                url = target;
                continue;
            }
            let (status, headers) = (response.status(), response.headers().clone());
            let (body, is_cut) = read_body(response, max_body).await.map_err(|error| failure(&url, &error))?;
            return Ok(EgressResponse { url, status, headers, body, is_cut });
        }
        Err(EgressError::Refused(format!("more than {MAX_REDIRECTS} redirects, the last to {url}")))
    }

    fn build(&self) -> Result<Client, reqwest::Error> {
        let resolver = CheckedResolver { rules: Arc::clone(&self.rules), lookup: Arc::clone(&self.resolver) };
        Client::builder()
            .user_agent(concat!("daoyou/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(RESPONSE_TIMEOUT)
            .redirect(Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            .dns_resolver(Arc::new(resolver))
            .build()
    }

    async fn wait_for_host(&self, url: &Url) -> Result<(), EgressError> {
        let host = url.host_str().unwrap_or_default().to_owned();
        let reserved = self.requests.reserve(&host, HOST_QUOTA, Instant::now() + RESPONSE_TIMEOUT);
        let Some(reserved) = reserved else {
            return Err(EgressError::Refused(format!("{host} has been asked too often; try again in a minute")));
        };
        tokio::time::sleep_until(reserved.time).await;
        reserved.commit();
        Ok(())
    }
}

/// Returns the target of a redirect, if the response is one.
fn redirect_target(url: &Url, status: StatusCode, headers: &HeaderMap) -> Result<Option<Url>, EgressError> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = headers.get(LOCATION) else { return Ok(None) };
    let target = std::str::from_utf8(location.as_bytes()).ok().and_then(|location| url.join(location).ok());
    let target = target.ok_or_else(|| EgressError::Failed(format!("{url} redirects to what is no address")))?;
    Ok(Some(target))
}

async fn read_body(mut response: reqwest::Response, max_body: usize) -> Result<(Vec<u8>, bool), reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        let room = max_body - body.len();
        if chunk.len() > room {
            body.extend_from_slice(&chunk[..room]);
            return Ok((body, true));
        }
        body.extend_from_slice(&chunk);
    }
    Ok((body, false))
}

/// Returns the reason of a failed request: the refusal of an address if there was one, otherwise the innermost error.
fn failure(url: &Url, error: &reqwest::Error) -> EgressError {
    let mut last: &dyn StdError = error;
    loop {
        if let Some(refusal) = last.downcast_ref::<EgressError>() {
            return refusal.clone();
        }
        match last.source() {
            Some(source) => last = source,
            None => break,
        }
    }
    let host = url.host_str().unwrap_or_default();
    if error.is_timeout() {
        return EgressError::Failed(format!("{host} did not answer in time"));
    }
    let why = last.to_string();
    if UNKNOWN_HOST.iter().any(|unknown| why.ends_with(unknown)) {
        return EgressError::Refused(format!("there is no host {host}"));
    }
    EgressError::Failed(format!("{host} cannot be reached: {why}"))
}

/// A resolver of host names.
#[async_trait::async_trait]
trait Lookup: Send + Sync + std::fmt::Debug {
    async fn addresses(&self, name: &str) -> std::io::Result<Vec<SocketAddr>>;
}

#[derive(Debug)]
struct SystemLookup;

#[async_trait::async_trait]
impl Lookup for SystemLookup {
    async fn addresses(&self, name: &str) -> std::io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((name, 0)).await?.collect())
    }
}

/// A resolver that returns only checked addresses to the connector. The connector connects to no other, so a later, different
/// answer of a name server has no effect.
#[derive(Debug)]
struct CheckedResolver {
    rules: Arc<EgressRules>,
    lookup: Arc<dyn Lookup>,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (rules, lookup) = (Arc::clone(&self.rules), Arc::clone(&self.lookup));
        Box::pin(async move {
            let name = name.as_str();
            let addresses = lookup.addresses(name).await?;
            // A single forbidden address among them means an attack, or a name of the local network.
            for address in &addresses {
                rules.check_address(name, address.ip())?;
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A name server that gives another answer each time, and repeats the last one.
    #[derive(Debug)]
    struct Rebinding(Mutex<VecDeque<Vec<SocketAddr>>>);

    #[async_trait::async_trait]
    impl Lookup for Rebinding {
        async fn addresses(&self, _name: &str) -> std::io::Result<Vec<SocketAddr>> {
            let mut answers = self.0.lock().unwrap();
            let answer = answers.pop_front().unwrap_or_default();
            if answers.is_empty() {
                answers.push_back(answer.clone());
            }
            Ok(answer)
        }
    }

    /// Starts a server that answers each connection with `head`. Returns its port and the number of its connections.
    async fn serve(head: String) -> (u16, Arc<Mutex<usize>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, count) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::new(0)));
        let seen = Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                *seen.lock().unwrap() += 1;
                let mut request = [0; 4_096];
                drop(stream.read(&mut request).await);
                drop(stream.write_all(head.as_bytes()).await);
            }
        });
        (port, count)
    }

    fn answer(body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
    }

    async fn get(rules: EgressRules, answers: &[&[&str]], url: &str) -> Result<String, EgressError> {
        drop(rustls::crypto::ring::default_provider().install_default());
        let answers = answers.iter().map(|ips| ips.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 0)).collect());
        let client = EgressClient::with_resolver(rules, Arc::new(Rebinding(Mutex::new(answers.collect()))));
        let response = client.get(Url::parse(url).unwrap(), "*/*", 8).await?;
        Ok(format!("{}{}", String::from_utf8(response.body).unwrap(), if response.is_cut { "…" } else { "" }))
    }

    #[tokio::test]
    async fn a_name_is_checked_by_the_addresses_that_are_connected_to() {
        let (port, seen) = serve(answer("0123456789")).await;
        let private = |text: &str| EgressRules { private: vec![text.parse().unwrap()], ..EgressRules::default() };
        let url = format!("http://rebind.example:{port}/");
        for answers in [
            &[&["127.0.0.1"][..]][..],
            &[&["::ffff:127.0.0.1"]],
            &[&["93.184.216.34", "127.0.0.1"]],
            &[&["169.254.169.254"]],
        ] {
            let refused = get(EgressRules::default(), answers, &url).await;
            assert!(
                matches!(&refused, Err(EgressError::Refused(why)) if why.contains("rebind.example")),
                "{refused:?}"
            );
        }
        // The second answer would be forbidden, and is never requested.
        let rebinding: &[&[&str]] = &[&["127.0.0.1"], &["127.0.0.2"]];
        assert_eq!(get(private("127.0.0.1/32"), rebinding, &url).await, Ok("01234567…".to_owned()));
        assert_eq!(*seen.lock().unwrap(), 1);
    }

    #[tokio::test]
    async fn each_redirect_is_checked_again() {
        let (inner, seen) = serve(answer("secret")).await;
        let rules = || EgressRules { private: vec!["127.0.0.1/32".parse().unwrap()], ..EgressRules::default() };
        for (target, expected) in [
            (format!("http://127.0.0.1:{inner}/"), Ok("secret".to_owned())),
            (format!("http://127.0.0.2:{inner}/"), Err("127.0.0.2")),
            (format!("http://[::ffff:127.0.0.3]:{inner}/"), Err("127.0.0.3")),
            (format!("//127.0.0.2:{inner}/"), Err("127.0.0.2")),
            ("file:///etc/passwd".to_owned(), Err("file:")),
            ("http://user:pass@127.0.0.1/".to_owned(), Err("password")),
        ] {
            let (outer, _) =
                serve(format!("HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n")).await;
            let got = get(rules(), &[], &format!("http://127.0.0.1:{outer}/")).await;
            match (&got, expected) {
                (Ok(body), Ok(expected)) => assert_eq!(*body, expected),
                (Err(EgressError::Refused(why)), Err(expected)) => assert!(why.contains(expected), "{why}"),
                other => panic!("{target}: {other:?}"),
            }
        }
        assert_eq!(*seen.lock().unwrap(), 1);
        let looping = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = looping.local_addr().unwrap().port();
        drop(looping);
        assert!(matches!(get(rules(), &[], &format!("http://127.0.0.1:{port}/")).await, Err(EgressError::Failed(_))));
    }
}
