//! The gateway's side of an extractor: starts it, and reads its output. Dropping the call kills the process.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use url::Url;

use super::extract::{EXTRACT_COMMAND, MAX_MEMORY, PAGE_INPUT, REFUSED};
use super::text_sink::MAX_TEXT;

/// The maximum number of documents, and that of pages, that are read at the same time.
const AT_ONCE: usize = 2;
/// The time limit for one document.
const MAX_TIME: Duration = Duration::from_secs(60);
/// The maximum length of the line that describes a document, in bytes.
const MAX_SUMMARY: usize = 4_096;

/// The text of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DocumentText {
    /// The description of the document, such as `PDF, 3 pages`; for a web page, its title.
    pub summary: String,
    pub text: String,
}

/// A reader of documents that starts a process for each.
#[derive(Clone, Debug)]
pub(crate) struct DocumentReader {
    exe: PathBuf,
    documents: Arc<Semaphore>,
    pages: Arc<Semaphore>,
}

impl DocumentReader {
    /// Creates a reader. `exe` is the path of this program.
    pub(crate) fn new(exe: PathBuf) -> Self {
        let places = || Arc::new(Semaphore::new(AT_ONCE));
        Self { exe, documents: places(), pages: places() }
    }

    /// Reads a document that is in memory.
    ///
    /// # Errors
    /// As [`DocumentReader::read`].
    pub(crate) async fn read_bytes(&self, bytes: Vec<u8>) -> Result<DocumentText, String> {
        self.read(memory_file(bytes).await?).await
    }

    /// Reads the HTML of a web page. Relative links begin at `url`.
    ///
    /// # Errors
    /// As [`DocumentReader::read`].
    pub(crate) async fn read_page(&self, html: &str, url: &Url) -> Result<DocumentText, String> {
        let file = memory_file(format!("{url}\n{html}").into_bytes()).await?;
        self.extract(&self.pages, file, &[EXTRACT_COMMAND, PAGE_INPUT]).await
    }

    /// Reads a document from the start of `file`.
    ///
    /// # Errors
    /// Describes the document, and why it cannot be read.
    pub(crate) async fn read(&self, file: File) -> Result<DocumentText, String> {
        self.extract(&self.documents, file, &[EXTRACT_COMMAND]).await
    }

    async fn extract(&self, places: &Semaphore, file: File, arguments: &[&str]) -> Result<DocumentText, String> {
        let _place = places.acquire().await.map_err(|error| error.to_string())?;
        let (status, output) = timeout(MAX_TIME, self.run(file, arguments))
            .await
            .map_err(|_| format!("reading the document took more than {} seconds", MAX_TIME.as_secs()))?
            .map_err(|error| format!("the reader of documents could not be started: {error}"))?;
        let output = String::from_utf8_lossy(&output).into_owned();
        match status.code() {
            Some(0) => {
                let (summary, text) = output.split_once('\n').unwrap_or((output.as_str(), ""));
                Ok(DocumentText { summary: summary.to_owned(), text: text.to_owned() })
            }
            Some(code) if code == i32::from(REFUSED) => Err(output),
            _ => Err(failure(status)),
        }
    }

    async fn run(&self, file: File, arguments: &[&str]) -> io::Result<(ExitStatus, Vec<u8>)> {
        let mut extractor = Command::new(&self.exe)
            .args(arguments)
            .env_clear()
            .stdin(Stdio::from(file))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let mut output = Vec::new();
        if let Some(stdout) = extractor.stdout.take() {
            stdout.take((MAX_TEXT + MAX_SUMMARY) as u64).read_to_end(&mut output).await?;
        }
        Ok((extractor.wait().await?, output))
    }
}

/// Returns a file in memory with this content, at its start.
async fn memory_file(content: Vec<u8>) -> Result<File, String> {
    let file = tokio::task::spawn_blocking(move || {
        let mut file = File::from(memfd_create("document", MemfdFlags::CLOEXEC)?);
        file.write_all(&content)?;
        file.seek(SeekFrom::Start(0))?;
        Ok::<_, io::Error>(file)
    });
    file.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

/// Returns why an extractor ended without stating a reason.
fn failure(status: ExitStatus) -> String {
    match status.signal() {
        Some(libc::SIGXCPU) => "reading the document took too much processor time".to_owned(),
        Some(libc::SIGABRT | libc::SIGKILL) => {
            format!("the document is broken, or needs more than {} MB of memory to be read", MAX_MEMORY / 1_000_000)
        }
        _ => "the document is broken: its reader failed".to_owned(),
    }
}
