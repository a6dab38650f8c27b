//! Regular expressions that are part of the program.

/// Declares a regular expression that is compiled when it is first used.
macro_rules! pattern {
    ($(#[$about:meta])* $name:ident, $text:expr) => {
        $(#[$about])*
        static $name: std::sync::LazyLock<regex::Regex> =
            std::sync::LazyLock::new(|| regex::Regex::new($text).expect("a constant pattern is valid"));
    };
}
pub(crate) use pattern;
