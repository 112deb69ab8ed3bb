//! Where secrets are to be found.

use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

/// Where a secret is to be found: it is in no configuration.
#[derive(Clone, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum SecretFrom {
    /// In this file, without the line's end; one that is not absolute lies beside the configuration.
    File(PathBuf),
    /// In this variable of the environment.
    Env(String),
}

// Where it is, and not what: this is no secret.
impl fmt::Debug for SecretFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "the file {}", path.display()),
            Self::Env(name) => write!(f, "${name}"),
        }
    }
}
