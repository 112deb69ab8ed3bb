//! Secrets: read from where the configuration says, and shown to nobody.

use std::fmt;
use std::path::Path;

use crate::config::secret::SecretFrom;

/// What nobody else is to see.
#[derive(Clone)]
pub(crate) struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Reads it; paths that are not absolute begin at `folder`. The error says what cannot be had.
    pub(crate) fn read(from: &SecretFrom, folder: &Path) -> Result<Self, String> {
        let bytes = match from {
            SecretFrom::File(path) => std::fs::read(folder.join(path)).map_err(|error| format!("{from:?}: {error}"))?,
            SecretFrom::Env(name) => {
                let value = std::env::var_os(name).ok_or_else(|| format!("{from:?} is not set"))?;
                value.into_encoded_bytes()
            }
        };
        let end = bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
        if end == 0 {
            return Err(format!("{from:?} is empty"));
        }
        Ok(Self(bytes[..end].to_vec()))
    }

    /// What it is.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// What it is, where it is text.
    pub(crate) fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}
