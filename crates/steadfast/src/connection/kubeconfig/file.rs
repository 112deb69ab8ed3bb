//! One file of a kubeconfig: its text, its entries, and the folder to which relative paths refer.

use std::io;
use std::path::Path;

use serde_json::{Map, Value};
use serde_saphyr::{DuplicateKeyPolicy, options};

use super::entry::{KubeconfigEntries, KubeconfigEntry};

/// Content of a file.
#[derive(Default)]
pub(super) struct KubeconfigFile {
    pub(super) clusters: KubeconfigEntries,
    pub(super) users: KubeconfigEntries,
    pub(super) contexts: KubeconfigEntries,
    pub(super) current: Option<String>,
}

/// Reason that a file cannot be used.
pub(super) enum FileError {
    Missing(io::Error),
    Failed(io::Error),
    Malformed(String),
}

impl FileError {
    /// Returns the error, with the file's path and without the file's text.
    pub(super) fn describe(&self, path: &Path) -> String {
        let path = path.display();
        match self {
            Self::Missing(error) | Self::Failed(error) => format!("{path} cannot be read: {error}"),
            Self::Malformed(detail) => format!("{path}: {detail}"),
        }
    }
}

/// Reads the file at `path`.
pub(super) fn read(path: &Path) -> Result<KubeconfigFile, FileError> {
    let bytes = std::fs::read(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => FileError::Missing(error),
        _ => FileError::Failed(error),
    })?;
    parse(&bytes, path.parent()).map_err(FileError::Malformed)
}

/// Parses a file's content, in YAML or JSON. Relative paths in the file refer to `folder`.
pub(super) fn parse(bytes: &[u8], folder: Option<&Path>) -> Result<KubeconfigFile, String> {
    let text = decode(bytes).ok_or("it is not a kubeconfig: the content is neither UTF-8 nor UTF-16 text")?;
    // kubectl lets the last of duplicate keys win.
    let documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(&text, options! { duplicate_keys: DuplicateKeyPolicy::LastWins })
            // The parse error is replaced, since it quotes the line, which may hold a token.
            .map_err(|error| match error.location() {
                Some(at) => {
                    format!("it is not a kubeconfig: syntax error at line {}, column {}", at.line(), at.column())
                }
                None => "it is not a kubeconfig".to_owned(),
            })?;
    let mut file = KubeconfigFile::default();
    for document in documents {
        match document {
            Value::Null => {}
            Value::Object(document) => file.add(&document, folder)?,
            _ => return Err("it is not a kubeconfig: the content is not a map of fields".to_owned()),
        }
    }
    Ok(file)
}

impl KubeconfigFile {
    fn add(&mut self, document: &Map<String, Value>, folder: Option<&Path>) -> Result<(), String> {
        if let Some(kind) = document.get("kind").and_then(Value::as_str).filter(|kind| !matches!(*kind, "" | "Config"))
        {
            return Err(format!("it is not a kubeconfig: its kind is {kind:?}"));
        }
        for (field, content, entries) in [
            ("clusters", "cluster", &mut self.clusters),
            ("users", "user", &mut self.users),
            ("contexts", "context", &mut self.contexts),
        ] {
            let listed = match document.get(field) {
                None | Some(Value::Null) => continue,
                Some(Value::Array(listed)) => listed,
                Some(_) => return Err(format!("the field {field} is not a list")),
            };
            for named in listed {
                let name = match named.get("name") {
                    Some(Value::String(name)) => name.clone(),
                    // An unquoted name such as `42` is a number in YAML; kubectl reads it as text.
                    Some(number @ Value::Number(_)) => number.to_string(),
                    // An entry without a name has an empty name in kubectl, and no context refers to it.
                    _ => continue,
                };
                let described = format!("{content} {name:?}");
                let fields = match named.get(content) {
                    Some(Value::Object(fields)) => fields.clone(),
                    None | Some(Value::Null) => Map::new(),
                    Some(_) => return Err(format!("the {described} is not a map of fields")),
                };
                entries.insert(name, KubeconfigEntry::new(described, fields, folder));
            }
        }
        if self.current.is_none() {
            let current = document.get("current-context").and_then(Value::as_str);
            self.current = current.filter(|current| !current.is_empty()).map(str::to_owned);
        }
        Ok(())
    }
}

/// Decodes the text in `bytes`: UTF-8, or UTF-16 with a byte order mark.
fn decode(bytes: &[u8]) -> Option<String> {
    let decode_utf16 = |bytes: &[u8], read: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| read([pair[0], pair[1]])).collect();
        bytes.len().is_multiple_of(2).then(|| String::from_utf16(&units).ok()).flatten()
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => decode_utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => decode_utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8(rest.to_vec()).ok(),
        bytes => String::from_utf8(bytes.to_vec()).ok(),
    }
}
