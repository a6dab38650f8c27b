//! Services that are known by name: a key alone is enough for them.

use super::ProviderKind;

/// One known service.
#[derive(Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name in the configuration.
    pub name: &'static str,
    pub base_url: &'static str,
    pub kind: ProviderKind,
    /// Environment variables that usually hold its key, the usual one first; none for a server of one's own.
    pub key_variables: &'static [&'static str],
    /// The model that `auto` takes; empty: the first that the server lists.
    pub model: &'static str,
}

/// In the order in which `auto` looks for their keys.
pub const SERVICES: &[Service] = &[
    hosted("openai", "https://api.openai.com/v1", &["OPENAI_API_KEY"], "gpt-6-luna"),
    hosted("anthropic", "https://api.anthropic.com/v1", &["ANTHROPIC_API_KEY"], "claude-sonnet-5")
        .speaking(ProviderKind::Anthropic),
    hosted("deepseek", "https://api.deepseek.com/v1", &["DEEPSEEK_API_KEY"], "deepseek-v4-flash"),
    hosted(
        "qwen",
        "https://dashscope.aliyuncs.com/compatible-mode/v1",
        &["DASHSCOPE_API_KEY", "QWEN_API_KEY"],
        "qwen-plus",
    ),
    hosted("openrouter", "https://openrouter.ai/api/v1", &["OPENROUTER_API_KEY"], "openrouter/auto"),
    hosted("moonshot", "https://api.moonshot.cn/v1", &["MOONSHOT_API_KEY"], "kimi-k2.6"),
    hosted(
        "zhipu",
        "https://open.bigmodel.cn/api/paas/v4",
        &["ZHIPU_API_KEY", "ZHIPUAI_API_KEY", "BIGMODEL_API_KEY"],
        "glm-4.7",
    ),
    hosted("zai", "https://api.z.ai/api/paas/v4", &["ZAI_API_KEY"], "glm-4.7"),
    hosted("siliconflow", "https://api.siliconflow.cn/v1", &["SILICONFLOW_API_KEY"], "deepseek-ai/DeepSeek-V4-Flash"),
    hosted("groq", "https://api.groq.com/openai/v1", &["GROQ_API_KEY"], "openai/gpt-oss-120b"),
    hosted(
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        "gemini-flash-latest",
    ),
    hosted("mistral", "https://api.mistral.ai/v1", &["MISTRAL_API_KEY"], "mistral-medium-latest"),
    local(OLLAMA, "http://127.0.0.1:11434/v1"),
    local("vllm", "http://127.0.0.1:8000/v1"),
    local("llamacpp", "http://127.0.0.1:8080/v1"),
    local("lmstudio", "http://127.0.0.1:1234/v1"),
];

/// The model server that `auto` looks for on this machine.
pub const OLLAMA: &str = "ollama";

impl Service {
    pub fn find(name: &str) -> Option<&'static Self> {
        SERVICES.iter().find(|service| service.name == name)
    }

    /// A server of one's own, that needs no key.
    pub fn is_local(&self) -> bool {
        self.key_variables.is_empty()
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
) -> Service {
    Service { name, base_url, kind: ProviderKind::Openai, key_variables, model }
}

const fn local(name: &'static str, base_url: &'static str) -> Service {
    hosted(name, base_url, &[], "")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_table_holds_together() {
        let names: BTreeSet<_> = SERVICES.iter().map(|service| service.name).collect();
        assert_eq!(names.len(), SERVICES.len());
        for service in SERVICES {
            let url = reqwest::Url::parse(service.base_url).unwrap();
            assert_eq!(crate::llm::remote::is_loopback(&url), service.is_local(), "{}", service.name);
            assert_eq!(url.scheme() == "https", !service.is_local(), "{}", service.name);
            assert_eq!(service.model.is_empty(), service.is_local(), "{}", service.name);
        }
        assert!(Service::find(OLLAMA).is_some_and(Service::is_local));
        assert_eq!(Service::find("nobody"), None);
    }
}
