//! Append-only file of lines, in which later lines replace earlier ones. The file is compacted from time to time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::guard::Guard;
use crate::mirror_record::EntryRecord;

/// First line of a file.
const HEADER: &str = r#"{"format":"steadfast-mirrors","version":2}"#;

/// Number of lines that a file may have in addition to four times the number after the last compaction.
const SPARE_LINES: usize = 1000;

/// One change.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum JournalLine {
    /// An entry that a mirror holds, or no longer holds.
    Entry {
        mirror: String,
        name: String,
        #[serde(rename = "held", default, skip_serializing_if = "Option::is_none")]
        entry_record: Option<EntryRecord>,
    },
    /// The state of a mirror's guard.
    Guard { mirror: String, guard: Guard },
    /// The ID of the process.
    Instance { id: String },
}

/// The file of a memory.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    /// Length of the complete lines, in bytes. Later bytes belong to a line that a failed write cut off.
    length: u64,
    lines: usize,
    /// Number of lines after the last compaction.
    compacted_lines: usize,
    /// True if the next write replaces the file: it has an older format, or none.
    needs_rewrite: bool,
    /// ID to write before the next lines.
    instance: Option<String>,
}

impl Journal {
    /// Opens the journal at `path`, and returns its lines.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Vec<JournalLine>)> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(with_path("read", path, &error)),
        };
        let mut journal = Self {
            path: path.to_owned(),
            length: 0,
            lines: 0,
            compacted_lines: 0,
            needs_rewrite: true,
            instance: None,
        };
        if text.is_empty() {
            return Ok((journal, Vec::new()));
        }
        let damage_error = |line: usize, reason: &dyn std::fmt::Display| {
            let path = path.display();
            let reason = format!(
                "{path} is not a memory of mirrors (line {line}: {reason}): remove the file, and approve pending removals again"
            );
            io::Error::new(ErrorKind::InvalidData, reason)
        };
        let mut lines = Vec::new();
        let mut rest = text.split_inclusive(|byte| *byte == b'\n').enumerate();
        let header = rest.next().map(|(_, line)| line).unwrap_or_default();
        if header.trim_ascii() != HEADER.as_bytes() {
            // The first release stored only pending approvals, which the next read finds again.
            serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&text)
                .map_err(|error| damage_error(1, &error))?;
            return Ok((journal, Vec::new()));
        }
        journal.needs_rewrite = false;
        journal.length = header.len() as u64;
        for (number, line) in rest {
            // A crash interrupted the write of the last line. This write was never confirmed, so the line is dropped.
            if !line.ends_with(b"\n") {
                break;
            }
            lines.push(serde_json::from_slice(line).map_err(|error| damage_error(number + 1, &error))?);
            journal.length += line.len() as u64;
        }
        (journal.lines, journal.compacted_lines) = (lines.len(), lines.len() / 4);
        Ok((journal, lines))
    }

    /// Makes the next write start with the ID of the process.
    pub(super) fn with_instance(self, id: &str) -> Self {
        Self { instance: Some(id.to_owned()), ..self }
    }

    /// Appends `lines` durably.
    pub(super) fn append(&mut self, lines: &[JournalLine]) -> io::Result<()> {
        let Some(id) = self.instance.clone() else { return self.append_all(lines) };
        let lines: Vec<JournalLine> = [JournalLine::Instance { id }].into_iter().chain(lines.iter().cloned()).collect();
        self.append_all(&lines)?;
        self.instance = None;
        Ok(())
    }

    fn append_all(&mut self, lines: &[JournalLine]) -> io::Result<()> {
        if self.needs_rewrite {
            return self.replace(lines);
        }
        let text = encode_lines(lines)?;
        let result = (|| {
            let mut file = open_private(&self.path, false)?;
            // A failed write can leave a partial line.
            if file.metadata()?.len() != self.length {
                file.set_len(self.length)?;
            }
            file.write_all(&text)?;
            // Removals wait for this sync: after a power failure the record must show the owner of the entry.
            file.sync_data()
        })();
        result.map_err(|error| with_path("write", &self.path, &error))?;
        self.length += text.len() as u64;
        self.lines += lines.len();
        Ok(())
    }

    /// Returns true if later lines replaced most of the file.
    pub(super) fn is_oversized(&self) -> bool {
        self.lines > self.compacted_lines.saturating_mul(4) + SPARE_LINES
    }

    /// Rewrites the whole file through a temporary file next to it.
    pub(super) fn replace(&mut self, lines: &[JournalLine]) -> io::Result<()> {
        let mut content = HEADER.as_bytes().to_vec();
        content.push(b'\n');
        content.extend(encode_lines(lines)?);
        let mut new_path = self.path.as_os_str().to_owned();
        new_path.push(".new");
        let new_path = PathBuf::from(new_path);
        let result = (|| {
            let mut file = open_private(&new_path, true)?;
            file.write_all(&content)?;
            // The content is synced before the rename: a rename that survives a crash must not expose an empty file.
            file.sync_all()?;
            fs::rename(&new_path, &self.path)
        })();
        result.map_err(|error| with_path("write", &self.path, &error))?;
        (self.length, self.lines, self.compacted_lines) = (content.len() as u64, lines.len(), lines.len());
        self.needs_rewrite = false;
        Ok(())
    }
}

fn encode_lines(lines: &[JournalLine]) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
    }
    Ok(text)
}

/// Opens a file with access for its owner only.
fn open_private(path: &Path, is_new: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true);
    if is_new {
        options.write(true).truncate(true)
    } else {
        options.append(true)
    };
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn with_path(operation: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {operation} {}: {error}", path.display()))
}
