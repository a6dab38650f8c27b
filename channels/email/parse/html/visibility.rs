//! Detects elements that a reader of the page does not see.

use std::collections::HashSet;

use super::tree::{HtmlNode, HtmlTree};

/// Elements whose content is not displayed as text.
const NEVER: &[&str] = &[
    "applet", "audio", "canvas", "embed", "frame", "frameset", "head", "iframe", "link", "map", "math", "meta",
    "noembed", "noframes", "object", "script", "select", "style", "svg", "template", "textarea", "title", "video",
    "xml",
];

/// Marks the elements that the page's style sheets hide by a class or an id alone, as in `.a`, `#a` and `p.a`. Rules
/// within `@media` do not count, because they may hide a text on small screens only.
pub fn apply_style_sheets(tree: &mut HtmlTree) {
    let mut hiding: HashSet<String> = HashSet::new();
    for (selectors, _) in style_rules(&tree.style_sheets).into_iter().filter(|(_, style)| hides(style)) {
        hiding.extend(selectors.replace("<!--", "").split(',').map(|selector| selector.trim().to_ascii_lowercase()));
    }
    if hiding.is_empty() {
        return;
    }
    for node in &mut tree.nodes {
        let classes = node.attribute("class").split_whitespace().map(|class| format!(".{class}"));
        let id = Some(node.attribute("id")).filter(|id| !id.is_empty()).map(|id| format!("#{id}"));
        let mut marks = classes.chain(id).map(|mark| mark.to_ascii_lowercase());
        node.is_hidden_by_style =
            marks.any(|mark| hiding.contains(&mark) || hiding.contains(&(node.name.clone() + &mark)));
    }
}

/// Returns the outermost rules of a style sheet, each as its selectors and its declarations.
fn style_rules(sheet: &str) -> Vec<(String, String)> {
    let mut rules = Vec::new();
    let (mut selectors, mut style, mut depth) = (String::new(), String::new(), 0_usize);
    // Each piece but the first begins behind a comment.
    let pieces = sheet.split("/*").enumerate();
    let code =
        pieces.map(|(index, piece)| if index == 0 { piece } else { piece.split_once("*/").unwrap_or_default().1 });
    // The end of the sheet ends the last rule.
    for c in code.flat_map(str::chars).chain(['}']) {
        match (c, depth) {
            ('{', _) => depth += 1,
            ('}', 0) => selectors.clear(),
            ('}', _) => {
                depth -= 1;
                if depth == 0 {
                    let rule = (std::mem::take(&mut selectors), std::mem::take(&mut style));
                    rules.extend(Some(rule).filter(|(selectors, _)| !selectors.contains('@')));
                }
            }
            // The end of `@import` and the like.
            (';', 0) => selectors.clear(),
            (c, 0) => selectors.push(c),
            (c, _) => style.push(c),
        }
    }
    rules
}

/// Returns true if an element is not displayed.
pub fn is_hidden(node: &HtmlNode) -> bool {
    NEVER.contains(&node.name.as_str())
        || node.name.starts_with("o:")
        || node.has_attribute("hidden")
        || (node.name == "input" && node.attribute("type").eq_ignore_ascii_case("hidden"))
        || node.is_hidden_by_style
        || hides(node.attribute("style"))
}

/// Returns true if these declarations hide an element.
fn hides(style: &str) -> bool {
    declarations(style).any(|(name, value)| match name.as_str() {
        "display" => value.starts_with("none"),
        "visibility" => value.starts_with("hidden"),
        "mso-hide" => value == "all",
        "opacity" | "max-height" => is_zero(&value),
        _ => false,
    })
}

/// Returns whether an element sets a font size that nobody can read; `None` if it sets none. Mail programs set zero on a
/// container and another size on each text inside it.
pub fn has_zero_size(node: &HtmlNode) -> Option<bool> {
    let is_one = |value: &str| matches!(value, "1px" | "1pt");
    let sizes = declarations(node.attribute("style")).filter(|(name, _)| name == "font-size");
    sizes.map(|(_, value)| is_zero(&value) || is_one(&value)).last()
}

/// Returns true if an image only tracks the reader: it has one pixel, or it is remote and has no alternative text.
pub fn is_tracker(node: &HtmlNode) -> bool {
    let is_tiny = |value: &str| matches!(value.trim().trim_end_matches("px").trim(), "0" | "1");
    let is_tiny_in = |name: &str| {
        let mut style = declarations(node.attribute("style"));
        is_tiny(node.attribute(name)) || style.any(|(known, value)| known == name && is_tiny(&value))
    };
    let is_remote = !node.attribute("src").trim_start().to_ascii_lowercase().starts_with("cid:");
    is_tiny_in("width") || is_tiny_in("height") || (is_remote && node.attribute("alt").trim().is_empty())
}

/// Parses declarations in lower case, without white space.
fn declarations(style: &str) -> impl Iterator<Item = (String, String)> {
    style.split(';').filter_map(|declaration| {
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
