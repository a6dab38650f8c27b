//! The names under which models see a server's tools.

use std::collections::HashSet;

use daoyou_channels::text::hex;
use sha2::{Digest, Sha256};

/// The longest name that model services accept.
const NAME_CHARS: usize = 64;
/// The number of digest characters in a changed name.
const DIGEST_CHARS: usize = 6;

/// Assigns names to the tools of one server that are valid and unique for models, even if case is ignored.
#[derive(Default)]
pub(super) struct McpToolNames {
    /// The assigned names in lower case.
    taken: HashSet<String>,
    /// The server's own names of the tools that have a name.
    named: HashSet<String>,
}

impl McpToolNames {
    /// Returns `SERVER__tool`. A name that has invalid characters, is too long or is taken is changed, and gets a digest of the
    /// tool's own name as its suffix. Returns `None` if the server has listed this tool before.
    pub(super) fn assign(&mut self, server: &str, tool: &str) -> Option<String> {
        if !self.named.insert(tool.to_owned()) {
            return None;
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let plain = format!("{server}__{tool}");
        let is_legal = !tool.is_empty() && tool.chars().all(is_plain) && plain.len() <= NAME_CHARS;
        if is_legal && self.taken.insert(plain.to_lowercase()) {
            return Some(plain);
        }
        let digest = &hex(&Sha256::digest(tool.as_bytes()))[..DIGEST_CHARS];
        let slug: String = tool.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        let room = NAME_CHARS - DIGEST_CHARS - 1 - server.len() - 2;
        let slug = slug[..slug.len().min(room)].trim_end_matches('_');
        let name = format!("{server}__{slug}_{digest}");
        self.taken.insert(name.to_lowercase()).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_legal_and_unique() {
        let mut names = McpToolNames::default();
        let long = "x".repeat(200);
        let tools = ["echo", "Echo", "get.sum", "get sum", "", "日本語", "日本", &long, "a__b", "<b>", "echo_a1b2c3"];
        let mut seen = HashSet::new();
        for tool in tools {
            let name = names.assign("srv", tool).unwrap();
            let is_legal = name.len() <= NAME_CHARS
                && name.starts_with("srv__")
                && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
            assert!(is_legal && seen.insert(name.to_lowercase()), "{tool}: {name}");
        }
        assert!(seen.contains("srv__echo") && seen.contains("srv__a__b"));
        for tool in tools {
            assert_eq!(names.assign("srv", tool), None, "{tool} is listed twice");
        }
        let alone = |tool: &str| McpToolNames::default().assign("srv", tool);
        assert_eq!(alone("get.sum"), alone("get.sum"));
    }

    #[test]
    fn the_longest_server_name_leaves_room() {
        let server = "s".repeat(32);
        let name = McpToolNames::default().assign(&server, &"t".repeat(100)).unwrap();
        assert_eq!(name.len(), NAME_CHARS);
    }
}
