//! `daoyou init`.

use clap::Args;

use super::tools::model_name;

/// `daoyou init`.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "Examples:\n  daoyou init\n  daoyou init --yes\n  \
        daoyou init --yes --provider deepseek --api-key-env DEEPSEEK_API_KEY --model deepseek-v4-flash\n  \
        daoyou init --yes --provider mine --base-url http://127.0.0.1:8000/v1 --model some-model")]
pub struct InitArgs {
    /// Do not prompt; use the options, the environment and what is found on this machine
    #[arg(short, long)]
    pub yes: bool,
    /// The model service: a name from `daoyou models`, or any name together with --base-url
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// The environment variable that holds the key; the key itself is never an argument
    #[arg(long, value_name = "VARIABLE", value_parser = variable)]
    pub api_key_env: Option<String>,
    /// The model; without --provider: PROVIDER/MODEL
    #[arg(long, value_name = "MODEL", value_parser = model_name)]
    pub model: Option<String>,
    /// The address of the service [default: the known one]
    #[arg(long, value_name = "URL")]
    pub base_url: Option<String>,
    /// The language of daoyou's own messages: en, zh or auto
    #[arg(long, value_name = "LANGUAGE", value_parser = ["en", "zh", "auto"])]
    pub locale: Option<String>,
    /// The time zone, e.g. Europe/Berlin [default: that of this machine]
    #[arg(long, value_name = "ZONE")]
    pub timezone: Option<String>,
    /// Do not test the model with a call; only with --yes
    #[arg(long, requires = "yes")]
    pub no_test: bool,
}

/// Rejects a key in place of the name of its variable: the key would be in the process list and the shell's history.
fn variable(text: &str) -> Result<String, String> {
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_name = text.starts_with(is_start) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_name {
        return Ok(text.to_owned());
    }
    Err("it is the NAME of an environment variable, such as OPENAI_API_KEY, and not the key".to_owned())
}
