use daoyou_channels::settings::{Secret, SettingFault};
use indexmap::IndexMap;

use super::*;
use crate::llm::remote::fake_service::{FakeService, status};

fn configs(list: &[(&str, &str, &str)]) -> IndexMap<String, ProviderConfig> {
    let filled = |text: &str| Some(text).filter(|text| !text.is_empty()).map(str::to_owned);
    let config = |key: &str, base_url: &str| ProviderConfig {
        api_key: filled(key).map(Secret::new),
        base_url: filled(base_url),
        ..ProviderConfig::default()
    };
    list.iter().map(|(name, key, base_url)| ((*name).to_owned(), config(key, base_url))).collect()
}

fn build(configs: &IndexMap<String, ProviderConfig>, environment: &[&str]) -> Result<Models, Vec<SettingFault>> {
    let env = |name: &str| environment.contains(&name).then(|| "sk-from-environment".to_owned());
    Models::build(configs, env)
}

/// Builds the models of a machine without a model server.
fn alone(configs: &IndexMap<String, ProviderConfig>, environment: &[&str]) -> Models {
    let mut models = build(configs, environment).unwrap();
    models.local = Mutex::new(Some((Instant::now(), LocalModel::NoServer)));
    models
}

/// Returns the models of a machine whose Ollama is at `url`.
fn with_ollama(url: &str) -> Models {
    let mut models = build(&configs(&[]), &[]).unwrap();
    let config = ProviderConfig { base_url: Some(url.to_owned()), ..ProviderConfig::default() };
    let ollama = ProviderEntry::new(OLLAMA, &config, KeySource::None, &models.clients).unwrap();
    models.entries.insert(OLLAMA.to_owned(), ollama);
    models
}

async fn shown(models: &Models, wanted: &str) -> String {
    match models.resolve(wanted).await {
        Ok(choice) => choice.to_string(),
        Err(error) => format!("error: {error}"),
    }
}

#[tokio::test]
async fn auto_takes_configured_then_environment_then_offline() {
    let own = ("own", "", "http://h.example/v1");
    for (list, environment, expected) in [
        (&[][..], &[][..], "offline"),
        (&[], &["DASHSCOPE_API_KEY", "DEEPSEEK_API_KEY"], "deepseek/deepseek-v4-flash"),
        (&[("qwen", "key", "")], &["OPENAI_API_KEY"], "qwen/qwen-plus"),
        (&[("qwen", "key", ""), ("deepseek", "key", "")], &[], "qwen/qwen-plus"),
        (&[("offline", "", "")], &["OPENAI_API_KEY"], "offline"),
        (&[("offline", "", ""), ("qwen", "", "")], &["DASHSCOPE_API_KEY"], "qwen/qwen-plus"),
    ] {
        assert_eq!(shown(&alone(&configs(list), environment), "auto").await, expected, "{list:?} {environment:?}");
    }
    let mut with_model = configs(&[own]);
    with_model.get_mut("own").unwrap().model = "a/b".to_owned();
    assert_eq!(shown(&alone(&with_model, &[]), "").await, "own/a/b");
}

#[tokio::test]
async fn names_and_what_they_mean() {
    let one = alone(&configs(&[("openrouter", "key", "")]), &[]);
    let two = alone(&configs(&[("own", "", "http://h.example/v1")]), &["DEEPSEEK_API_KEY"]);
    for (models, wanted, expected) in [
        (&one, "openrouter/meta/llama-4", "openrouter/meta/llama-4"),
        (&one, "openrouter", "openrouter/openrouter/auto"),
        (&one, "some-model", "openrouter/some-model"),
        (&one, "offline", "offline"),
        (&one, "offline/rules", "offline"),
        (&one, "ollama/qwen3:8b", "ollama/qwen3:8b"),
        (&two, "deepseek/deepseek-v4-pro", "deepseek/deepseek-v4-pro"),
        (&two, "deepseek-v4-flash", "deepseek/deepseek-v4-flash"),
        (&two, "x", "error: \"x\" may be a model of several providers; write one of own/x, deepseek/x"),
        (
            &two,
            "groq/x",
            "error: groq has no key: set providers.groq.api_key, or the environment variable GROQ_API_KEY",
        ),
    ] {
        assert_eq!(shown(models, wanted).await, expected);
    }
    let unknown = shown(&two, "opnai/x").await;
    assert!(
        unknown.starts_with("error: unknown provider \"opnai\"; similar: openai; available: anthropic, baichuan, "),
        "{unknown}"
    );
    assert!(unknown.contains(", offline, ") && unknown.contains(", own, "), "{unknown}");
    let nobody = shown(&alone(&configs(&[]), &[]), "x").await;
    assert_eq!(nobody, "error: \"x\" needs its provider, as no single one is set up: write PROVIDER/x");
}

