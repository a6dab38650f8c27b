//! The flight recorder: which turns only waited for a model when the process died. Such a turn did not stop the
//! gateway, so its start is not held against it.
//!
//! One small file, written in place and never synced: what was written outlives the process, and after a power cut it
//! does not matter.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use uuid::Uuid;

/// A turn's id, and one byte for what it does.
const SLOT_BYTES: usize = 17;

const WORKING: u8 = b'w';
const WAITING: u8 = b'a';

/// The file, a slot for each turn that runs.
pub struct FlightRecorder {
    file: Option<File>,
    places: Mutex<Places>,
}

/// The places of the file that no turn has: those given back, and all from `end` on.
#[derive(Default)]
struct Places {
    free: Vec<u64>,
    end: u64,
}

impl Places {
    fn take(&mut self) -> u64 {
        self.free.pop().unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        })
    }
}

impl FlightRecorder {
    /// Reads what the last process left at `path`, then begins anew. Where the file cannot be had nothing is recorded, and
    /// every start counts.
    pub fn open(path: &Path) -> (Self, HashSet<Uuid>) {
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let begun = opened.and_then(|file| {
            let waiting = read(&file)?;
            file.set_len(0)?;
            Ok((file, waiting))
        });
        let places = Mutex::default();
        match begun {
            Ok((file, waiting)) => (Self { file: Some(file), places }, waiting),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the flight recorder cannot be used");
                (Self { file: None, places }, HashSet::new())
            }
        }
    }

    /// Records nothing: for a guest in a home whose gateway's record is still to be read.
    pub fn none() -> Self {
        Self { file: None, places: Mutex::default() }
    }

    /// The slot of a turn that begins, until it is dropped.
    pub fn board(&self, turn: Uuid) -> FlightSlot<'_> {
        let at = self.file.is_some().then(|| self.lock().take());
        let slot = FlightSlot { recorder: self, at, turn };
        slot.works();
        slot
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, at: u64, bytes: &[u8; SLOT_BYTES]) {
        if let Some(file) = &self.file
            && let Err(error) = file.write_all_at(bytes, at * SLOT_BYTES as u64)
        {
            tracing::debug!(%error, "the flight recorder could not be written");
        }
    }
}

/// One running turn's place in the record.
pub struct FlightSlot<'a> {
    recorder: &'a FlightRecorder,
    at: Option<u64>,
    turn: Uuid,
}

impl FlightSlot<'_> {
    /// The turn works: if the process dies now, it may be the cause.
    pub fn works(&self) {
        self.record(WORKING);
    }

    /// The turn waits for somebody else.
    pub fn waits(&self) {
        self.record(WAITING);
    }

    fn record(&self, what: u8) {
        let Some(at) = self.at else { return };
        let mut bytes = [what; SLOT_BYTES];
        bytes[..16].copy_from_slice(self.turn.as_bytes());
        self.recorder.write(at, &bytes);
    }
}

impl Drop for FlightSlot<'_> {
    fn drop(&mut self) {
        if let Some(at) = self.at {
            self.recorder.write(at, &[0; SLOT_BYTES]);
            self.recorder.lock().free.push(at);
        }
    }
}

/// The turns that waited.
fn read(file: &File) -> std::io::Result<HashSet<Uuid>> {
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(0).min(SLOT_BYTES * 100_000);
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0)?;
    let waiting = bytes.chunks_exact(SLOT_BYTES).filter(|slot| slot[16] == WAITING);
    Ok(waiting.filter_map(|slot| Uuid::from_slice(&slot[..16]).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_process_knows_who_waited() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flight");
        let [works, waits, went_on, ended] = [1, 2, 3, 4].map(Uuid::from_u128);
        let (recorder, before) = FlightRecorder::open(&path);
        assert!(before.is_empty());
        let slots = [works, waits, went_on].map(|turn| recorder.board(turn));
        slots[1].waits();
        slots[2].waits();
        slots[2].works();
        recorder.board(ended).waits();
        // A process that dies drops nothing.
        slots.into_iter().for_each(std::mem::forget);

        let (_, left) = FlightRecorder::open(&path);
        assert_eq!(left, HashSet::from([waits]));
        assert!(FlightRecorder::open(&path).1.is_empty(), "told once");
    }

    #[test]
    fn without_a_file_every_turn_counts() {
        let (recorder, before) = FlightRecorder::open(Path::new("/nowhere/flight"));
        recorder.board(Uuid::from_u128(1)).waits();
        assert!(before.is_empty() && FlightRecorder::none().board(Uuid::from_u128(2)).at.is_none());
    }
}
