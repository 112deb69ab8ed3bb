//! Properties that a definition declares, in builds without the feature `crd`: no resource has a definition.

use std::iter::Empty;

use serde_json::Value;

use super::ScalePaths;
use crate::merging::TypeRef;

/// Definition of a custom resource; never present.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Definition {}

impl Definition {
    pub(crate) fn storage(&self) -> &str {
        match *self {}
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        match *self {}
    }

    pub(crate) fn version_names(&self) -> Empty<&str> {
        match *self {}
    }

    pub(crate) fn was_parsed_from(&self, _: &Value) -> bool {
        match *self {}
    }

    pub(crate) fn raw_schema(&self, _: &str) -> Option<&Value> {
        match *self {}
    }

    pub(super) fn has_status(&self, _: &str) -> bool {
        match *self {}
    }

    pub(super) fn deprecation(&self, _: &str) -> Option<String> {
        match *self {}
    }

    pub(super) fn scale(&self, _: &str) -> Option<ScalePaths> {
        match *self {}
    }

    pub(super) fn merge_type(&self, _: &str) -> TypeRef {
        match *self {}
    }

    pub(super) fn read(&self, _: &mut Value, _: &str) {
        match *self {}
    }

    pub(super) fn to_store(&self, _: &mut Value) {
        match *self {}
    }
}
