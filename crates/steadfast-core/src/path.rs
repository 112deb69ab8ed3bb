//! Paths to fields of objects.

use std::fmt;

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
