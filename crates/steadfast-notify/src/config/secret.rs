//! Where secrets are to be found.

use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

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

/// A URL: the text itself, or where a secret is that is the whole URL.
#[derive(Clone, Debug, JsonSchema, PartialEq, Eq)]
#[schemars(untagged)]
pub enum UrlFrom {
    /// The URL. `{NAME}` stands for the secret of this name in `secrets`.
    Text(String),
    /// Where the URL is to be found, which is a secret as a whole.
    Secret(SecretFrom),
}

// By hand: an untagged enum has no error message of its own.
impl<'de> Deserialize<'de> for UrlFrom {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrMap;
        impl<'de> Visitor<'de> for TextOrMap {
            type Value = UrlFrom;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a URL, or its place as {file = \"url\"} or {env = \"URL\"}")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<UrlFrom, E> {
                Ok(UrlFrom::Text(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<UrlFrom, A::Error> {
                // An enum with data comes as a map with one key.
                SecretFrom::deserialize(MapAccessDeserializer::new(map)).map(UrlFrom::Secret)
            }
        }
        deserializer.deserialize_any(TextOrMap)
    }
}
