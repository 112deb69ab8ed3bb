//! What objects say they are, beside what was requested.

use std::sync::Arc;

use super::RecordProblem;

/// The sort of objects that was requested: another one in its place is none of them, whatever it looks like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Their `apiVersion`.
    pub api_version: Arc<str>,
    /// Their `kind`.
    pub kind: Arc<str>,
    /// Whether their metadata alone may come in their place, as `PartialObjectMetadata`.
    pub metadata: bool,
}

/// As much of a name as is reported.
const LONGEST_TOLD: usize = 64;

impl Wanted {
    /// That an object which says that it is a `kind` of `api_version` is wanted. What it leaves out is no contradiction:
    /// the items of built-in lists say neither.
    pub(super) fn takes(&self, api_version: Option<&str>, kind: Option<&str>) -> Result<(), RecordProblem> {
        let said = |said: Option<&str>, wanted: &str| said.is_none_or(|said| said.is_empty() || said == wanted);
        if said(kind, &self.kind) && said(api_version, &self.api_version) {
            return Ok(());
        }
        let of_metadata = api_version.is_none_or(|version| version.starts_with("meta.k8s.io/"));
        if self.metadata && kind == Some("PartialObjectMetadata") && of_metadata {
            return Ok(());
        }
        let told = |text: Option<&str>, none: &str| -> String {
            text.map_or_else(|| none.to_owned(), |text| crate::text::told(text, LONGEST_TOLD).into())
        };
        Err(RecordProblem::OtherKind {
            told: format!("{} of {}", told(kind, "object"), told(api_version, "no version")),
            wanted: format!("{} of {}", self.kind, self.api_version),
        })
    }
}
