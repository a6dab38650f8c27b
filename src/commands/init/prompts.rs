//! Questions at the terminal.

use std::io::{self, ErrorKind, IsTerminal};

use daoyou_channels::settings::Secret;
use inquire::ui::RenderConfig;
use inquire::{Confirm, InquireError, Password, PasswordDisplayMode, Select, Text};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::commands::output::{field_line, print_note, stderr_is_terminal, tr};

/// The number of list entries that are visible at the same time.
const PAGE: usize = 12;

/// The error of a user who ended the questions with Ctrl-C or Esc.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled;

/// The terminal while questions are asked. Dropping it restores the terminal.
pub struct Prompts {
    before: Termios,
}

impl Prompts {
    /// Sets up the terminal of this process; `None` if there is none.
    ///
    /// # Errors
    /// The terminal cannot be set.
    pub fn open() -> io::Result<Option<Self>> {
        if !io::stdin().is_terminal() || !stderr_is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(io::stdin())?;
        let mut quiet = before.clone();
        // The library sets the terminal mode for each key separately: text that is pasted in between must not be visible.
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
        tcsetattr(io::stdin(), OptionalActions::Now, &quiet)?;
        Ok(Some(Self { before }))
    }

    /// Returns the index of the chosen entry.
    ///
    /// # Errors
    /// [`Cancelled`], or the terminal is gone.
    pub fn select(&self, question: &str, entries: &[String], first: usize) -> anyhow::Result<usize> {
        let entries: Vec<String> = entries.iter().map(|entry| field_line(entry)).collect();
        let help =
            tr("↑↓ and Enter choose, typing filters, Esc cancels", "↑↓ 选择，回车确定，输入文字可筛选，Esc 取消");
        let select = Select::new(question, entries).with_starting_cursor(first).with_page_size(PAGE);
        let chosen = select.with_help_message(help).with_render_config(style()).raw_prompt();
        Ok(chosen.map_err(stop)?.index)
    }

    /// Returns a text that `check` accepts; an empty answer is the default.
    ///
    /// # Errors
    /// [`Cancelled`], or the terminal is gone.
    pub fn text(
        &self,
        question: &str,
        default: &str,
        check: impl Fn(&str) -> Result<(), String>,
    ) -> anyhow::Result<String> {
        loop {
            let mut prompt = Text::new(question).with_render_config(style());
            if !default.is_empty() {
                prompt = prompt.with_default(default);
            }
            let text = prompt.prompt().map_err(stop)?.trim().to_owned();
            match check(&text) {
                Ok(()) => return Ok(text),
                Err(wrong) => print_note(format_args!("  {wrong}")),
            }
        }
    }

    /// Returns a text that is not visible on the screen; `None` if nothing was entered.
    ///
    /// # Errors
    /// [`Cancelled`], or the terminal is gone.
    pub fn secret(&self, question: &str) -> anyhow::Result<Option<Secret>> {
        let help = tr("it does not appear on the screen", "输入内容不会显示在屏幕上");
        let prompt = Password::new(question).without_confirmation().with_display_mode(PasswordDisplayMode::Hidden);
        let text = prompt.with_help_message(help).with_render_config(style()).prompt().map_err(stop)?;
        Ok(Some(text.trim()).filter(|text| !text.is_empty()).map(Secret::new))
    }

    /// Returns the answer to a yes-or-no question.
    ///
    /// # Errors
    /// [`Cancelled`], or the terminal is gone.
    pub fn confirm(&self, question: &str, default: bool) -> anyhow::Result<bool> {
        let prompt = Confirm::new(question).with_default(default).with_render_config(style());
        let prompt =
            prompt.with_formatter(&|yes| tr(if yes { "yes" } else { "no" }, if yes { "是" } else { "否" }).into());
        let wrong = tr("y or n", "请输入 y（是）或 n（否）");
        prompt.with_parser(&yes_or_no).with_error_message(wrong).prompt().map_err(stop)
    }
}

impl Drop for Prompts {
    fn drop(&mut self) {
        // The terminal may be gone; it needs no mode then.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// Returns an error in the output language unless `is_good`.
pub fn require(is_good: bool, en: &str, zh: &str) -> Result<(), String> {
    if is_good { Ok(()) } else { Err(tr(en, zh).to_owned()) }
}

/// Checks the name of a service or a webhook; `is_allowed` is a further condition.
pub fn check_name(text: &str, is_allowed: bool) -> Result<(), String> {
    let is_name =
        is_allowed && !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    require(is_name, "letters, digits, - and _", "只能用字母、数字、- 和 _")
}

fn yes_or_no(text: &str) -> Result<bool, ()> {
    match text.trim().to_lowercase().as_str() {
        "y" | "yes" | "是" | "好" => Ok(true),
        "n" | "no" | "否" | "不" => Ok(false),
        _ => Err(()),
    }
}

fn style() -> RenderConfig<'static> {
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if is_plain { RenderConfig::empty() } else { RenderConfig::default() }
}

fn stop(error: InquireError) -> anyhow::Error {
    match error {
        InquireError::OperationCanceled | InquireError::OperationInterrupted => Cancelled.into(),
        InquireError::IO(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::UnexpectedEof) => {
            Cancelled.into()
        }
        other => anyhow::Error::from(other).context("the terminal cannot be used"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yes_and_no_in_both_languages() {
        for (text, expected) in [
            ("Y", Ok(true)),
            (" yes ", Ok(true)),
            ("是", Ok(true)),
            ("否", Ok(false)),
            ("n", Ok(false)),
            ("x", Err(())),
        ] {
            assert_eq!(yes_or_no(text), expected, "{text}");
        }
    }
}
