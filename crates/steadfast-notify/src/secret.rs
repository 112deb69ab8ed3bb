//! Secrets, read from configured references and hidden in output.

use std::fmt;
use std::path::Path;

use crate::config::secret::SecretFrom;

/// Value of a secret.
#[derive(Clone)]
pub(crate) struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Reads the secret. Relative paths start at `folder`. The error names the reference, never the value.
    pub(crate) fn read(from: &SecretFrom, folder: &Path) -> Result<Self, String> {
        let bytes = match from {
            SecretFrom::File(path) => std::fs::read(folder.join(path)).map_err(|error| format!("{from:?}: {error}"))?,
            SecretFrom::Env(name) => {
                let value = std::env::var_os(name).ok_or_else(|| format!("{from:?} is not set"))?;
                value.into_encoded_bytes()
            }
        };
        // Editors and `echo` append a newline, which is not part of the secret.
        let end = bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
        if end == 0 {
            return Err(format!("{from:?} is empty"));
        }
        Ok(Self(bytes[..end].to_vec()))
    }

    /// Returns the bytes of the value.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the value as text, if valid UTF-8.
    pub(crate) fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}
