//! The slash commands that the terminal handles itself; the gateway handles all others.

/// A slash command that the terminal handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LocalCommand {
    /// `/exit`, `/quit`
    Leave,
    Clear,
    Add(String),
    Drop(String),
    Files,
    /// `/session KEY`
    Move(String),
    /// `/thinking [show|fold|hide]`
    Thinking(String),
}

impl LocalCommand {
    /// Parses a line. Returns `None` if the line is for the gateway.
    pub(super) fn parse(line: &str) -> Option<Self> {
        // A command followed by more lines is a message, which must not be lost.
        if line.contains('\n') {
            return None;
        }
        let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let argument = argument.trim();
        Some(match name.to_ascii_lowercase().as_str() {
            "/exit" | "/quit" => Self::Leave,
            "/clear" => Self::Clear,
            "/add" => Self::Add(argument.to_owned()),
            "/drop" => Self::Drop(argument.to_owned()),
            "/files" => Self::Files,
            "/thinking" => Self::Thinking(argument.to_ascii_lowercase()),
            "/session" if !argument.is_empty() => Self::Move(argument.to_owned()),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_command_of_the_terminal_or_is_sent() {
        for (line, expected) in [
            ("/exit", Some(LocalCommand::Leave)),
            ("/QUIT now", Some(LocalCommand::Leave)),
            ("/add  a b.txt ", Some(LocalCommand::Add("a b.txt".into()))),
            ("/session", None),
            ("/session cli:x", Some(LocalCommand::Move("cli:x".into()))),
            ("/additional", None),
            ("/exit\nis what I typed", None),
            ("/help", None),
            ("exit", None),
        ] {
            assert_eq!(LocalCommand::parse(line), expected, "{line:?}");
        }
    }
}
