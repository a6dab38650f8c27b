//! Copies the output of a background command to a bounded file that keeps the start and the end of the output.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::retry_on_intr;

/// The size of the kept end of an output that is too long, in bytes. It is smaller if the bound of the file is small.
const TAIL_BYTES: u64 = 32 * 1_024;
/// The size of the note between the start and the end, in bytes.
const NOTE_BYTES: u64 = 64;
/// The size of one read, in bytes.
const CHUNK_BYTES: usize = 32 * 1_024;
/// The minimum time between two writes of a changing end, so that an endless output does not wear the disk out.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// How long [`OutputPump::finish`] waits for the rest of the pipe.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);

/// A copier of a command's output to this process's standard output, which must be a file.
pub(super) struct OutputPump {
    output: Arc<Mutex<BoundedFile>>,
    /// Closed once the whole output is read.
    read: mpsc::Receiver<()>,
    /// Dropped at the end, which stops the thread that refreshes the file.
    _running: mpsc::Sender<()>,
}

impl OutputPump {
    /// Starts copying, at most `max_bytes`. Returns the writing end of the pipe for the command.
    ///
    /// # Errors
    /// There is no standard output, or no pipe can be created.
    pub(super) fn start(max_bytes: u64) -> io::Result<(Self, PipeWriter)> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let output = Arc::new(Mutex::new(BoundedFile::new(file, max_bytes)));
        let (printed, writer) = io::pipe()?;
        let (reading, read) = mpsc::channel();
        let (running, stopped) = mpsc::channel::<()>();
        let filled = output.clone();
        thread::spawn(move || {
            copy_output(&filled, &printed);
            drop(reading);
        });
        let refreshed = output.clone();
        thread::spawn(move || {
            while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(REFRESH_INTERVAL) {
                refreshed.lock().refresh();
            }
        });
        Ok((Self { output, read, _running: running }, writer))
    }

    /// Copies the rest of the pipe, and ends the copying.
    pub(super) fn finish(self) {
        // A process that escaped the supervisor's kill may keep the pipe open.
        let _ = self.read.recv_timeout(DRAIN_LIMIT);
        self.output.lock().refresh();
    }
}

fn copy_output(output: &Mutex<BoundedFile>, printed: &PipeReader) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(read @ 1..) = retry_on_intr(|| rustix::io::read(printed, &mut chunk[..])) {
        output.lock().push(&chunk[..read]);
    }
}

/// A file that holds the start of the pushed bytes, followed by their end.
struct BoundedFile {
    file: File,
    /// The maximum size of the start.
    head_bound: u64,
    head: u64,
    tail_bound: usize,
    tail: VecDeque<u8>,
    /// The number of bytes that follow the start.
    beyond: u64,
    is_stale: bool,
}

impl BoundedFile {
    fn new(file: File, max_bytes: u64) -> Self {
        let tail = TAIL_BYTES.min(max_bytes / 2);
        Self {
            file,
            head_bound: max_bytes.saturating_sub(tail + NOTE_BYTES),
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
            // A full disk does not block the command; later output may still fit.
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

    /// Rewrites the end after the start.
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

    /// Pushes the bytes in pieces of one size, and checks the file against its bound.
    #[test]
    fn start_and_end_are_kept_and_the_gap_is_noted() {
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
