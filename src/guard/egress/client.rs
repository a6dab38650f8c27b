//! The HTTP client of guarded requests. It resolves a name once, checks every address, connects to what was checked, and does the
//! same again for each redirect.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::rate_limit::{Quota, RateLimiter};
use percent_encoding::{AsciiSet, percent_encode};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use tokio::sync::OnceCell;
use tokio::time::Instant;
use url::Url;

use super::content_encoding::ContentEncoding;
use super::rules::{EgressError, EgressRules};
use crate::text::truncate;

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
/// The longest part of an invalid header that an error repeats, in characters.
const HEADER_CHARS: usize = 200;
/// No ASCII character. Other bytes are always encoded.
const ONLY_NON_ASCII: &AsciiSet = &AsciiSet::EMPTY;
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

    /// Gets `url`, with up to `max_body` bytes of its decoded body, and follows redirects.
    ///
    /// # Errors
    /// The rules forbid the request, no response arrives, or the response cannot be read.
    pub async fn get(&self, url: Url, accept: &'static str, max_body: usize) -> Result<EgressResponse, EgressError> {
        let client = self.client.get_or_try_init(async || self.build()).await;
        let client = client.map_err(|error| EgressError::Failed(format!("TLS cannot be used: {error}")))?;
        let mut url = url;
        for _ in 0..=MAX_REDIRECTS {
            self.rules.check_url(&url)?;
            self.wait_for_host(&url).await?;
            let sent = client.get(url.clone()).header(ACCEPT, accept).header(ACCEPT_ENCODING, "gzip").send().await;
            let response = sent.map_err(|error| failure(&url, &error))?;
            if let Some(target) = redirect_target(&url, response.status(), response.headers())? {
                url = target;
                continue;
            }
            let (status, headers) = (response.status(), response.headers().clone());
            let read = read_body(response, max_body).await.map_err(|error| failure(&url, &error))?;
            let (body, is_cut) = match decode_body(&headers, read, max_body) {
                Ok(decoded) => decoded,
                // The status is the reason of the failure, and tells the caller whether to repeat the request.
                Err(_) if !status.is_success() => (Vec::new(), false),
                Err(why) => return Err(EgressError::Refused(format!("{url} answered {status} {why}"))),
            };
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
    // Browsers encode these bytes, too; some servers send them as they are.
    let location = percent_encode(location.as_bytes(), ONLY_NON_ASCII).to_string();
    let target = url.join(&location).map_err(|error| {
        let location = truncate(&location, HEADER_CHARS);
        EgressError::Refused(format!("{url} redirects to {location:?}, which is not an address: {error}"))
    })?;
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

/// Decodes a body, or its beginning, by the headers of its response.
fn decode_body(
    headers: &HeaderMap,
    (body, is_cut): (Vec<u8>, bool),
    max_body: usize,
) -> Result<(Vec<u8>, bool), String> {
    let encoding = ContentEncoding::of(headers).map_err(|name| {
        let name = truncate(&name, HEADER_CHARS);
        format!("in the content encoding {name:?}; only one of gzip and deflate is read")
    })?;
    encoding.decode(body, is_cut, max_body).map_err(|error| format!("with a compressed body that is damaged: {error}"))
}

/// Returns the reason of a failed request: the refusal of an address if there was one, otherwise the innermost error.
fn failure(url: &Url, error: &reqwest::Error) -> EgressError {
    let chain = anyhow::Chain::new(error);
    if let Some(refusal) = chain.clone().find_map(|error| error.downcast_ref::<EgressError>()) {
        return refusal.clone();
    }
    let host = url.host_str().unwrap_or_default();
    if error.is_timeout() {
        return EgressError::Failed(format!("{host} did not answer in time"));
    }
    let why = chain.last().map(ToString::to_string).unwrap_or_default();
    if UNKNOWN_HOST.iter().any(|unknown| why.ends_with(unknown)) {
        return EgressError::Refused(format!("there is no host {host}"));
    }
    EgressError::Failed(if error.is_connect() {
        format!("{host} cannot be reached: {why}")
    } else if error.is_body() || error.is_decode() {
        format!("the answer of {host} broke off: {why}")
    } else {
        format!("{host} gave no valid answer: {why}")
    })
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
    async fn serve(head: impl Into<Vec<u8>>) -> (u16, Arc<Mutex<usize>>) {
        let head = head.into();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, count) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::new(0)));
        let seen = Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                *seen.lock().unwrap() += 1;
                let mut request = [0; 4_096];
                drop(stream.read(&mut request).await);
                drop(stream.write_all(&head).await);
            }
        });
        (port, count)
    }

    fn answer(body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
    }

    async fn respond(rules: EgressRules, answers: &[&[&str]], url: &str) -> Result<EgressResponse, EgressError> {
        drop(rustls::crypto::ring::default_provider().install_default());
        let answers = answers.iter().map(|ips| ips.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 0)).collect());
        let client = EgressClient::with_resolver(rules, Arc::new(Rebinding(Mutex::new(answers.collect()))));
        client.get(Url::parse(url).unwrap(), "*/*", 30).await
    }

    async fn get(rules: EgressRules, answers: &[&[&str]], url: &str) -> Result<String, EgressError> {
        let response = respond(rules, answers, url).await?;
        Ok(format!("{}{}", String::from_utf8(response.body).unwrap(), if response.is_cut { "…" } else { "" }))
    }

    #[tokio::test]
    async fn a_name_is_checked_by_the_addresses_that_are_connected_to() {
        let (port, seen) = serve(answer(&"0123456789".repeat(4))).await;
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
        assert_eq!(get(private("127.0.0.1/32"), rebinding, &url).await, Ok(format!("{}…", "0123456789".repeat(3))));
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

    fn encoded(status: &str, name: &str, body: &[u8]) -> Vec<u8> {
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\ncontent-encoding: {name}\r\ncontent-length: {length}\r\n\r\n");
        [head.as_bytes(), body].concat()
    }

    #[tokio::test]
    async fn a_failed_request_keeps_its_status_if_its_body_cannot_be_decoded() {
        for (name, body) in [("br", &b"x"[..]), ("gzip", b"<html>"), ("gzip", b"")] {
            let (port, _) = serve(encoded("503 Busy\r\nretry-after: 7", name, body)).await;
            let rules = EgressRules { private: vec!["127.0.0.1/32".parse().unwrap()], ..EgressRules::default() };
            let got = respond(rules, &[], &format!("http://127.0.0.1:{port}/")).await.unwrap();
            let retry_after = got.headers["retry-after"].as_bytes();
            assert_eq!((got.status.as_u16(), retry_after, got.body.len()), (503, &b"7"[..], 0), "{name}");
        }
    }

    #[test]
    fn bytes_of_a_redirect_that_are_not_ascii_are_encoded() {
        let url = Url::parse("http://a.example/x").unwrap();
        for (location, expected) in [
            (&b"/caf\xe9?q=\xe9 \xff"[..], "http://a.example/caf%E9?q=%E9%20%FF"),
            ("/caf%C3%A9/茶".as_bytes(), "http://a.example/caf%C3%A9/%E8%8C%B6"),
            ("//茶.example/".as_bytes(), "http://xn--cl1a.example/"),
        ] {
            let headers = HeaderMap::from_iter([(LOCATION, location.try_into().unwrap())]);
            let target = redirect_target(&url, StatusCode::FOUND, &headers).unwrap().unwrap();
            assert_eq!(target.as_str(), expected);
        }
    }

    #[tokio::test]
    async fn a_response_that_cannot_be_read_is_named_by_its_fault() {
        let rules = || EgressRules { private: vec!["127.0.0.1/32".parse().unwrap()], ..EgressRules::default() };
        // gzip of "hi".
        let packed = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xcb\xc8\x04\0\xac\x2a\x93\xd8\x02\0\0\0";
        let only = |name: &str| {
            format!("answered 200 OK in the content encoding {name:?}; only one of gzip and deflate is read")
        };
        for (response, is_temporary, part) in [
            (encoded("200 OK", "br", b"x"), false, &only("br")[..]),
            (encoded("200 OK", "deflate, gzip", b"x"), false, &only("deflate, gzip")),
            (encoded("200 OK", "gzip", b"<html>"), false, "with a compressed body that is damaged: "),
            (
                b"HTTP/1.1 302 Found\r\nlocation: http://[\r\n\r\n".to_vec(),
                false,
                "redirects to \"http://[\", which is not",
            ),
            (b"HTTP/1.1 302 Found\r\nlocation: //\xff:x\r\n\r\n".to_vec(), false, "which is not an address: "),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi".to_vec(), true, "the answer of 127.0.0.1 broke off: "),
            (b"220 mail.example ESMTP\r\n".to_vec(), true, "127.0.0.1 gave no valid answer: "),
            (Vec::new(), true, "127.0.0.1 gave no valid answer: connection closed"),
        ] {
            let (port, _) = serve(response).await;
            let (why, is_failed) = match get(rules(), &[], &format!("http://127.0.0.1:{port}/")).await.unwrap_err() {
                EgressError::Failed(why) => (why, true),
                EgressError::Refused(why) => (why, false),
            };
            assert!(why.contains(part) && is_failed == is_temporary, "{part}: {why}");
        }
        let (port, _) = serve(encoded("200 OK", "gzip", packed)).await;
        assert_eq!(get(rules(), &[], &format!("http://127.0.0.1:{port}/")).await, Ok("hi".to_owned()));
    }
}
