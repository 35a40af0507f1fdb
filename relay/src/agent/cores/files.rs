//! Small files of `/proc` and `/sys`, below a root, and what was wrong with those that were there.
//!
//! Must not know: what the files mean. A file that is missing is an answer, as kernels differ in what they offer; one that is there and
//! makes no sense is remembered, and the log line says so. Runs on the relay thread, as it starts.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use super::parse_list;

/// Reads below a root: `/`, or a folder that a test has made.
pub(super) struct Files<'a> {
    root: &'a Path,
    /// What was wrong, a phrase each.
    pub(super) notes: Vec<String>,
}

impl<'a> Files<'a> {
    pub(super) fn new(root: &'a Path) -> Self {
        Self { root, notes: Vec::new() }
    }

    /// The text of a file; `None` if it is missing.
    pub(super) fn text(&mut self, path: &str) -> Option<String> {
        let read = std::fs::read_to_string(self.place(path));
        self.unless_missing(path, read)
    }

    /// A number that is alone in its file.
    pub(super) fn number(&mut self, path: &str) -> Option<u64> {
        let text = self.text(path)?;
        let number = text.trim().parse().ok();
        if number.is_none() {
            self.odd(path, &text);
        }
        number
    }

    /// The cores of a file that holds a list of them; `None` if it is missing or names none.
    pub(super) fn cores(&mut self, path: &str) -> Option<Vec<usize>> {
        let text = self.text(path)?;
        let cores = parse_list(&text);
        if cores.is_empty() {
            self.odd(path, &text);
            return None;
        }
        Some(cores)
    }

    /// The names in a folder.
    pub(super) fn names(&mut self, path: &str) -> Vec<String> {
        let listed = std::fs::read_dir(self.place(path)).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let entries = self.unless_missing(path, listed).unwrap_or_default();
        entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Remembers that a file's text makes no sense, with the start of it.
    pub(super) fn odd(&mut self, path: &str, text: &str) {
        let start: String = text.trim().chars().take(24).collect();
        self.notes.push(format!("{path} says {start:?}, not used"));
    }

    fn place(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn unless_missing<T>(&mut self, path: &str, read: Result<T, Error>) -> Option<T> {
        read.inspect_err(|e| {
            // A thread that ends between being listed and being read is no such process.
            let missing = e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH);
            if !missing {
                self.notes.push(format!("{path} cannot be read: {e}"));
            }
        })
        .ok()
    }
}

/// The value of a line `Name:<tab>value` in a `/proc/…/status`.
pub(super) fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}
