//! The wire formats of the search services.
//!
//! Sources: the API references of Brave Search, Tavily and SearXNG; DuckDuckGo's page for browsers without scripts, as it was in
//! November 2026.

use dom_query::Document;
use reqwest::{Client, RequestBuilder};
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::config::SearchService;

/// One result of a search.
#[derive(Debug, PartialEq, Eq)]
pub struct SearchHit {
    pub title: String,
    pub url: String,
    pub snippet: String,
}

/// Returns the display name of a service.
pub fn service_name(service: SearchService) -> &'static str {
    match service {
        SearchService::Brave => "Brave Search",
        SearchService::Tavily => "Tavily",
        SearchService::Searxng => "SearXNG",
        SearchService::Auto | SearchService::Duckduckgo => "DuckDuckGo",
    }
}

/// Returns the request for a search. If `base_url` is not empty, it replaces the service's default address. If it has no path,
/// the service's path is added.
///
/// # Errors
/// The address is invalid.
pub fn request(
    client: &Client,
    service: SearchService,
    base_url: &str,
    key: Option<&str>,
    query: &str,
    count: u32,
) -> Result<RequestBuilder, String> {
    let (base, path) = match service {
        SearchService::Brave => ("https://api.search.brave.com", "/res/v1/web/search"),
        SearchService::Tavily => ("https://api.tavily.com", "/search"),
        SearchService::Searxng => ("", "/search"),
        SearchService::Auto | SearchService::Duckduckgo => ("https://html.duckduckgo.com", "/html/"),
    };
    let text = if base_url.is_empty() { base } else { base_url };
    let mut url = Url::parse(text).map_err(|error| format!("tools.web.base_url is not an address: {error}"))?;
    let own = url.path().trim_end_matches('/').to_owned();
    if service == SearchService::Searxng && !own.ends_with(path) {
        url.set_path(&format!("{own}{path}"));
    } else if own.is_empty() {
        url.set_path(path);
    }
    Ok(match service {
        SearchService::Brave => client
            .get(url)
            .query(&[("q", query), ("count", &count.to_string())])
            .header("Accept", "application/json")
            .header("X-Subscription-Token", key.unwrap_or_default()),
        SearchService::Tavily => {
            client.post(url).bearer_auth(key.unwrap_or_default()).json(&json!({ "query": query, "max_results": count }))
        }
        SearchService::Searxng => client.get(url).query(&[("q", query), ("format", "json")]),
        SearchService::Auto | SearchService::Duckduckgo => client.get(url).query(&[("q", query)]),
    })
}

#[derive(Deserialize)]
struct BraveAnswer {
    web: Option<JsonHits>,
}

