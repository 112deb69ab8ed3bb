//! Decoding of a snapshot, with checks of each line.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::checksum::Checksum;
use super::{ChangeMark, FORMAT_NAME, FORMAT_VERSION, Snapshot, SnapshotError, StoredObject};
use crate::metadata;
use crate::resources::GroupResource;

/// Length of a checksum with the space after it.
const CHECKSUM_BYTES: usize = 17;

impl Snapshot {
    /// Decodes a snapshot.
    ///
    /// # Errors
    /// Returns an error with the position if `bytes` are not a complete, undamaged snapshot of this format.
    pub fn decode(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let mut lines = Lines::after_format_line(bytes)?;
        let header = lines.next("its header")?;
        let header: Value = lines.parse(header, "the header is not valid")?;
        let number = |field: &str| header.get(field).and_then(Value::as_u64);
        let (Some(count), Some(revision), Some(start_revision)) =
            (number("objects"), number("revision"), number("startRevision"))
        else {
            return Err(lines.corrupt("the header lacks a number"));
        };
        if revision > start_revision {
            return Err(lines.corrupt("the start revision is below the revision"));
        }
        let mut collected = Collected::default();
        for number in 0..count {
            let line = lines.next(&format!("{} of {count} objects", count - number))?;
            let stored = parse_object(&lines, line)?;
            collected.add(stored, revision).map_err(|reason| lines.corrupt(reason))?;
        }
        lines.expect_end()?;
        let mut snapshot = Self::new(revision, collected.objects, ChangeMark::default());
        snapshot.start_revision = start_revision;
        Ok(snapshot)
    }
}

/// Objects of the lines so far.
#[derive(Default)]
struct Collected {
    objects: Vec<StoredObject>,
    revisions: BTreeSet<u64>,
    names: BTreeMap<GroupResource, BTreeSet<String>>,
}

impl Collected {
    fn add(&mut self, stored: StoredObject, max_revision: u64) -> Result<(), &'static str> {
        if stored.revision > max_revision {
            return Err("the object is newer than the snapshot");
        }
        if !self.revisions.insert(stored.revision) {
            return Err("another object has this resource version");
        }
        let names = self.names.entry(stored.resource.clone()).or_default();
        if !names.insert(metadata::namespaced_name(&stored.object)) {
            return Err("another object has this name");
        }
        self.objects.push(stored);
        Ok(())
    }
}

fn parse_object(lines: &Lines<'_>, line: &str) -> Result<StoredObject, SnapshotError> {
    let (resource, object) = line.split_once(' ').ok_or_else(|| lines.corrupt("the resource is missing"))?;
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    let object: Value = lines.parse(object, "the object is not valid JSON")?;
    let revision = metadata::text(&object, "resourceVersion").parse().ok().filter(|revision| *revision > 0);
    let Some(revision) = revision else { return Err(lines.corrupt("the object has no resource version")) };
    if ["name", "uid"].iter().any(|field| metadata::text(&object, field).is_empty()) {
        return Err(lines.corrupt("the object has no name or no UID"));
    }
    Ok(StoredObject { resource: GroupResource::new(group, plural), revision, object: Arc::new(object) })
}

/// Lines of a snapshot, with their checksums verified.
struct Lines<'a> {
    remaining: &'a [u8],
    checksum: Checksum,
    /// Number of the current line, from 1.
    line: usize,
    /// Number of bytes before the current line.
    offset: usize,
    /// Number of bytes before the next line.
    next_offset: usize,
}

impl<'a> Lines<'a> {
    /// Checks the first line.
    fn after_format_line(bytes: &'a [u8]) -> Result<Self, SnapshotError> {
        if bytes.is_empty() {
            return Err(SnapshotError::Empty);
        }
        let format_line = format!("{FORMAT_NAME} {FORMAT_VERSION}\n");
        if format_line.as_bytes().starts_with(bytes) && bytes.len() < format_line.len() {
            let missing = "its first line is incomplete".to_owned();
            return Err(SnapshotError::Truncated { line: 1, offset: bytes.len(), missing });
        }
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or(SnapshotError::Foreign)?;
        let version = bytes[..end].strip_prefix(FORMAT_NAME.as_bytes()).and_then(|rest| rest.strip_prefix(b" "));
        let version = version.and_then(|version| std::str::from_utf8(version).ok()?.parse::<u32>().ok());
        match version {
            Some(FORMAT_VERSION) => {}
            Some(newer) if newer > FORMAT_VERSION => return Err(SnapshotError::Newer(newer)),
            _ => return Err(SnapshotError::Foreign),
        }
        let (remaining, checksum) = (&bytes[end + 1..], Checksum::start());
        Ok(Self { remaining, checksum, line: 1, offset: 0, next_offset: end + 1 })
    }

    /// Returns the next line without its checksum. `missing` describes the rest of the snapshot from this line on.
    fn next(&mut self, missing: &str) -> Result<&'a str, SnapshotError> {
        self.line += 1;
        self.offset = self.next_offset;
        let Some(end) = self.remaining.iter().position(|byte| *byte == b'\n') else {
            let offset = self.offset + self.remaining.len();
            return Err(SnapshotError::Truncated {
                line: self.line,
                offset,
                missing: format!("{missing} are missing"),
            });
        };
        let (line, rest) = (&self.remaining[..end], &self.remaining[end + 1..]);
        (self.remaining, self.next_offset) = (rest, self.offset + end + 1);
        let Some((digits, content)) = line.split_at_checked(CHECKSUM_BYTES) else {
            return Err(self.corrupt("the line is too short"));
        };
        self.checksum.add(content);
        if digits != format!("{} ", self.checksum.digits()).as_bytes() {
            return Err(self.corrupt("the checksum does not match"));
        }
        std::str::from_utf8(content).map_err(|_| self.corrupt("the line is not text"))
    }

    /// Parses the JSON of the current line.
    fn parse(&self, json: &str, reason: &'static str) -> Result<Value, SnapshotError> {
        // The error of the parser may quote the object, so it is dropped.
        serde_json::from_str(json).map_err(|_| self.corrupt(reason))
    }

    fn expect_end(&mut self) -> Result<(), SnapshotError> {
        if self.remaining.is_empty() {
            return Ok(());
        }
        (self.line, self.offset) = (self.line + 1, self.next_offset);
        Err(self.corrupt("more lines follow than the header announces"))
    }

    fn corrupt(&self, reason: &'static str) -> SnapshotError {
        SnapshotError::Corrupt { line: self.line, offset: self.offset, reason }
    }
}
