//! A file that somebody else writes anew now and then: a token, a certificate.
//!
//! It is read at each use, which costs less than the request that follows. Where it cannot be read, or does not hold what
//! it should, what it held before stays in use: a file that is being rotated may be missing or empty for a moment. What
//! is in it never reaches an error or the log.

use std::path::{Path, PathBuf};
use std::{fmt, fs};

use parking_lot::Mutex;

/// The largest file that is read.
const BYTES_MAX: u64 = 1024 * 1024;

/// What is in use of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held<T> {
    pub(super) value: T,
    /// Whether the file holds it now; if not, it did when it was last good.
    pub(super) is_current: bool,
}

/// Makes a value of what is in the file.
pub(super) type Parse<T> = fn(&[u8]) -> Result<T, &'static str>;

pub(super) struct RotatingFile<T> {
    task: String,
    /// The key in the tasks file that names it.
    key: &'static str,
    path: PathBuf,
    parse: Parse<T>,
    state: Mutex<State<T>>,
}

struct State<T> {
    /// What the file held when it was good, and what was made of it.
    good: Option<(Vec<u8>, T)>,
    is_troubled: bool,
}

// === impl RotatingFile ===

impl<T: Clone> RotatingFile<T> {
    pub(super) fn new(task: &str, key: &'static str, path: &Path, parse: Parse<T>) -> Self {
        let state = Mutex::new(State { good: None, is_troubled: false });
        Self { task: task.to_owned(), key, path: path.to_owned(), parse, state }
    }

    /// What the file says now, or what it said when it was last good.
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
                tracing::warn!(task, key, %path, cause, "Could not use a file of a task; what it held before stays in use");
            }
            (Some(cause), false) => {
                tracing::warn!(task, key, %path, cause, "Could not use a file of a task; its hooks wait for it");
            }
            (None, true) => tracing::info!(task, key, %path, "A file of a task can be used again"),
            (Some(_), true) | (None, false) => {}
        }
        match (value, trouble) {
            (Some(value), trouble) => Ok(Held { value, is_current: trouble.is_none() }),
            (None, trouble) => Err(trouble.unwrap_or_default()),
        }
    }
}

impl<T> State<T> {
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