/// The response fields that Brave, Tavily and SearXNG share.
#[derive(Deserialize)]
struct JsonHits {
    #[serde(default)]
    results: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct JsonHit {
    title: Option<String>,
    url: String,
    description: Option<String>,
    /// The name of `description` in Tavily and SearXNG.
    content: Option<String>,
}

impl JsonHit {
    /// Reads one of the results. A faulty one gets no address, and does not lose the others.
    fn read(result: Value) -> SearchHit {
        let Self { title, url, description, content } = serde_json::from_value(result).unwrap_or_default();
        let [title, snippet] = [title, description.or(content)].map(|text| without_tags(&text.unwrap_or_default()));
        SearchHit { title, url, snippet }
    }
}

/// Parses the hits in a response. Leaves out those without the address of a page.
///
/// # Errors
/// The response does not have the service's format, or none of its hits has the address of a page.
pub fn hits(service: SearchService, body: &[u8]) -> Result<Vec<SearchHit>, String> {
    let unreadable = |error: serde_json::Error| match service {
        SearchService::Searxng => {
            format!("the answer is not JSON ({error}); its settings must allow it: search.formats with json")
        }
        _ => format!("the answer is not of the documented form: {error}"),
    };
    let read_all = |hits: JsonHits| hits.results.into_iter().map(JsonHit::read).collect::<Vec<_>>();
    let results = match service {
        SearchService::Auto | SearchService::Duckduckgo => duckduckgo(&String::from_utf8_lossy(body))?,
        SearchService::Brave => {
            serde_json::from_slice::<BraveAnswer>(body).map_err(unreadable)?.web.map_or_else(Vec::new, read_all)
        }
        SearchService::Tavily | SearchService::Searxng => read_all(serde_json::from_slice(body).map_err(unreadable)?),
    };
    let count = results.len();
    let found: Vec<_> = results.into_iter().filter_map(with_page).collect();
    if found.is_empty() && count > 0 {
        return Err("no result has an http:// or https:// address".to_owned());
    }
    Ok(found)
}

/// Returns a hit that leads to a page of the web. A hit without a title gets its address as the title.
fn with_page(mut hit: SearchHit) -> Option<SearchHit> {
    let url = Url::parse(&hit.url).ok().filter(|_| !hit.url.contains(char::is_control))?;
    if !matches!(url.scheme(), "http" | "https") {
        return None;
    }
    if hit.title.trim().is_empty() {
        hit.title.clone_from(&hit.url);
    }
    Some(hit)
}

/// Removes the tags with which services highlight the query's words.
fn without_tags(text: &str) -> String {
    if text.contains(['<', '&']) { Document::fragment(text).text().to_string() } else { text.to_owned() }
}

fn duckduckgo(html: &str) -> Result<Vec<SearchHit>, String> {
    let document = Document::from(html);
    let mut found = Vec::new();
    for result in document.select("div.result:not(.result--ad)").iter() {
        let link = result.select("a.result__a");
        let Some(url) = link.attr("href").and_then(|href| target(&href)) else { continue };
        let snippet = result.select(".result__snippet").text().to_string();
        found.push(SearchHit { title: link.text().to_string(), url, snippet });
    }
    if found.is_empty() && document.select(".no-results, .result--no-result").is_empty() {
        return Err(
            "the page holds no results: it asks whether a person searches, or has a new form. Configure another \
                    service by tools.web.search"
                .to_owned(),
        );
    }
    Ok(found)
}

/// Returns the target address of a link on the result page, which leads through the service.
fn target(href: &str) -> Option<String> {
    let base = Url::parse("https://duckduckgo.com/").ok()?;
    let url = base.join(href).ok()?;
    let named = url.query_pairs().find(|(name, _)| name == "uddg").map(|(_, value)| value.into_owned());
    let is_own = url.host_str().is_some_and(|host| host.ends_with("duckduckgo.com"));
    named.or_else(|| (!is_own).then(|| url.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(title: &str, url: &str, snippet: &str) -> SearchHit {
        SearchHit { title: title.to_owned(), url: url.to_owned(), snippet: snippet.to_owned() }
    }

    #[test]
    fn the_answers_of_all_services_are_read() {
        let page = "<div class='result results_links result--ad'><a class='result__a' href='https://ad.example/'>Ad</a></div>\
            <div class='result results_links'><h2><a class='result__a' \
            href='//duckduckgo.com/l/?uddg=https%3A%2F%2Fa.example%2Fx%3Fy%3D1&amp;rut=1'>A <b>page</b></a></h2>\
            <a class='result__snippet'>Some <b>words</b></a></div>\
            <div class='result'><a class='result__a' href='https://b.example/'>B</a></div>";
        for (service, body, expected) in [
            (
                SearchService::Brave,
                r#"{"web":{"results":[{"title":"A","url":"https://a.example/","description":"the <strong>words</strong> &amp; more"}]}}"#,
                vec![hit("A", "https://a.example/", "the words & more")],
            ),
            (SearchService::Brave, r#"{"type":"search"}"#, vec![]),
            (
                SearchService::Tavily,
                r#"{"results":[{"title":"A","url":"https://a.example/","content":"words","score":0.9}]}"#,
                vec![hit("A", "https://a.example/", "words")],
            ),
            (
                SearchService::Searxng,
                r#"{"query":"q","results":[{"title":"A","url":"https://a.example/","content":null}]}"#,
                vec![hit("A", "https://a.example/", "")],
            ),
            (
                SearchService::Duckduckgo,
                page,
                vec![hit("A page", "https://a.example/x?y=1", "Some words"), hit("B", "https://b.example/", "")],
            ),
            (SearchService::Duckduckgo, "<div class='no-results'>none</div>", vec![]),
        ] {
            assert_eq!(hits(service, body.as_bytes()), Ok(expected), "{service:?}");
        }
        for (service, part) in [
            (SearchService::Searxng, "search.formats"),
            (SearchService::Brave, "documented form"),
            (SearchService::Duckduckgo, "whether a person searches"),
        ] {
            let error = hits(service, b"<html>no</html>").unwrap_err();
            assert!(error.contains(part), "{service:?}: {error}");
        }
    }

    #[test]
    fn a_faulty_hit_does_not_lose_the_others() {
        let results = r#"[{"title":null,"url":"https://a.example/","description":"d","content":"c"},
            {"url":"https://b.example/"}, {"title":7,"url":"https://c.example/"}, {"title":"D"}, "E", null,
            {"title":"F","url":"javascript:alert(1)"}, {"title":"G","url":"data:text/html,x"}, {"title":"H","url":"/h"},
            {"title":"I","url":"https://i.example/\n   https://j.example/"}, {"title":"K","url":"https://k.example/","content":""}]"#;
        let kept = || {
            vec![
                hit("https://a.example/", "https://a.example/", "d"),
                hit("https://b.example/", "https://b.example/", ""),
                hit("K", "https://k.example/", ""),
            ]
        };
        let page = "<div class='result'><a class='result__a' href='javascript:x'>A</a></div>\
            <div class='result'><a class='result__a' href='https://b.example/'></a></div>";
        for (service, body, expected) in [
            (SearchService::Brave, format!(r#"{{"web":{{"results":{results}}}}}"#), Ok(kept())),
            (SearchService::Searxng, format!(r#"{{"results":{results}}}"#), Ok(kept())),
            (SearchService::Tavily, r#"{"results":[{"link":"https://a.example/"}]}"#.to_owned(), Err("no result has")),
            (SearchService::Duckduckgo, page.to_owned(), Ok(vec![hit("https://b.example/", "https://b.example/", "")])),
        ] {
            match (hits(service, body.as_bytes()), expected) {
                (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
                (found, expected) => assert_eq!(found, expected.map_err(str::to_owned), "{service:?}"),
            }
        }
    }
}
