//! Paths to fields of objects.

use std::fmt;
use std::ops::Range;

use crate::scan::{Cursor, ScanError};

/// Path to a field of an object: member names, from the outermost to the innermost.
///
/// ```
/// # use steadfast_core::FieldPath;
/// let node = FieldPath::new("spec.nodeName");
/// let team = FieldPath::new("metadata.annotations").then("example.com/team");
/// assert_eq!(format!("{node} {team}"), "spec.nodeName metadata.annotations[\"example.com/team\"]");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(Box<[Box<str>]>);

impl FieldPath {
    /// Creates a path from names that are separated by dots.
    pub fn new(dotted: &str) -> Self {
        Self(dotted.split('.').map(Into::into).collect())
    }

    /// Extends the path by the member `name`, which may contain any characters.
    #[must_use]
    pub fn then(self, name: &str) -> Self {
        Self(self.0.into_iter().chain([name.into()]).collect())
    }

    /// Returns the names, the outermost first.
    pub fn names(&self) -> &[Box<str>] {
        &self.0
    }

    /// Returns the range of the field in the JSON of an object; `None` if the field is missing or null.
    pub(crate) fn find_in_json(&self, bytes: &[u8]) -> Result<Option<Range<usize>>, ScanError> {
        let mut found = None;
        walk(&mut Cursor::new(bytes), self.names(), &mut found)?;
        // An explicit `null` counts as absent.
        Ok(found.filter(|span| bytes[span.clone()] != *b"null"))
    }
}

/// Walks to the value at these names. As in `serde_json`, the last of several members with one name counts.
fn walk(cursor: &mut Cursor<'_>, names: &[Box<str>], found: &mut Option<Range<usize>>) -> Result<(), ScanError> {
    let Some((name, inner)) = names.split_first() else {
        *found = Some(cursor.skip()?);
        return Ok(());
    };
    cursor.members(|cursor, member| {
        if member.name.parse_with(|read| (read == name.as_bytes()).then_some(())).is_some() {
            // For duplicate names, the last value counts, as in a full decode.
            *found = None;
            walk(cursor, inner, found)
        } else {
            cursor.skip().map(drop)
        }
    })?;
    Ok(())
}

impl From<&str> for FieldPath {
    fn from(dotted: &str) -> Self {
        Self::new(dotted)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, name) in self.0.iter().enumerate() {
            match name.contains(['.', '/']) {
                true => write!(f, "[{name:?}]")?,
                false if at == 0 => f.write_str(name)?,
                false => write!(f, ".{name}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
