//! Continue tokens.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::status::Status;
use crate::storage::ObjectKey;

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

/// Position at which a list continues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ContinueToken {
    v: String,
    /// Revision of the list; negative if it continues at the newest revision.
    pub(super) rv: i64,
    /// First possible key of the next page, without the prefix that all keys of the list share.
    start: String,
}

impl ContinueToken {
    /// Creates a token that continues a list of a namespace, or of all namespaces, after an object.
    pub(super) fn after(rv: i64, key: &ObjectKey, namespace: Option<&str>) -> Self {
        let all_namespaces = namespace.is_none() && !key.namespace.is_empty();
        let start_key = if all_namespaces { format!("{}/{}", key.namespace, key.name) } else { key.name.clone() };
        // The key with a zero byte is the first key after the last object, so the next page starts there.
        Self { v: TOKEN_VERSION.to_owned(), rv, start: format!("{start_key}\0") }
    }

    /// Returns the first possible key of the next page, in a list of a namespace or of all namespaces.
    pub(super) fn key(&self, namespace: Option<&str>, is_namespaced: bool) -> ObjectKey {
        let start = self.start.strip_prefix('/').unwrap_or(&self.start);
        match namespace {
            // The prefix of the list is not part of the token, so the namespace comes from the request.
            Some(namespace) => ObjectKey::new(namespace, start),
            None if is_namespaced => {
                let (namespace, name) = start.split_once('/').unwrap_or((start, ""));
                ObjectKey::new(namespace, name)
            }
            None => ObjectKey::new("", start),
        }
    }

    /// Returns the same position at the newest revision.
    pub(super) fn inconsistent(&self) -> Self {
        // A negative version marks an inconsistent continuation, as in the tokens of a real server.
        Self { rv: -1, ..self.clone() }
    }

    pub(super) fn encode(&self) -> String {
        let json = serde_json::json!({"v": self.v, "rv": self.rv, "start": self.start});
        URL_SAFE_NO_PAD.encode(json.to_string())
    }

    pub(super) fn decode(text: &str) -> Result<Self, Status> {
        let invalid = |detail: &dyn std::fmt::Display| {
            Status::bad_request(format_args!("invalid continue token: continue key is not valid: {detail}"))
        };
        let json = URL_SAFE_NO_PAD.decode(text).map_err(|error| invalid(&error))?;
        let token: Self = serde_json::from_slice(&json).map_err(|error| invalid(&error))?;
        if token.v != TOKEN_VERSION {
            return Err(invalid(&format_args!("server does not recognize this encoded version {}", token.v)));
        }
        // Version 0 would mean "any", which cannot continue a list.
        if token.rv == 0 {
            return Err(invalid(&format_args!("incorrect encoded start resourceVersion (version {TOKEN_VERSION})")));
        }
        if token.start.is_empty() {
            return Err(invalid(&format_args!("encoded start key empty (version {TOKEN_VERSION})")));
        }
        // A path with dots must not leave the collection.
        let start_key = token.start.strip_prefix('/').unwrap_or(&token.start);
        if start_key.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(invalid(&token.start));
        }
        Ok(token)
    }
}
