//! Detects elements that a reader of the page does not see.

use super::tree::HtmlNode;

/// Elements whose content is not displayed as text.
const NEVER: &[&str] = &[
    "applet", "audio", "canvas", "embed", "frame", "frameset", "head", "iframe", "link", "map", "math", "meta",
    "noembed", "noframes", "object", "script", "select", "style", "svg", "template", "textarea", "title", "video",
    "xml",
];

/// Returns true if an element is not displayed.
pub fn is_hidden(node: &HtmlNode) -> bool {
    NEVER.contains(&node.name.as_str())
        || node.name.starts_with("o:")
        || node.has_attribute("hidden")
        || (node.name == "input" && node.attribute("type").eq_ignore_ascii_case("hidden"))
        || declarations(node).any(|(name, value)| match name.as_str() {
            "display" => value.starts_with("none"),
            "visibility" => value.starts_with("hidden"),
            "mso-hide" => value == "all",
            "opacity" | "max-height" => is_zero(&value),
            _ => false,
        })
}

/// Returns whether an element sets the font size to zero; `None` if it sets none. Mail programs set zero on a container and
/// another size on each text inside it.
pub fn has_zero_size(node: &HtmlNode) -> Option<bool> {
    declarations(node).filter(|(name, _)| name == "font-size").map(|(_, value)| is_zero(&value)).last()
}

/// Returns true if an image only tracks the reader: it has one pixel, or it is remote and has no alternative text.
pub fn is_tracker(node: &HtmlNode) -> bool {
    let is_tiny = |value: &str| matches!(value.trim().trim_end_matches("px").trim(), "0" | "1");
    let is_tiny_in = |name: &str| {
        is_tiny(node.attribute(name)) || declarations(node).any(|(known, value)| known == name && is_tiny(&value))
    };
    let is_remote = !node.attribute("src").trim_start().to_ascii_lowercase().starts_with("cid:");
    is_tiny_in("width") || is_tiny_in("height") || (is_remote && node.attribute("alt").trim().is_empty())
}

/// Parses the declarations of the `style` attribute in lower case, without white space.
fn declarations(node: &HtmlNode) -> impl Iterator<Item = (String, String)> {
    node.attribute("style").split(';').filter_map(|declaration| {
        let (name, value) = declaration.split_once(':')?;
        let plain = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase();
        Some((plain(name), plain(value).replace("!important", "")))
    })
}

/// Returns true for `0`, `0px`, `0.0em`.
fn is_zero(value: &str) -> bool {
    let number = value.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '%');
    number.parse::<f32>().is_ok_and(|number| number == 0.0)
}