#[test]
fn all_invalid_settings_are_reported_at_once() {
    let list = [
        ("a/b", "", ""),
        ("deepseek", "", ""),
        ("groq", "your-api-key", ""),
        ("mine", "", ""),
        ("offline", "", "http://h/v1"),
        ("qwen", "k\ney", ""),
        ("vllm", "", "localhost:8000"),
        ("zhipu", "", "http://proxy.example/v1"),
    ];
    let shown = |fault: &SettingFault| format!("{}: {}", fault.key(), fault.wrong);
    let faults: Vec<String> = build(&configs(&list), &[]).err().unwrap().iter().map(shown).collect();
    assert_eq!(
        faults.iter().map(|fault| fault.split(" (").next().unwrap_or_default()).collect::<Vec<_>>(),
        [
            "providers.\"a/b\": is not a name for a provider: \"auto\" and names with \"/\" mean something else",
            "providers.deepseek.api_key: is missing: set it, or the environment variable DEEPSEEK_API_KEY",
            "providers.groq.api_key: is missing: set it, or the environment variable GROQ_API_KEY",
            "providers.mine.base_url: is needed, as mine is none of the known services",
            "providers.offline.base_url: offline is the responder inside this program; choose another name",
            "providers.qwen.api_key: holds characters that no header may hold",
            "providers.vllm.base_url: \"localhost:8000\" must begin with http:// or https://",
        ]
    );
}

