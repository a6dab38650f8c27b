//! Captures the output of a command in bounded memory. The start and the end are kept; once the output is longer, it
//! goes to a spill file.

use std::collections::VecDeque;

use crate::tools::private_folders::ConversationFolder;
use crate::tools::spill::{SpillFile, SpillStore};
use crate::tools::truncation::{TextExtent, truncate_middle_of};
use crate::tools::{OutputLimit, StoredOutput, ToolContext, truncate_middle};

/// The size of the start, and of the end, that memory keeps, in bytes.
const KEPT_BYTES: usize = 64 * 1_024;

/// The captured output of one command.
pub(super) struct OutputCapture<'a> {
    spill: &'a SpillStore,
    context: &'a ToolContext,
    is_foreign: bool,
    front: Vec<u8>,
    back: VecDeque<u8>,
    total: u64,
    extent: TextExtent,
    last: u8,
    file: SpillState,
}

enum SpillState {
    NotNeeded,
    Open(SpillFile),
    /// The file could not be written; the log states the reason.
    Failed,
}

impl<'a> OutputCapture<'a> {
    pub(super) fn new(spill: &'a SpillStore, context: &'a ToolContext, is_foreign: bool) -> Self {
        Self {
            spill,
            context,
            is_foreign,
            front: Vec::new(),
            back: VecDeque::new(),
            total: 0,
            extent: TextExtent::default(),
            last: b'\n',
            file: SpillState::NotNeeded,
        }
    }

    /// Adds output. The write to the spill file blocks the thread, but it goes to the page cache, and ends at the file's size
    /// limit.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let Some(last) = bytes.last() else { return };
        self.last = *last;
        self.total += bytes.len() as u64;
        // Continuation bytes of UTF-8 are not counted.
        self.extent.chars += bytes.iter().filter(|byte| (**byte & 0xc0) != 0x80).count();
        self.extent.lines += bytes.iter().filter(|byte| **byte == b'\n').count();
        if let SpillState::Open(file) = &mut self.file
            && let Err(error) = file.write(bytes)
        {
            tracing::warn!(%error, "a long output could not be kept whole");
            self.file = SpillState::Failed;
        }
        let room = KEPT_BYTES.saturating_sub(self.front.len()).min(bytes.len());
        let (front, rest) = bytes.split_at(room);
        self.front.extend_from_slice(front);
        if self.back.len() + rest.len() > KEPT_BYTES && matches!(self.file, SpillState::NotNeeded) {
            self.overflow(rest);
        }
        if rest.len() >= KEPT_BYTES {
            self.back.clear();
            self.back.extend(&rest[rest.len() - KEPT_BYTES..]);
        } else {
            self.back.extend(rest);
            self.back.drain(..self.back.len().saturating_sub(KEPT_BYTES));
        }
    }

    /// Starts the spill file, since memory can no longer hold the whole output.
    fn overflow(&mut self, rest: &[u8]) {
        let (folder, ToolContext { turn, call_id, .. }) = (ConversationFolder::of(self.context), self.context);
        let filled = self.spill.create(&folder, *turn, call_id, self.is_foreign).and_then(|mut file| {
            file.write(&self.front)?;
            let (one, other) = self.back.as_slices();
            file.write(one)?;
            file.write(other)?;
            file.write(rest)?;
            Ok(file)
        });
        self.file = match filled {
            Ok(file) => SpillState::Open(file),
            Err(error) => {
                tracing::warn!(%error, "a long output could not be kept whole");
                SpillState::Failed
            }
        };
    }

    /// Returns the number of characters of the whole output if it exceeds the memory, so that [`Self::finish`] shortens it.
    pub(super) fn exceeding_length(&self) -> Option<usize> {
        (self.total > (self.front.len() + self.back.len()) as u64).then_some(self.extent.chars)
    }

    /// Returns the output and, if it exceeds the memory, the file that holds it. An output that fits into memory is returned
    /// whole: the executor shortens it.
    pub(super) fn finish(mut self, limit: OutputLimit) -> (String, Option<StoredOutput>) {
        if self.total <= (self.front.len() + self.back.len()) as u64 {
            self.front.extend(self.back);
            return (String::from_utf8_lossy(&self.front).into_owned(), None);
        }
        self.extent.lines += usize::from(self.last != b'\n');
        let stored = match &self.file {
            SpillState::Open(file) => Some(file.stored()),
            _ => None,
        };
        // The gap may split a character.
        let whole = self.front.iter().rposition(|byte| (byte & 0xc0) != 0x80).unwrap_or(0);
        let front = String::from_utf8_lossy(&self.front[..whole]);
        let back: Vec<u8> = self.back.into_iter().skip_while(|byte| (byte & 0xc0) == 0x80).collect();
        let back = String::from_utf8_lossy(&back);
        let note = stored.as_ref().map(ToString::to_string);
        let content = truncate_middle_of(&front, &back, self.extent, limit, note.as_deref());
        // Invalid UTF-8 is counted differently from how it is shown, so the exact cut happens here.
        (truncate_middle(&content, limit, note.as_deref()), stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::spill::is_foreign;

    const LIMIT: OutputLimit = OutputLimit { chars: 2_000, lines: 50 };

    fn capture(chunks: impl IntoIterator<Item = Vec<u8>>) -> (String, Option<StoredOutput>, tempfile::TempDir) {
        let workspace = tempfile::tempdir().unwrap();
        let spill = SpillStore::open(workspace.path(), 1_000_000).unwrap();
        let context = crate::tools::testing::context();
        let mut capture = OutputCapture::new(&spill, &context, true);
        for chunk in chunks {
            capture.push(&chunk);
            assert!(capture.front.len() <= KEPT_BYTES && capture.back.len() <= KEPT_BYTES);
        }
        let (content, stored) = capture.finish(LIMIT);
        (content, stored, workspace)
    }

    #[test]
    fn output_that_fits_in_memory_is_returned_whole() {
        let text = "界line\n".repeat(12_000);
        let (content, path, _workspace) = capture(text.as_bytes().chunks(7).map(<[u8]>::to_vec));
        assert_eq!((content.as_str(), path), (text.as_str(), None));
    }

    #[test]
    fn longer_output_is_shortened_and_kept_whole_in_a_file() {
        let text: String = (0..60_000).map(|n| format!("界 {n}\n")).collect();
        for size in [5, 70_000, 400_000] {
            let (content, stored, workspace) = capture(text.as_bytes().chunks(size).map(<[u8]>::to_vec));
            assert!(TextExtent::of(&content).fits(LIMIT), "{content}");
            assert!(content.starts_with("界 0\n") && content.ends_with("界 59999\n"), "{content}");
            let path = stored.unwrap().path;
            assert!(is_foreign(path.as_ref()), "{path}");
            assert!(content.contains(&format!("lines cut; the whole output: {path}")), "{content}");
            assert_eq!(std::fs::read_to_string(workspace.path().join(path)).unwrap(), text, "{size}");
        }
    }

    #[test]
    fn endless_and_binary_output_stays_bounded() {
        let (content, stored, workspace) = capture((0..400).map(|_| vec![0xff; 10_000]));
        assert!(TextExtent::of(&content).fits(LIMIT));
        let stored = stored.unwrap();
        assert_eq!(std::fs::metadata(workspace.path().join(&stored.path)).unwrap().len(), 1_000_000);
        let note = format!("lines cut; the first 1000000 of 4000000 bytes: {} ...]", stored.path);
        assert!(content.contains(&note) && !content.contains("whole"), "{content}");
    }
}
