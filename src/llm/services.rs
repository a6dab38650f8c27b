//! A table of known services, which need only a key in the configuration.

use reqwest::Url;

use super::ProviderKind;
use super::openai::{LimitField, ReasoningEcho, ReasoningField};

/// One known service.
#[derive(Debug, PartialEq, Eq)]
pub struct KnownService {
    /// The service's name in the configuration.
    pub name: &'static str,
    pub base_url: &'static str,
    pub kind: ProviderKind,
    /// Environment variables that usually hold the service's key, the most usual one first; none for a local server.
    pub key_variables: &'static [&'static str],
    /// The environment variable that overrides the service's address. The key from the environment is then sent to that
    /// address.
    pub base_variable: Option<&'static str>,
    /// The model that `auto` uses; if it is empty, the first model that the server lists.
    pub model: &'static str,
    pub rules: ServiceRules,
}

/// The rules in which a service differs from others that speak chat completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceRules {
    /// The service's field for the longest answer.
    pub limit: LimitField,
    /// The reasoning that is sent back to the service. Some services refuse a request without it, others refuse a request with
    /// it.
    pub echo: ReasoningEcho,
}

/// The rules of most services, and of unknown ones, whose refusals correct them.
pub const USUAL_RULES: ServiceRules = ServiceRules { limit: LimitField::MaxTokens, echo: ReasoningEcho::AsSent };
/// The rules of services that require the reasoning of each call in all later turns (DeepSeek:
/// api-docs.deepseek.com/guides/thinking_mode; Kimi).
const WANTS_THOUGHTS: ServiceRules =
    ServiceRules { echo: ReasoningEcho::Always(ReasoningField::Content), ..USUAL_RULES };
/// The rules of services that refuse unknown fields, which include reasoning.
const REFUSES_THOUGHTS: ServiceRules = ServiceRules { echo: ReasoningEcho::Never, ..USUAL_RULES };

/// The known services, in the order in which `auto` searches for their keys.
pub const SERVICES: &[KnownService] = &[
    hosted("openai", "https://api.openai.com/v1", &["OPENAI_API_KEY"], "gpt-6-luna")
        .with(ServiceRules { limit: LimitField::MaxCompletionTokens, ..REFUSES_THOUGHTS })
        .moved_by("OPENAI_BASE_URL"),
    hosted("anthropic", "https://api.anthropic.com/v1", &["ANTHROPIC_API_KEY"], "claude-sonnet-5")
        .speaking(ProviderKind::Anthropic)
        .moved_by("ANTHROPIC_BASE_URL"),
    hosted("deepseek", "https://api.deepseek.com/v1", &["DEEPSEEK_API_KEY"], "deepseek-v4-flash").with(WANTS_THOUGHTS),
    hosted(
        "qwen",
        "https://dashscope.aliyuncs.com/compatible-mode/v1",
        &["DASHSCOPE_API_KEY", "QWEN_API_KEY"],
        "qwen-plus",
    ),
    hosted("openrouter", "https://openrouter.ai/api/v1", &["OPENROUTER_API_KEY"], "openrouter/auto"),
    hosted("moonshot", "https://api.moonshot.cn/v1", &["MOONSHOT_API_KEY"], "kimi-k2.6").with(WANTS_THOUGHTS),
    hosted(
        "zhipu",
        "https://open.bigmodel.cn/api/paas/v4",
        &["ZHIPU_API_KEY", "ZHIPUAI_API_KEY", "BIGMODEL_API_KEY"],
        "glm-4.7",
    ),
    hosted("zai", "https://api.z.ai/api/paas/v4", &["ZAI_API_KEY"], "glm-4.7"),
    hosted("siliconflow", "https://api.siliconflow.cn/v1", &["SILICONFLOW_API_KEY"], "deepseek-ai/DeepSeek-V4-Flash"),
    hosted("groq", "https://api.groq.com/openai/v1", &["GROQ_API_KEY"], "openai/gpt-oss-120b").with(REFUSES_THOUGHTS),
    hosted(
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        "gemini-flash-latest",
    ),
    hosted("mistral", "https://api.mistral.ai/v1", &["MISTRAL_API_KEY"], "mistral-medium-latest")
        .with(REFUSES_THOUGHTS),
    hosted("xai", "https://api.x.ai/v1", &["XAI_API_KEY"], "grok-4.3"),
    hosted("minimax", "https://api.minimax.io/v1", &["MINIMAX_API_KEY"], "MiniMax-M3"),
    hosted("volcengine", "https://ark.cn-beijing.volces.com/api/v3", &["ARK_API_KEY"], "doubao-seed-1-8-251228"),
    hosted("stepfun", "https://api.stepfun.com/v1", &["STEPFUN_API_KEY"], "step-3.7-flash"),
    hosted("xiaomi", "https://api.xiaomimimo.com/v1", &["XIAOMI_API_KEY", "MIMO_API_KEY"], "mimo-v2.5"),
    hosted("cerebras", "https://api.cerebras.ai/v1", &["CEREBRAS_API_KEY"], "gpt-oss-120b"),
    hosted("together", "https://api.together.xyz/v1", &["TOGETHER_API_KEY"], "deepseek-ai/DeepSeek-V4-Pro"),
    hosted(
        "fireworks",
        "https://api.fireworks.ai/inference/v1",
        &["FIREWORKS_API_KEY"],
        "accounts/fireworks/models/deepseek-v4-flash",
    ),
    hosted("deepinfra", "https://api.deepinfra.com/v1/openai", &["DEEPINFRA_API_KEY"], "deepseek-ai/DeepSeek-V4-Flash"),
    hosted("nvidia", "https://integrate.api.nvidia.com/v1", &["NVIDIA_API_KEY"], "deepseek-ai/deepseek-v4-flash"),
    hosted("perplexity", "https://api.perplexity.ai", &["PERPLEXITY_API_KEY"], "sonar"),
    // The models of these services change faster than this table, so `auto` uses the first one that they list.
    hosted("hunyuan", "https://api.hunyuan.cloud.tencent.com/v1", &["HUNYUAN_API_KEY"], ""),
    hosted("baichuan", "https://api.baichuan-ai.com/v1", &["BAICHUAN_API_KEY"], ""),
    local(OLLAMA, "http://127.0.0.1:11434/v1").moved_by(OLLAMA_HOST),
    local("vllm", "http://127.0.0.1:8000/v1"),
    local("llamacpp", "http://127.0.0.1:8080/v1"),
    local("lmstudio", "http://127.0.0.1:1234/v1"),
];

