//! Encoding of a snapshot: a format line, a header line, and a line for each object.
//!
//! ```text
//! steadfast-apiserver-snapshot 1
//! 9c1f…0e {"objects":2,"revision":7,"startRevision":1000007}
//! 5b02…91 namespaces {"metadata":{"name":"default",…},…}
//! 77aa…3d deployments.apps {"metadata":{"name":"web",…},…}
//! ```
//!
//! Each line after the first starts with the checksum of all bytes after the checksums of this line and of the lines
//! before it. A damaged, missing or moved line is therefore found at its position.

use serde_json::json;

use super::checksum::Checksum;
use super::{FORMAT_NAME, FORMAT_VERSION, Snapshot};

impl Snapshot {
    /// Encodes the snapshot for a file. The file contains all objects in plain text, including Secrets.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = format!("{FORMAT_NAME} {FORMAT_VERSION}\n").into_bytes();
        let mut checksum = Checksum::start();
        let header = json!({
            "objects": self.objects.len(), "revision": self.revision, "startRevision": self.start_revision(),
        });
        put_line(&mut text, &mut checksum, &header.to_string());
        for stored in &self.objects {
            put_line(&mut text, &mut checksum, &format!("{} {}", stored.resource, stored.object));
        }
        text
    }
}

/// Appends a line with its checksum. JSON escapes line ends, so each object is one line.
fn put_line(text: &mut Vec<u8>, checksum: &mut Checksum, line: &str) {
    checksum.add(line.as_bytes());
    text.extend_from_slice(checksum.digits().as_bytes());
    text.push(b' ');
    text.extend_from_slice(line.as_bytes());
    text.push(b'\n');
}
