//! Continue tokens.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::status::Status;
use crate::storage::ObjectKey;

/// Where a list goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ContinueToken {
    v: String,
    /// The revision of the list; negative where it goes on at whatever is newest.
    pub(super) rv: i64,
    start: String,
}

impl ContinueToken {
    /// A list at a revision goes on after this object.
    pub(super) fn after(rv: i64, key: &ObjectKey) -> Self {
        Self { v: "meta.k8s.io/v1".to_owned(), rv, start: format!("{}/{}", key.namespace, key.name) }
    }

    /// The object after which it goes on.
    pub(super) fn key(&self) -> ObjectKey {
        let (namespace, name) = self.start.split_once('/').unwrap_or(("", &self.start));
        ObjectKey::new(namespace, name)
    }

    /// The same place, at whatever is newest.
    pub(super) fn inconsistent(&self) -> Self {
        Self { rv: -1, ..self.clone() }
    }

    pub(super) fn encode(&self) -> String {
        let json = serde_json::json!({"v": self.v, "rv": self.rv, "start": self.start});
        URL_SAFE_NO_PAD.encode(json.to_string())
    }

    pub(super) fn decode(text: &str) -> Result<Self, Status> {
        let invalid = |why: &dyn std::fmt::Display| {
            Status::bad_request(format_args!("invalid continue token: continue key is not valid: {why}"))
        };
        let json = URL_SAFE_NO_PAD.decode(text).map_err(|error| invalid(&error))?;
        let token: Self = serde_json::from_slice(&json).map_err(|error| invalid(&error))?;
        if token.v != "meta.k8s.io/v1" || token.rv == 0 {
            return Err(invalid(&"its version is not known"));
        }
        Ok(token)
    }
}
