//! What a command in the background prints, on its way into a bounded file: its start and its end are kept.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// The end that is kept of an output that is too long, in bytes; less where the whole bound is small.
const TAIL: u64 = 32 * 1_024;
/// What the words between start and end may take, in bytes.
const MARK: u64 = 64;
/// Read at once, in bytes.
const CHUNK: usize = 32 * 1_024;
/// How often the end is written anew while it changes: an endless output must not wear the disk down.
const REFRESH: Duration = Duration::from_secs(1);
/// What is still in the pipe at the end has so long to come.
const DRAIN: Duration = Duration::from_secs(1);

/// Moves what is printed into this process's standard output, which must be a file.
pub(super) struct Pump {
    output: Arc<Mutex<BoundedFile>>,
    /// Closed when all of it was read.
    read: mpsc::Receiver<()>,
    /// Closed by the end, for the thread that refreshes.
    _running: mpsc::Sender<()>,
}

impl Pump {
    /// Keeps at most `max_bytes`. The writing side is for the command.
    ///
    /// # Errors
    /// There is no standard output, or no pipe can be made.
    pub(super) fn start(max_bytes: u64) -> io::Result<(Self, PipeWriter)> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let output = Arc::new(Mutex::new(BoundedFile::new(file, max_bytes)));
        let (printed, writer) = io::pipe()?;
        let (reading, read) = mpsc::channel();
        let (running, stopped) = mpsc::channel::<()>();
        let filling = output.clone();
        thread::spawn(move || {
            fill(&filling, printed);
            drop(reading);
        });
        let refreshed = output.clone();
        thread::spawn(move || {
            while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(REFRESH) {
                lock(&refreshed).refresh();
            }
        });
        Ok((Self { output, read, _running: running }, writer))
    }

    /// Takes in what is left in the pipe.
    pub(super) fn finish(self) {
        // Either way it is over: what escaped may hold the pipe open.
        let _ = self.read.recv_timeout(DRAIN);
        lock(&self.output).refresh();
    }
}

fn fill(output: &Mutex<BoundedFile>, mut printed: PipeReader) {
    let mut chunk = vec![0; CHUNK];
    loop {
        match printed.read(&mut chunk) {
            Ok(0) => return,
            Ok(read) => lock(output).push(&chunk[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn lock(output: &Mutex<BoundedFile>) -> MutexGuard<'_, BoundedFile> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that holds the start of what was pushed, and behind it the end.
struct BoundedFile {
    file: File,
    /// What may stand before the end.
    head_bound: u64,
    head: u64,
    tail_bound: usize,
    tail: VecDeque<u8>,
    /// Bytes that did not go into the head.
    beyond: u64,
    is_stale: bool,
}

impl BoundedFile {
    fn new(file: File, max_bytes: u64) -> Self {
        let tail = TAIL.min(max_bytes / 2);
        Self {
            file,
            head_bound: max_bytes.saturating_sub(tail + MARK),
            head: 0,
            tail_bound: usize::try_from(tail).unwrap_or(0),
            tail: VecDeque::new(),
            beyond: 0,
            is_stale: false,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let room = usize::try_from(self.head_bound - self.head).unwrap_or(usize::MAX).min(bytes.len());
        let (head, rest) = bytes.split_at(room);
        if !head.is_empty() {
            // A disk that takes no more does not hold the command up; what it prints later still has a place.
            drop(self.file.write_all_at(head, self.head));
            self.head += head.len() as u64;
        }
        if rest.is_empty() {
            return;
        }
        self.beyond += rest.len() as u64;
        self.tail.extend(&rest[rest.len().saturating_sub(self.tail_bound)..]);
        self.tail.drain(..self.tail.len().saturating_sub(self.tail_bound));
        self.is_stale = true;
    }

    /// Writes the end behind the start.
    fn refresh(&mut self) {
        if !std::mem::take(&mut self.is_stale) {
            return;
        }
        let left_out = self.beyond - self.tail.len() as u64;
        let mut end = match left_out {
            0 => Vec::new(),
            bytes => format!("\n[... {bytes} bytes left out ...]\n").into_bytes(),
        };
        end.extend(&self.tail);
        let written = self.file.write_all_at(&end, self.head);
        drop(written.and_then(|()| self.file.set_len(self.head + end.len() as u64)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is pushed, in pieces of a size, and what the file holds of it within its bound.
    #[test]
    fn start_and_end_are_kept_and_the_gap_is_told() {
        let all: Vec<u8> = (0..40_000_u32).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        for (max_bytes, piece, is_whole) in [
            (1_000_000, 7, true),
            (1_000_000, 500_000, true),
            (100_000, 1_000, false),
            (100_000, 300_000, false),
            (300, 64, false),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("output");
            let mut file = BoundedFile::new(File::create(&path).unwrap(), max_bytes);
            for (number, bytes) in all.chunks(piece).enumerate() {
                file.push(bytes);
                if number % 50 == 0 {
                    file.refresh();
                }
            }
            file.refresh();
            let kept = std::fs::read(&path).unwrap();
            assert!(kept.len() as u64 <= max_bytes, "{max_bytes} {piece}: {}", kept.len());
            assert_eq!(kept == all, is_whole, "{max_bytes} {piece}");
            assert!(kept.starts_with(b"0\n1\n2\n") && kept.ends_with(b"39998\n39999\n"));
            if !is_whole {
                let text = String::from_utf8(kept.clone()).unwrap();
                let (start, rest) = text.split_once("\n[... ").unwrap();
                let (left_out, end) = rest.split_once(" bytes left out ...]\n").unwrap();
                assert_eq!(start.len() + left_out.parse::<usize>().unwrap() + end.len(), all.len());
            }
        }
    }
}
