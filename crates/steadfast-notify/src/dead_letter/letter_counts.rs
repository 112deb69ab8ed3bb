//! Number of letters in a file, by sink and namespace.
//!
//! All sinks and namespaces share one file. The messages of one namespace can fill it, for example if a receiver
//! rejects all of them. The other namespaces then still have a share beyond the limit: without a dead letter, a rejected
//! message would block the later messages of its object.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};

use serde::Deserialize;

use crate::message::Message;
use crate::namespace_share::has_share;

/// Sink, cluster and namespace of a letter.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LetterOwner {
    sink: String,
    cluster: String,
    namespace: String,
}

/// Fields of a letter that identify its owner.
#[derive(Deserialize)]
struct OwnerFields {
    sink: String,
    message: MessageFields,
}

#[derive(Deserialize)]
struct MessageFields {
    cluster: String,
    namespace: String,
}

impl LetterOwner {
    pub(super) fn new(sink: &str, message: &Message) -> Self {
        Self { sink: sink.to_owned(), cluster: message.cluster.clone(), namespace: message.namespace.clone() }
    }

    /// Reads the owner from a line of the file. Malformed lines have an empty owner.
    fn parse(line: &[u8]) -> Self {
        match serde_json::from_slice(line) {
            Ok(OwnerFields { sink, message: MessageFields { cluster, namespace } }) => {
                Self { sink, cluster, namespace }
            }
            Err(_) => Self::default(),
        }
    }
}

/// Letters of a file of known length.
#[derive(Default)]
pub(super) struct LetterCounts {
    /// Length of the file in bytes.
    pub(super) length: u64,
    total: usize,
    by_owner: BTreeMap<LetterOwner, usize>,
}

impl LetterCounts {
    /// Counts the letters of a file of this length.
    pub(super) fn read(file: &File, length: u64) -> io::Result<Self> {
        let mut counts = Self::default();
        for line in BufReader::new(file).split(b'\n') {
            counts.add(LetterOwner::parse(&line?), length);
        }
        counts.length = length;
        Ok(counts)
    }

    /// Records a further letter. `length` is the length of the file with the letter.
    pub(super) fn add(&mut self, owner: LetterOwner, length: u64) {
        self.length = length;
        self.total += 1;
        *self.by_owner.entry(owner).or_default() += 1;
    }

    /// Returns true if `owner` may add a letter: while the file has fewer than `max_letters`, or while the owner has less
    /// than its [share](has_share).
    pub(super) fn has_space(&self, owner: &LetterOwner, max_letters: usize) -> bool {
        let own_letters = self.by_owner.get(owner);
        let other_owners = self.by_owner.len() - usize::from(own_letters.is_some());
        let own_letters = own_letters.copied().unwrap_or_default();
        self.total < max_letters || has_share(own_letters, self.total, other_owners, max_letters)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::dead_letter::{AddError, DeadLetter, DeadLetters};

    fn letter(sink: &str, namespace: &str) -> DeadLetter {
        let letter = json!({
            "sink": sink, "why": "no", "attempts": 1, "message": {
                "id": "a", "time": "2026-01-02T03:04:05Z", "type": "Added", "rule": "r", "cluster": "default",
                "resource": "pods", "namespace": namespace, "name": "a", "uid": "u", "data": 1,
            }
        });
        serde_json::from_value(letter).expect("a letter")
    }

    #[test]
    fn full_file_leaves_shares_to_other_namespaces() {
        let folder = std::env::temp_dir().join(format!("steadfast-dead-letters-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let open = || DeadLetters::new(folder.join("dead-letters.ndjson"), 12);
        let dead_letters = open();
        let added = |dead_letters: &DeadLetters, sink: &str, namespace: &str| {
            (0..30).take_while(|_| dead_letters.add(&letter(sink, namespace)).is_ok()).count()
        };
        assert_eq!(added(&dead_letters, "log", "hostile"), 12, "a single namespace can use the whole limit");
        assert_eq!(added(&dead_letters, "log", "quiet"), 4);
        // A new process counts the letters of the file.
        let dead_letters = open();
        assert_eq!(added(&dead_letters, "mail", "quiet"), 3);
        assert_eq!(added(&dead_letters, "log", "hostile"), 0);
        for number in 0..30 {
            let _ = dead_letters.add(&letter("log", &format!("n-{number}")));
        }
        let text = std::fs::read_to_string(folder.join("dead-letters.ndjson")).expect("the file exists");
        assert_eq!(text.lines().count(), 24, "the total is bounded");
        let error = dead_letters.add(&letter("log", "last")).expect_err("a full file");
        assert!(matches!(error, AddError::Full) && error.to_string().contains("redrive"), "{error}");
        std::fs::remove_dir_all(&folder).expect("the folder exists");
    }
}
