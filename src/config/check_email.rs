//! What the kinds of the values do not say about `[channels.email]`, and who the owner is there.

use daoyou_channels::email::is_address;

use super::fault::{join, quoted};
use super::settings::Config;

const TABLE: &str = "channels.email";

/// A fault of the first of `keys`, unless one of them is at fault already.
pub(super) struct Finding {
    pub keys: Vec<String>,
    pub wrong: String,
    pub allowed: String,
}

/// All that is wrong with it.
pub(super) fn findings(config: &Config) -> Vec<Finding> {
    let own = config.channels.email.faults().into_iter().map(|fault| Finding {
        keys: std::iter::once(&fault.key).chain(fault.with).map(|key| join(TABLE, key)).collect(),
        wrong: fault.wrong,
        allowed: fault.allowed,
    });
    let owners = owners(config).filter(|(_, owner)| !is_address(owner)).map(|(index, owner)| Finding {
        keys: vec!["owner.identities".to_owned()],
        wrong: format!("entry {index} is \"email:\" and {}, which is no address", quoted(owner)),
        allowed: "\"email:\" and an address, such as \"email:me@example.org\"".to_owned(),
    });
    own.chain(owners).chain(notify(config)).collect()
}

/// What works and is hardly meant, as `(key, sentence)`.
pub(super) fn warnings(config: &Config) -> Vec<(String, String)> {
    let owners: Vec<&str> = owners(config).map(|(_, owner)| owner).collect();
    let warnings = config.channels.email.warnings(&owners).into_iter();
    warnings.map(|(key, words)| (join(TABLE, key), words)).collect()
}

/// The owner's addresses, and their places in `owner.identities`.
fn owners(config: &Config) -> impl Iterator<Item = (usize, &str)> {
    let identities = config.owner.identities.iter().enumerate();
    identities.filter_map(|(index, identity)| Some((index, identity.strip_prefix("email:")?)))
}

/// A notice goes to an address, or into a thread by its first mail's Message-ID.
fn notify(config: &Config) -> Option<Finding> {
    let chat = config.owner.notify.strip_prefix("email:")?;
    let is_thread = chat.starts_with('<') && chat.ends_with('>') && chat.contains('@');
    if !is_address(chat) && !is_thread {
        return Some(Finding {
            keys: vec!["owner.notify".to_owned()],
            wrong: format!("{} is no address", quoted(chat)),
            allowed: "\"email:\" and an address, such as \"email:me@example.org\"".to_owned(),
        });
    }
    (!config.channels.email.enabled).then(|| Finding {
        keys: vec!["owner.notify".to_owned(), TABLE.to_owned()],
        wrong: "[channels.email] is not switched on".to_owned(),
        allowed: "a channel that is, or \"\" for the log alone".to_owned(),
    })
}
