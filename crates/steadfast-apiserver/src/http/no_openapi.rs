//! `OpenAPI` documents in builds without the feature `openapi`: none.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Value, json};

use super::response::ApiResponse;
use crate::documents::DocumentCache;
use crate::resources::Registry;

/// Returns no document of version 2.
pub(super) fn version_2(_: &HeaderMap) -> ApiResponse {
    ApiResponse::page_not_found()
}

/// Returns the list of documents, which is empty.
pub(super) fn index(_: &Registry) -> Value {
    json!({"paths": {}})
}

/// Returns no document of version 3.
pub(super) fn document(_: &Registry, _: &DocumentCache, _: &str) -> Option<(Bytes, String)> {
    None
}
