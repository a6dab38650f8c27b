//! What a reader of a page does not see, or only a server.

use super::tree::Node;

/// Elements whose content is no text of the page.
const NEVER: &[&str] = &[
    "applet", "audio", "canvas", "embed", "frame", "frameset", "head", "iframe", "link", "map", "math", "meta",
    "noembed", "noframes", "object", "script", "select", "style", "svg", "template", "textarea", "title", "video",
    "xml",
];

/// Whether nothing of an element is shown.
pub fn is_hidden(node: &Node) -> bool {
    NEVER.contains(&node.name.as_str())
        || node.name.starts_with("o:")
        || node.has("hidden")
        || (node.name == "input" && node.attribute("type").eq_ignore_ascii_case("hidden"))
        || declarations(node).any(|(name, value)| match name.as_str() {
            "display" => value.starts_with("none"),
            "visibility" => value.starts_with("hidden"),
            "mso-hide" => value == "all",
            "opacity" | "max-height" => is_zero(&value),
            _ => false,
        })
}

/// Whether an element says of its text that it has no size, `Some(true)`, or that it has one: programs that lay mails out
/// give a frame none and each text in it one again.
pub fn has_no_size(node: &Node) -> Option<bool> {
    declarations(node).filter(|(name, _)| name == "font-size").map(|(_, value)| is_zero(&value)).last()
}

/// Whether an image is there to be fetched, not to be seen: of one pixel, or a remote one that says nothing.
pub fn is_tracker(node: &Node) -> bool {
    let is_tiny = |value: &str| matches!(value.trim().trim_end_matches("px").trim(), "0" | "1");
    let sized = |name: &str| {
        is_tiny(node.attribute(name)) || declarations(node).any(|(known, value)| known == name && is_tiny(&value))
    };
    let is_remote = !node.attribute("src").trim_start().to_ascii_lowercase().starts_with("cid:");
    sized("width") || sized("height") || (is_remote && node.attribute("alt").trim().is_empty())
}

/// The declarations of the `style` attribute, in lower case and without white space.
fn declarations(node: &Node) -> impl Iterator<Item = (String, String)> {
    node.attribute("style").split(';').filter_map(|declaration| {
        let (name, value) = declaration.split_once(':')?;
        let plain = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase();
        Some((plain(name), plain(value).replace("!important", "")))
    })
}

/// `0`, `0px`, `0.0em`.
fn is_zero(value: &str) -> bool {
    let number = value.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '%');
    number.parse::<f32>().is_ok_and(|number| number == 0.0)
}
