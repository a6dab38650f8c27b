//! A record of the turns that were only waiting for a model when the process died. Such a turn did not crash the gateway, so its
//! start is not counted.
//!
//! The record is one small file, written in place and never synced. It survives the end of the process; a power cut may lose it
//! without harm.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use uuid::Uuid;

/// The turn's id, and one byte for its state.
const SLOT_BYTES: usize = 17;

const WORKING: u8 = b'w';
const WAITING: u8 = b'a';

/// The file, with a slot for each running turn.
pub struct FlightRecorder {
    file: Option<File>,
    slots: Mutex<SlotAllocator>,
}

/// The free slots of the file: the released slots, and all slots from `end` on.
#[derive(Default)]
struct SlotAllocator {
    free: Vec<u64>,
    end: u64,
}

impl SlotAllocator {
    fn take(&mut self) -> u64 {
        self.free.pop().unwrap_or_else(|| {
            self.end += 1;
            self.end - 1
        })
    }
}

impl FlightRecorder {
    /// Opens the file at `path`, returns the turns that were waiting when the last process ended, and clears the file. If the file
    /// cannot be opened, nothing is recorded and every start counts.
    pub fn open(path: &Path) -> (Self, HashSet<Uuid>) {
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let begun = opened.and_then(|file| {
            let waiting = read(&file)?;
            file.set_len(0)?;
            Ok((file, waiting))
        });
        let slots = Mutex::default();
        match begun {
            Ok((file, waiting)) => (Self { file: Some(file), slots }, waiting),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the flight recorder cannot be used");
                (Self { file: None, slots }, HashSet::new())
            }
        }
    }

    /// Returns a recorder that records nothing, for a process that must not change the gateway's record.
    pub fn none() -> Self {
        Self { file: None, slots: Mutex::default() }
    }

    /// Takes a slot for a turn. Dropping the slot releases it.
    pub fn take_slot(&self, turn: Uuid) -> FlightSlot<'_> {
        let at = self.file.is_some().then(|| self.slots.lock().take());
        FlightSlot { recorder: self, at, turn, is_waiting: AtomicBool::new(false) }
    }

    fn write(&self, at: u64, bytes: &[u8; SLOT_BYTES]) {
        if let Some(file) = &self.file
            && let Err(error) = file.write_all_at(bytes, at * SLOT_BYTES as u64)
        {
            tracing::debug!(%error, "the flight recorder could not be written");
        }
    }
}

/// The slot of one running turn.
pub struct FlightSlot<'a> {
    recorder: &'a FlightRecorder,
    at: Option<u64>,
    turn: Uuid,
    /// The file says that the turn is waiting.
    is_waiting: AtomicBool,
}

impl FlightSlot<'_> {
    /// Records that the turn is working: a crash now may be its fault.
    pub fn mark_working(&self) {
        if self.is_waiting.swap(false, Ordering::Relaxed) {
            self.record(WORKING);
        }
    }

    /// Records that the turn is waiting for a service.
    pub fn mark_waiting(&self) {
        self.is_waiting.store(true, Ordering::Relaxed);
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
        self.mark_working();
        if let Some(at) = self.at {
            self.recorder.slots.lock().free.push(at);
        }
    }
}

/// Reads the turns that were waiting.
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
    fn the_next_process_knows_which_turns_waited() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flight");
        let [works, waits, went_on, ended] = [1, 2, 3, 4].map(Uuid::from_u128);
        let (recorder, before) = FlightRecorder::open(&path);
        assert!(before.is_empty());
        let slots = [works, waits, went_on].map(|turn| recorder.take_slot(turn));
        slots[1].mark_waiting();
        slots[2].mark_waiting();
        slots[2].mark_working();
        recorder.take_slot(ended).mark_waiting();
        // Simulates a process that dies: nothing is dropped.
        slots.into_iter().for_each(std::mem::forget);

        let (_, left) = FlightRecorder::open(&path);
        assert_eq!(left, HashSet::from([waits]));
        assert!(FlightRecorder::open(&path).1.is_empty(), "told once");
    }

    #[test]
    fn without_a_file_every_turn_counts() {
        let (recorder, before) = FlightRecorder::open(Path::new("/nowhere/flight"));
        recorder.take_slot(Uuid::from_u128(1)).mark_waiting();
        assert!(before.is_empty() && FlightRecorder::none().take_slot(Uuid::from_u128(2)).at.is_none());
    }
}