#[tokio::test]
async fn a_key_of_the_environment_goes_to_its_service_alone() {
    let mut service = FakeService::start([status(200, "", r#"{"data":[{"id":"bge-m3"},{"id":"m"}]}"#)]).await;
    let mut own = configs(&[("deepseek", "", &service.url)]);
    let models = alone(&own, &["DEEPSEEK_API_KEY"]);
    let Some(provider) = &models.entries["deepseek"].remote else { panic!("offline") };
    assert_eq!(provider.models(LIST_DEADLINE).await.unwrap(), ["bge-m3", "m"]);
    assert!(!service.next_request().await.contains("authorization"));
    own.get_mut("deepseek").unwrap().base_url = None;
    assert!(build(&own, &["DEEPSEEK_API_KEY"]).is_ok());
}

#[tokio::test]
async fn a_server_that_lists_its_models_needs_none_configured() {
    let listing = r#"{"data":[{"id":"nomic-embed-text"},{"id":"qwen3:8b"},{"id":"other"}]}"#;
    let service = FakeService::start([status(200, "", listing)]).await;
    let models = alone(&configs(&[("vllm", "", &service.url)]), &[]);
    assert_eq!(shown(&models, "auto").await, "vllm/qwen3:8b");
    assert_eq!(shown(&models, "vllm").await, "vllm/qwen3:8b", "asked once");
    let list = [("vllm", "qwen3:8b"), (OFFLINE, OFFLINE)].map(|(name, model)| (name.to_owned(), model.to_owned()));
    assert_eq!(models.list().await, list);
    let silent = FakeService::start([status(500, "", "")]).await;
    let models = alone(&configs(&[("vllm", "", &silent.url)]), &[]);
    assert_eq!(
        shown(&models, "auto").await,
        "error: vllm did not say which models it has (HTTP 500); set providers.vllm.model"
    );
}

#[tokio::test]
async fn a_key_of_the_environment_goes_where_its_variable_says() {
    let env = |set: &'static [(&'static str, &'static str)]| {
        move |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    };
    const MOVED: &[(&str, &str)] = &[("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "http://proxy.example")];
    let own_key = configs(&[("openai", "another", "")]);
    let same_key = configs(&[("openai", "k", "")]);
    let own_place = configs(&[("openai", "", "https://api.openai.com/v1")]);
    let other_place = configs(&[("openai", "", "http://other.example/v1")]);
    for (list, set, base, key) in [
        (&configs(&[]), MOVED, "http://proxy.example/v1", KeySource::Variable("OPENAI_API_KEY")),
        (&same_key, MOVED, "http://proxy.example/v1", KeySource::Config),
        (&own_key, MOVED, "https://api.openai.com/v1", KeySource::Config),
        (&own_place, MOVED, "https://api.openai.com/v1", KeySource::Variable("OPENAI_API_KEY")),
        (&other_place, MOVED, "http://other.example/v1", KeySource::None),
        (&configs(&[]), &MOVED[..1], "https://api.openai.com/v1", KeySource::Variable("OPENAI_API_KEY")),
    ] {
        let models = Models::build(list, env(set)).unwrap();
        let (_, provider) = models.services().find(|(name, _)| *name == "openai").unwrap();
        assert_eq!((provider.base_url().as_str(), models.key_source("openai")), (base, key), "{list:?}");
    }
    let wrong: &[(&str, &str)] = &[("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_BASE_URL", "proxy.example")];
    let faults = Models::build(&configs(&[]), env(wrong)).err().unwrap();
    assert_eq!(faults[0].key(), "ANTHROPIC_BASE_URL", "{faults:?}");
}

/// An assumed model is replaced once the proxy lists its models.
#[tokio::test]
async fn a_model_is_assumed_only_while_none_is_listed() {
    let list = r#"{"data":[{"id":"text-embedding-3"},{"id":"qwen3:8b"}]}"#;
    let service = FakeService::start([status(503, "", ""), status(200, "", list)]).await;
    let env = |name: &str| match name {
        "OPENAI_API_KEY" => Some("k".to_owned()),
        "OPENAI_BASE_URL" => Some(service.url.clone()),
        _ => None,
    };
    let models = Models::build(&configs(&[]), env).unwrap();
    let usual = KnownService::find("openai").unwrap().model;
    for _ in 0..2 {
        assert_eq!(shown(&models, "openai").await, format!("openai/{usual}"));
    }
    tokio::time::pause();
    tokio::time::advance(LOCAL_HOLDS).await;
    tokio::time::resume();
    for _ in 0..2 {
        assert_eq!(shown(&models, "openai").await, "openai/qwen3:8b");
    }
}

#[tokio::test]
async fn a_refused_key_is_not_shown_again_to_list_the_models() {
    let mut service = FakeService::start([status(401, "", "bad key"), status(401, "", "bad key")]).await;
    let models = alone(&configs(&[("vllm", "k", &service.url)]), &[]);
    for words in ["HTTP 401: bad key", "it refused the API key and is not asked for the next"] {
        let shown = shown(&models, "vllm").await;
        assert!(shown.contains(words), "{shown}");
    }
    let requests = service.seen_so_far().into_iter().filter(|seen| format!("{seen:?}").contains("GET"));
    assert_eq!(requests.count(), 1);
}

#[tokio::test]
async fn a_model_that_a_person_chooses_must_exist() {
    const LIST: &str = r#"{"data":[{"id":"qwen3:8b"},{"id":"models/gemini-flash"},{"id":"llama3:latest"}]}"#;
    let missing = || status(404, "", r#"{"error":{"message":"model not found"}}"#);
    let answer = || status(200, "", r#"{"choices":[{"message":{"content":"pong"},"finish_reason":"stop"}]}"#);
    for (wanted, then, expected) in [
        ("vllm/qwen3:8b", vec![], "vllm/qwen3:8b"),
        ("vllm/llama3", vec![], "vllm/llama3"),
        ("vllm/gemini-flash", vec![], "vllm/gemini-flash"),
        ("vllm/unlisted", vec![answer()], "vllm/unlisted"),
        (
            "vllm/qwen3:9b",
            vec![missing(), status(200, "", LIST)],
            "error: vllm has no model \"qwen3:9b\"; similar: vllm/qwen3:8b",
        ),
        ("vllm/xyz", vec![missing(), status(200, "", LIST)], "error: vllm has no model \"xyz\""),
        ("vllm/ ", vec![], "error: vllm has no model \"\""),
        ("offline/", vec![], "error: offline has no model \"\""),
        ("vllm/busy", vec![status(500, "", "")], "error: vllm has no model \"busy\""),
    ] {
        let service = FakeService::start([status(200, "", LIST)].into_iter().chain(then)).await;
        let models = alone(&configs(&[("vllm", "", &service.url)]), &[]);
        let chosen = models.choose(wanted).await.map_or_else(|error| format!("error: {error}"), |one| one.to_string());
        assert_eq!(chosen, expected);
    }
    let models = alone(&configs(&[("vllm", "", "http://127.0.0.1:9")]), &[]);
    let checked = ["vllm", "vllm/x", "vllm/", "offline/", "/x"].map(|wanted| models.check(wanted).is_ok());
    assert_eq!(checked, [true, true, false, false, false]);
}

#[tokio::test]
async fn a_model_server_of_this_machine_is_found() {
    let tags = r#"{"models":[{"name":"nomic-embed-text:latest"},{"name":"qwen3:8b"}]}"#;
    let mut service = FakeService::start([status(200, "", tags)]).await;
    let models = with_ollama(&service.url);
    assert_eq!(shown(&models, "auto").await, "ollama/qwen3:8b");
    assert_eq!(shown(&models, "auto").await, "ollama/qwen3:8b", "asked once");
    assert!(service.next_request().await.starts_with("GET /api/tags "));
    assert_eq!(models.lacking_local_model().await, None);
}

#[tokio::test]
async fn an_ollama_without_models_says_how_to_get_one() {
    const PULL: &str = "ollama has no models yet: get one with `ollama pull qwen3:8b`";
    let service = FakeService::start([status(200, "", r#"{"models":[]}"#)]).await;
    let models = with_ollama(&service.url);
    assert_eq!(shown(&models, "auto").await, "offline");
    assert_eq!(models.lacking_local_model().await.map(|lack| lack.to_string()).as_deref(), Some(PULL));
    let service = FakeService::start([status(200, "", r#"{"object":"list","data":null}"#)]).await;
    let models = alone(&configs(&[("ollama", "", &service.url)]), &[]);
    assert_eq!(shown(&models, "auto").await, format!("error: {PULL}"));
}

#[test]
fn configured_facts_of_a_model_precede_the_table() {
    let mut list = configs(&[("openai", "key", ""), ("proxy", "key", "http://h.example/v1"), ("vllm", "", "")]);
    list.insert(
        "work".to_owned(),
        ProviderConfig { base_url: Some("https://api.openai.com/v1".to_owned()), ..list["openai"].clone() },
    );
    let own = Price { input: 9.0, output: 9.0, cached: None, cache_write: None, currency: "EUR".into() };
    let vllm = list.get_mut("vllm").unwrap();
    (vllm.price, vllm.context_tokens, vllm.model) = (Some(own), Some(8_192), "qwen3:8b".to_owned());
    let models = build(&list, &["DASHSCOPE_API_KEY"]).unwrap();
    for (provider, model, context, currency) in [
        ("openai", "gpt-5", Some(400_000), Some("USD")),
        ("work", "gpt-5", Some(400_000), Some("USD")),
        ("proxy", "gpt-5", Some(400_000), None),
        ("vllm", "gpt-5", Some(8_192), Some("EUR")),
        ("qwen", "qwen-plus", Some(1_000_000), Some("CNY")),
        ("nobody", "x", None, None),
        ("offline", "offline", None, None),
    ] {
        let facts = models.facts(provider, model);
        assert_eq!(facts.context_tokens, context, "{provider}/{model}");
        let price = models.price(provider, model);
        assert_eq!(price.as_ref().map(|price| &*price.currency), currency, "{provider}/{model}");
    }
    for (wanted, context) in
        [("vllm", Some(8_192)), ("vllm/x", Some(8_192)), ("auto", Some(1_050_000)), ("openai/x", None), ("x", None)]
    {
        assert_eq!(models.context_tokens(wanted), context, "{wanted}");
    }
    for (name, source) in [
        ("openai", KeySource::Config),
        ("qwen", KeySource::Variable("DASHSCOPE_API_KEY")),
        ("vllm", KeySource::None),
        ("deepseek", KeySource::None),
    ] {
        assert_eq!(models.key_source(name), source, "{name}");
    }
}
