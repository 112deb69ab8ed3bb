//! References to secrets.

use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Reference to a secret. A configuration never contains secret values.
#[derive(Clone, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum SecretFrom {
    /// Path of a file with the secret. A trailing newline is ignored. A relative path starts at the folder of the
    /// configuration.
    File(PathBuf),
    /// Name of an environment variable with the secret.
    Env(String),
}

// A short form for error messages. The value is the reference, never the secret.
impl fmt::Debug for SecretFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "the file {}", path.display()),
            Self::Env(name) => write!(f, "${name}"),
        }
    }
}

/// A literal URL, or a reference to a secret that is the whole URL.
#[derive(Clone, Debug, JsonSchema, PartialEq, Eq)]
#[schemars(untagged)]
pub enum UrlFrom {
    /// Literal URL. `{NAME}` is replaced by the secret of this name in `secrets`.
    Text(String),
    /// Reference to a secret that contains the whole URL.
    Secret(SecretFrom),
}

// Implemented manually: a derived untagged enum cannot report a useful error.
impl<'de> Deserialize<'de> for UrlFrom {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrMap;
        impl<'de> Visitor<'de> for TextOrMap {
            type Value = UrlFrom;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a URL, or a reference as {file = \"url\"} or {env = \"URL\"}")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<UrlFrom, E> {
                Ok(UrlFrom::Text(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<UrlFrom, A::Error> {
                // serde represents an enum with data as a map with one key.
                SecretFrom::deserialize(MapAccessDeserializer::new(map)).map(UrlFrom::Secret)
            }
        }
        deserializer.deserialize_any(TextOrMap)
    }
}
