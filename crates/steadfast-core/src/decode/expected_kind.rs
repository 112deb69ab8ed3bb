//! Check of received kinds against the requested one.

use std::sync::Arc;

use super::RecordProblem;

/// Kind of the requested objects. An object of another kind is rejected, independent of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedKind {
    /// `apiVersion` of the objects.
    pub api_version: Arc<str>,
    /// `kind` of the objects.
    pub kind: Arc<str>,
    /// Set if `PartialObjectMetadata` is accepted instead.
    pub metadata: bool,
}

/// Maximum length of a name in reports, in bytes.
const MAX_PRINTED_BYTES: usize = 64;

impl ExpectedKind {
    /// Checks that an object with this `api_version` and `kind` was requested. A missing value is accepted: the items
    /// of built-in lists have neither.
    pub(super) fn check(&self, api_version: Option<&str>, kind: Option<&str>) -> Result<(), RecordProblem> {
        let matches = |found: Option<&str>, wanted: &str| found.is_none_or(|found| found.is_empty() || found == wanted);
        if matches(kind, &self.kind) && matches(api_version, &self.api_version) {
            return Ok(());
        }
        let of_metadata = api_version.is_none_or(|version| version.starts_with("meta.k8s.io/"));
        if self.metadata && kind == Some("PartialObjectMetadata") && of_metadata {
            return Ok(());
        }
        let described = |text: Option<&str>, none: &str| -> String {
            text.map_or_else(|| none.to_owned(), |text| crate::text::printable(text, MAX_PRINTED_BYTES).into())
        };
        Err(RecordProblem::OtherKind {
            found: format!("{} of {}", described(kind, "object"), described(api_version, "no version")),
            wanted: format!("{} of {}", self.kind, self.api_version),
        })
    }
}
