//! `/checkpoint` and `/restore`: the points that a session can go back to.

use super::context::{read_messages, written};
use super::history::{clock, shorten};
use super::phrases::fill;
use super::slash::{Answered, SessionChange, SlashCommands};
use crate::chat::ChatMessage;
use crate::store::messages::MessageRow;
use crate::store::points::{self, PointError, PointLine};
use crate::store::{StoreError, inbox::InboxRow};

/// Points that are listed.
const LISTED: u32 = 10;

/// How much of a point's first words is shown, and how long a name gets, in characters.
const WORDS: usize = 60;
const NAME: usize = 40;

impl SlashCommands {
    /// Lists the last points of the session, or gives the current one a name.
    pub(super) async fn checkpoint(&self, name: &str, row: &InboxRow) -> Result<Answered, StoreError> {
        let key = row.session.clone();
        let name = shorten(name, NAME);
        if name.is_empty() {
            let lines = self.store.read(move |connection| points::list(connection, &key, LISTED)).await?;
            return Ok(self.points(&lines).into());
        }
        let Some(turn) = self.store.read(move |connection| points::current(connection, &key)).await? else {
            return Ok(self.phrases.no_points.to_owned().into());
        };
        let reply = fill(self.phrases.point_named, &[&name, &name]);
        Ok(Answered { reply, change: SessionChange::NamePoint { turn, name }, error: None })
    }

    /// Puts the session back to a point, which is named or given by its id.
    pub(super) async fn restore(&self, wanted: &str, row: &InboxRow) -> Result<Answered, StoreError> {
        if wanted.is_empty() {
            return self.checkpoint("", row).await;
        }
        let (key, named) = (row.session.clone(), shorten(wanted, NAME));
        let found = self
            .store
            .read(move |connection| {
                points::settle(
                    points::turn_in(connection, &key, &named)
                        .and_then(|turn| points::find(connection, &key, turn))
                        .and_then(|point| Ok((points::line(connection, &point)?, point))),
                )
            })
            .await?;
        Ok(match found {
            Ok((line, point)) => {
                let words = line.as_ref().map(first_words).unwrap_or_default();
                let reply = fill(self.phrases.restored, &[&points::short(point.turn), &words]);
                Answered { reply, change: SessionChange::Restore(point), error: None }
            }
            Err(error) => {
                let reply = match &error {
                    PointError::Unknown(_) => fill(self.phrases.no_such_point, &[wanted]),
                    PointError::Corrupted(turn) | PointError::Altered { turn, .. } => {
                        fill(self.phrases.point_corrupted, &[&points::short(*turn)])
                    }
                    other => fill(self.phrases.not_restored, &[&other.to_string()]),
                };
                Answered { reply, change: SessionChange::None, error: Some(error.code()) }
            }
        })
    }

    fn points(&self, lines: &[PointLine]) -> String {
        if lines.is_empty() {
            return self.phrases.no_points.to_owned();
        }
        let line = |line: &PointLine| {
            let name = line.name.as_ref().map(|name| format!("**{name}** ")).unwrap_or_default();
            let at = clock(line.at, &self.timezone);
            format!("- `{}` {at} {name}{}", points::short(line.turn), first_words(line))
        };
        let lines = lines.iter().map(line).collect::<Vec<_>>().join("\n");
        format!("{}\n{lines}\n\n{}", self.phrases.points_are, self.phrases.points_use)
    }
}

/// How the message began that the point's turn answered.
fn first_words(line: &PointLine) -> String {
    let row = MessageRow {
        epoch: 0,
        seq: 0,
        role: "user".to_owned(),
        body: line.body.clone(),
        turn: line.turn.to_string(),
        at: line.at,
    };
    // One that cannot be read is no reason to show no list.
    match read_messages(std::slice::from_ref(&row)).ok().and_then(|mut said| said.pop()) {
        Some(ChatMessage::User { content, .. }) => shorten(written(&content), WORDS),
        _ => String::new(),
    }
}
