//! Reads a file that others rewrite from time to time: a token, a certificate.
//!
//! The file is read at each use, which costs less than the request that follows. If it is unreadable or invalid, its
//! last good contents stay in use: a file that is being rotated may be missing or empty for a moment. The contents
//! never reach an error or the log.

use std::path::{Path, PathBuf};
use std::{fmt, fs};

use parking_lot::Mutex;

/// The largest file that is read.
const BYTES_MAX: u64 = 1024 * 1024;

/// The value in use of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held<T> {
    pub(super) value: T,
    /// Whether the file holds the value now, not only when it was last good.
    pub(super) is_current: bool,
}

/// Parses the contents of a file.
pub(super) type Parse<T> = fn(&[u8]) -> Result<T, &'static str>;

pub(super) struct RotatingFile<T> {
    task: String,
    /// The key in the tasks file that names the file.
    key: &'static str,
    path: PathBuf,
    parse: Parse<T>,
    state: Mutex<LastRead<T>>,
}

struct LastRead<T> {
    /// The file's last good contents, and their value.
    good: Option<(Vec<u8>, T)>,
    is_troubled: bool,
}

// === impl RotatingFile ===

impl<T: Clone> RotatingFile<T> {
    pub(super) fn new(task: &str, key: &'static str, path: &Path, parse: Parse<T>) -> Self {
        let state = Mutex::new(LastRead { good: None, is_troubled: false });
        Self { task: task.to_owned(), key, path: path.to_owned(), parse, state }
    }

    /// Returns the file's value now, or its last good value.
    pub(super) fn current(&self) -> Result<Held<T>, String> {
        let read = read(&self.path);
        let (value, was_troubled, trouble) = {
            let mut state = self.state.lock();
            let trouble = read.and_then(|contents| state.take(contents, self.parse)).err();
            let was_troubled = std::mem::replace(&mut state.is_troubled, trouble.is_some());
            (state.good.as_ref().map(|(_, value)| value.clone()), was_troubled, trouble)
        };
        let (task, key, path) = (&self.task, self.key, self.path.display());
        match (&trouble, was_troubled) {
            (Some(cause), false) if value.is_some() => {
                tracing::warn!(task, key, %path, cause, "Could not use a file of a task; keeping its last good contents");
            }
            (Some(cause), false) => {
                tracing::warn!(task, key, %path, cause, "Could not use a file of a task; its hooks are retried until the file is usable");
            }
            (None, true) => tracing::info!(task, key, %path, "A file of a task is usable again"),
            (Some(_), true) | (None, false) => {}
        }
        match (value, trouble) {
            (Some(value), trouble) => Ok(Held { value, is_current: trouble.is_none() }),
            (None, trouble) => Err(trouble.unwrap_or_default()),
        }
    }
}

impl<T> LastRead<T> {
    fn take(&mut self, contents: Vec<u8>, parse: Parse<T>) -> Result<(), String> {
        if self.good.as_ref().is_some_and(|(held, _)| *held == contents) {
            return Ok(());
        }
        let value = parse(&contents)?;
        self.good = Some((contents, value));
        Ok(())
    }
}

impl<T> fmt::Debug for RotatingFile<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RotatingFile").field("path", &self.path).finish_non_exhaustive()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    // Opening a pipe would wait for its writer.
    if !metadata.is_file() {
        return Err("it is not a file".to_owned());
    }
    if metadata.len() > BYTES_MAX {
        return Err(format!("it is larger than {BYTES_MAX} bytes"));
    }
    fs::read(path).map_err(|error| error.to_string())
}
