//! The losses of this home: stored in `meta`, and shown until the owner acknowledges them.

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::{StoreError, meta, now_ms};

/// The maximum number of losses that are kept; the oldest are removed first.
const LIMIT: usize = 50;

/// A loss of accepted messages, or a repair that may have lost some. The aliases of the fields are their names in rows that were written
/// before format 30 of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The time when the loss was noticed, UTC milliseconds.
    pub at: i64,
    pub kind: LossKind,
    /// The number of missing messages.
    pub messages: u64,
    /// The missing messages: ranges of `seq`, both ends included.
    pub seqs: Vec<(i64, i64)>,
    #[serde(alias = "what")]
    pub description: String,
    /// Nothing is missing: every row of the damaged file was recovered.
    #[serde(default, alias = "whole")]
    pub is_complete: bool,
    /// The names of the files that were kept for the owner.
    #[serde(default, alias = "aside", skip_serializing_if = "Vec::is_empty")]
    pub saved_files: Vec<String>,
    /// The owner has received a notice.
    #[serde(default, alias = "told")]
    pub is_reported: bool,
    /// The owner has acknowledged the loss.
    #[serde(default)]
    pub acknowledged: bool,
}

/// The cause of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LossKind {
    /// The database has fewer messages than were accepted.
    Missing,
    /// A damaged database was moved aside, and its readable rows were recovered.
    Salvaged,
    /// The database is not the one that accepted the messages.
    Exchanged,
    /// The restored backup is older than the last accepted message.
    Restored,
}

impl Loss {
    /// Creates a loss that was noticed now.
    pub fn new(kind: LossKind, seqs: Vec<(i64, i64)>, description: String) -> Self {
        let messages = seqs.iter().map(|(from, to)| to.abs_diff(*from).saturating_add(1)).sum();
        let (saved_files, is_complete, is_reported, acknowledged) = (Vec::new(), false, false, false);
        Self { at: now_ms(), kind, messages, seqs, description, is_complete, saved_files, is_reported, acknowledged }
    }
}

/// Returns all losses, the oldest first.
pub fn all(connection: &Connection) -> Result<Vec<Loss>, StoreError> {
    match meta::get(connection, meta::LOSSES)? {
        Some(text) => Ok(serde_json::from_str(&text)?),
        None => Ok(Vec::new()),
    }
}

/// Returns the losses that the owner has not acknowledged.
pub fn unacknowledged(connection: &Connection) -> Result<Vec<Loss>, StoreError> {
    let mut losses = all(connection)?;
    losses.retain(|loss| !loss.acknowledged);
    Ok(losses)
}

pub fn add(connection: &Connection, loss: Loss) -> Result<(), StoreError> {
    let mut losses = all(connection)?;
    losses.push(loss);
    let surplus = losses.len().saturating_sub(LIMIT);
    losses.drain(..surplus);
    write(connection, &losses)
}

/// Marks all losses as acknowledged; returns the number of those that were not.
pub fn acknowledge(connection: &Connection) -> Result<usize, StoreError> {
    Ok(mark(connection, |loss| !loss.acknowledged, |loss| loss.acknowledged = true)?.len())
}

/// Returns the losses without a notice to the owner, and marks them as reported.
pub fn take_unreported(connection: &Connection) -> Result<Vec<Loss>, StoreError> {
    mark(connection, |loss| !loss.is_reported && !loss.acknowledged, |loss| loss.is_reported = true)
}

/// Changes the losses that are due, and returns them.
fn mark(
    connection: &Connection,
    is_due: impl Fn(&Loss) -> bool,
    change: impl Fn(&mut Loss),
) -> Result<Vec<Loss>, StoreError> {
    let mut losses = all(connection)?;
    let mut changed = Vec::new();
    for loss in losses.iter_mut().filter(|loss| is_due(loss)) {
        change(loss);
        changed.push(loss.clone());
    }
    if !changed.is_empty() {
        write(connection, &losses)?;
    }
    Ok(changed)
}

/// Formats ranges as `3, 7–9`, at most a dozen of them.
pub fn format_ranges(seqs: &[(i64, i64)]) -> String {
    const SHOWN: usize = 12;
    let range = |(from, to): &(i64, i64)| if from == to { from.to_string() } else { format!("{from}–{to}") };
    let mut words = seqs.iter().take(SHOWN).map(range).collect::<Vec<_>>().join(", ");
    if seqs.len() > SHOWN {
        words.push_str(&format!(" and {} more ranges", seqs.len() - SHOWN));
    }
    words
}

fn write(connection: &Connection, losses: &[Loss]) -> Result<(), StoreError> {
    meta::set(connection, meta::LOSSES, &serde_json::to_string(losses)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Durability, Store};

    #[tokio::test]
    async fn a_loss_is_reported_once_and_shown_until_it_is_acknowledged() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| {
            add(connection, Loss::new(LossKind::Missing, vec![(4, 4), (7, 9)], "four".to_owned()))?;
            let reported = [take_unreported(connection)?.len(), take_unreported(connection)?.len()];
            let shown = unacknowledged(connection)?;
            let acknowledged = [acknowledge(connection)?, acknowledge(connection)?];
            Ok((reported, shown, acknowledged, unacknowledged(connection)?.len(), all(connection)?.len()))
        };
        let (reported, shown, acknowledged, left, known) = store.write(Durability::Logged, work).await.unwrap();
        assert_eq!((reported, acknowledged, left, known), ([1, 0], [1, 0], 0, 1));
        assert_eq!((shown[0].messages, format_ranges(&shown[0].seqs)), (4, "4, 7–9".to_owned()));
    }

    #[test]
    fn losses_under_earlier_names_are_read() {
        let earlier = r#"{"at":1,"kind":"salvaged","messages":0,"seqs":[],"what":"a page","whole":true,"aside":["a.db"],"told":true}"#;
        let loss: Loss = serde_json::from_str(earlier).unwrap();
        let expected = Loss { at: 1, ..Loss::new(LossKind::Salvaged, Vec::new(), "a page".to_owned()) };
        let saved_files = vec!["a.db".to_owned()];
        assert_eq!(loss, Loss { is_complete: true, is_reported: true, saved_files, ..expected });
    }
}