/// The model server that `auto` searches for on this machine.
pub const OLLAMA: &str = "ollama";

/// The variable that says where Ollama listens: a host, with or without scheme and port.
pub const OLLAMA_HOST: &str = "OLLAMA_HOST";

/// Returns the base URL for a value of `OLLAMA_HOST`, read as Ollama's own clients read it: the port is 11434 if there is no
/// scheme, and an address that means all interfaces becomes that of this machine.
pub fn ollama_base(given: &str) -> String {
    let given = given.trim().trim_matches(['"', '\'']).trim_end_matches('/');
    let (scheme, rest, port) = match given.split_once("://") {
        Some((scheme, rest)) => (scheme, rest, ""),
        None => ("http", given, ":11434"),
    };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    // Ollama also accepts an IPv6 address without brackets.
    let host = match host.parse::<std::net::Ipv6Addr>() {
        Ok(address) => &format!("[{address}]"),
        Err(_) => host,
    };
    // A colon within brackets belongs to the address (RFC 3986, section 3.2.2).
    let (name, own_port) = match host.rfind(':').filter(|at| !host[*at..].contains(']')) {
        Some(at) => host.split_at(at),
        None => (host, port),
    };
    let name = match name {
        "" | "0.0.0.0" => "127.0.0.1",
        "[::]" => "[::1]",
        name => name,
    };
    format!("{scheme}://{name}{own_port}{path}")
}

impl KnownService {
    pub fn find(name: &str) -> Option<&'static Self> {
        SERVICES.iter().find(|service| service.name == name)
    }

    /// Returns the service at an address, whatever its name in the configuration. Local servers are not found, since they
    /// cannot be distinguished.
    pub fn at(base_url: &Url) -> Option<&'static Self> {
        let host = base_url.host_str()?;
        SERVICES.iter().find(|service| !service.is_local() && service.host() == host)
    }

    /// Returns the path segments of the service's base URL.
    pub fn path(&self) -> impl Iterator<Item = &'static str> {
        let (_, address) = self.base_url.split_once("://").unwrap_or_default();
        address.split('/').skip(1).filter(|part| !part.is_empty())
    }

    /// Returns the service's host. A split is enough to parse the simple addresses of the table.
    fn host(&self) -> &'static str {
        let (_, address) = self.base_url.split_once("://").unwrap_or_default();
        address.split(['/', ':']).next().unwrap_or_default()
    }

    /// Returns true for a local server, which needs no key.
    pub fn is_local(&self) -> bool {
        self.key_variables.is_empty()
    }

    const fn with(mut self, rules: ServiceRules) -> Self {
        self.rules = rules;
        self
    }

    const fn moved_by(mut self, variable: &'static str) -> Self {
        self.base_variable = Some(variable);
        self
    }

    const fn speaking(mut self, kind: ProviderKind) -> Self {
        self.kind = kind;
        self
    }
}

const fn hosted(
    name: &'static str,
    base_url: &'static str,
    key_variables: &'static [&'static str],
    model: &'static str,
) -> KnownService {
    KnownService {
        name,
        base_url,
        kind: ProviderKind::Openai,
        key_variables,
        base_variable: None,
        model,
        rules: USUAL_RULES,
    }
}

const fn local(name: &'static str, base_url: &'static str) -> KnownService {
    hosted(name, base_url, &[], "")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ollama_is_asked_where_its_own_variable_says() {
        for (given, base) in [
            ("127.0.0.1:9", "http://127.0.0.1:9"),
            ("box", "http://box:11434"),
            (" 0.0.0.0 ", "http://127.0.0.1:11434"),
            (":8000", "http://127.0.0.1:8000"),
            ("[::]:8000", "http://[::1]:8000"),
            ("[::1]", "http://[::1]:11434"),
            ("::1", "http://[::1]:11434"),
            ("::", "http://[::1]:11434"),
            ("\"box\"", "http://box:11434"),
            ("https://box.example/", "https://box.example"),
            ("http://box:80/ollama", "http://box:80/ollama"),
        ] {
            assert_eq!(ollama_base(given), base, "{given}");
        }
    }

    #[test]
    fn the_table_holds_together() {
        let names: BTreeSet<_> = SERVICES.iter().map(|service| service.name).collect();
        assert_eq!(names.len(), SERVICES.len());
        for service in SERVICES {
            let url = Url::parse(service.base_url).unwrap();
            assert_eq!(crate::llm::remote::is_loopback(&url), service.is_local(), "{}", service.name);
            assert_eq!(url.scheme() == "https", !service.is_local(), "{}", service.name);
            let is_host_known = KnownService::at(&url).is_some_and(|known| known.name == service.name);
            assert_eq!(is_host_known, !service.is_local(), "{}", service.name);
        }
        assert!(KnownService::find(OLLAMA).is_some_and(KnownService::is_local));
        assert_eq!(KnownService::find("nobody"), None);
    }
}
