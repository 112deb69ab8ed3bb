//! Dead letters: undeliverable messages in a file, one per line.
//!
//! Two lock files next to the file synchronise processes:
//!
//! - `.lock` protects each change of the files. The running program can add letters during a `redrive`.
//! - `.redrive` protects [taken](DeadLetters::take) letters until the process has settled all of them. Without this
//!   lock, a second `redrive` would take the letters of the first one again. The first `redrive` would then remove
//!   the file with the letters of both.

mod letter_counts;

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::message::Message;
use crate::private_file::private_options;
use letter_counts::{LetterCounts, LetterOwner};

/// An undeliverable message.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct DeadLetter {
    /// Name of the sink.
    pub sink: String,
    /// Error of the last attempt.
    #[serde(rename = "why")]
    pub reason: String,
    /// Number of attempts.
    pub attempts: u32,
    /// The message.
    pub message: Message,
}

/// File of dead letters.
pub struct DeadLetters {
    file: PathBuf,
    max_letters: usize,
    /// Letters at the last count.
    counts: Mutex<LetterCounts>,
}

/// Reason why the file did not accept a letter.
pub enum AddError {
    /// The file has reached the maximum number of letters, or the namespace has used its share beyond this number.
    Full,
    /// The file could not be written.
    Failed(io::Error),
}

impl std::fmt::Display for AddError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full => f.write_str(
                "the file is full: `steadfast notify redrive` sends its messages again, `dead_letters.max_letters` sets \
                 the limit",
            ),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AddError {}

debug_as_message!(AddError);

impl DeadLetters {
    /// Opens the file at this path lazily, with at most `max_letters` letters. Beyond this number, namespaces with few
    /// letters may add some more. The first letter creates the file.
    pub fn new(file: PathBuf, max_letters: usize) -> Self {
        Self { file, max_letters, counts: Mutex::default() }
    }

    /// Returns the path of the file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Appends a letter. Returns after the disk has synced the data.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is full or cannot be written.
    pub fn add(&self, letter: &DeadLetter) -> Result<(), AddError> {
        // Lock order: the file lock of all processes first, then the counter of this process.
        let _lock = self.lock().map_err(AddError::Failed)?;
        let mut counts = self.counts.lock();
        let mut file = open_private(&self.file).map_err(AddError::Failed)?;
        let length = file.metadata().map_err(AddError::Failed)?.len();
        // Another process may have changed the file. Letters are only counted again after such a change.
        if counts.length != length {
            *counts = LetterCounts::read(&file, length).map_err(AddError::Failed)?;
        }
        let owner = LetterOwner::new(&letter.sink, &letter.message);
        if !counts.has_space(&owner, self.max_letters) {
            return Err(AddError::Full);
        }
        let line = serde_json::to_string(letter).unwrap_or_else(|_| unreachable!("texts and values are JSON"));
        // A machine crash can truncate the last line. The next letter must start a new line.
        let ends_with_newline = ends_with_newline(&mut file).map_err(AddError::Failed)?;
        let text = if ends_with_newline { line + "\n" } else { format!("\n{line}\n") };
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_data());
        written.map_err(AddError::Failed)?;
        counts.add(owner, length + text.len() as u64);
        Ok(())
    }

    /// Takes all letters for another attempt. Without a call of [`remove`](TakenLetters::remove) or
    /// [`replace`](TakenLetters::replace), the next call takes the same letters again.
    ///
    /// # Errors
    ///
    /// Returns an error if the files cannot be read or written. The kind is `ResourceBusy` if another process has taken
    /// letters and has not finished.
    pub fn take(&self) -> io::Result<TakenLetters> {
        let redrive_lock = self.redrive_lock()?;
        let _lock = self.lock()?;
        let taken_file = sibling(&self.file, ".taken");
        // Letters of an interrupted attempt are older and go first.
        // The combined file is written before the main file is removed: a crash in between duplicates letters and loses
        // none.
        let text = match (read(&taken_file)?, read(&self.file)?) {
            (Some(left_over), Some(added)) => {
                let text = left_over + &added;
                replace(&taken_file, &text)?;
                fs::remove_file(&self.file)?;
                text
            }
            (Some(left_over), None) => left_over,
            (None, Some(added)) => {
                fs::rename(&self.file, &taken_file)?;
                added
            }
            (None, None) => String::new(),
        };
        let (mut letters, mut malformed_lines) = (Vec::new(), 0);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            match serde_json::from_str(line) {
                Ok(letter) => letters.push(letter),
                Err(_) => malformed_lines += 1,
            }
        }
        Ok(TakenLetters { letters, malformed_lines, file: taken_file, _redrive: redrive_lock })
    }

    fn lock(&self) -> io::Result<File> {
        let lock = self.lock_file(".lock")?;
        lock.lock()?;
        Ok(lock)
    }

    fn redrive_lock(&self) -> io::Result<File> {
        // A second lock: letters can be added while a redrive holds its own lock.
        let lock = self.lock_file(".redrive")?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => {
                let file = self.file.display();
                let reason = format!(
                    "another `redrive` of {file} is running; wait until it has ended, then start this one again"
                );
                Err(io::Error::new(ErrorKind::ResourceBusy, reason))
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn lock_file(&self, suffix: &str) -> io::Result<File> {
        if let Some(folder) = self.file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        open_private(&sibling(&self.file, suffix))
    }
}

/// Letters for another attempt.
#[derive(Debug)]
pub struct TakenLetters {
    /// Letters in order of arrival.
    pub letters: Vec<DeadLetter>,
    /// Number of unreadable lines, truncated by a machine crash.
    pub malformed_lines: usize,
    file: PathBuf,
    /// Lock against a second `redrive` of the same letters.
    _redrive: File,
}

impl TakenLetters {
    /// Removes the letters: all were delivered or are dead letters again.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be removed.
    pub fn remove(self) -> io::Result<()> {
        // Letters that failed again were added to the main file before this removal.
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Keeps the unsettled `letters` for the next attempt. The others were delivered or are dead letters again.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
    pub fn replace(self, letters: &[DeadLetter]) -> io::Result<()> {
        let line = |letter| serde_json::to_string(letter).unwrap_or_else(|_| unreachable!("texts and values are JSON"));
        let text: String = letters.iter().map(|letter| line(letter) + "\n").collect();
        replace(&self.file, &text)
    }
}

fn read(file: &Path) -> io::Result<Option<String>> {
    match fs::read(file) {
        // A truncated line may contain invalid UTF-8. The line is counted as malformed later.
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces a file atomically by renaming a new file. Readers see either version as a whole.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let new_file = sibling(file, ".new");
    // A leftover of a crash may have other permissions.
    let _ = fs::remove_file(&new_file);
    let mut written = open_private(&new_file)?;
    written.write_all(text.as_bytes())?;
    written.sync_all()?;
    fs::rename(&new_file, file)
}

/// Opens a file for appending with read access for the owner only. Creates a missing file.
fn open_private(file: &Path) -> io::Result<File> {
    private_options().read(true).append(true).create(true).open(file)
}

fn ends_with_newline(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    io::Read::read_exact(file, &mut last)?;
    Ok(last == *b"\n")
}

fn sibling(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.to_owned().into_os_string();
    name.push(suffix);
    name.into()
}
