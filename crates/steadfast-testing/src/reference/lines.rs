//! The history's file, in the words of the checker.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::value::RawValue;
use steadfast_contract::{Change, History};

use crate::Error;

/// One change, as the reference writes it.
#[derive(Debug, Deserialize)]
struct Line {
    revision: u64,
    at_ms: u64,
    resource: Resource,
    namespace: Option<String>,
    name: String,
    uid: String,
    /// Read only where it is wanted: it may be nested deeper than a document may be.
    object: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
struct Resource {
    group: String,
    plural: String,
}

/// What a file of the history is read for.
pub(super) struct Wanted<'a> {
    /// With this all times begin.
    pub(super) begun: SystemTime,
    pub(super) group: &'a str,
    pub(super) plural: &'a str,
}

impl Wanted<'_> {
    /// Adds what the file `text` says of the resource since the revision `after`, in the present epoch of `history`.
    pub(super) fn read(&self, text: &str, after: u64, history: &mut History) -> Result<(), Error> {
        let begun = self.begun.duration_since(UNIX_EPOCH)?;
        for (index, line) in text.lines().enumerate() {
            let unreadable = |error| format!("line {} of the history: {error}", index + 1);
            let line: Line = serde_json::from_str(line).map_err(unreadable)?;
            let of_it = line.resource.group == self.group && line.resource.plural == self.plural;
            if of_it && line.revision > after {
                history.push(change(line, begun).map_err(unreadable)?.in_epoch(history.epoch()));
            }
        }
        Ok(())
    }
}

/// The revision of the newest change in the file `text`.
pub(super) fn last_revision(text: &str) -> Option<u64> {
    #[derive(Deserialize)]
    struct Revision {
        revision: u64,
    }
    serde_json::from_str::<Revision>(text.lines().next_back()?).ok().map(|line| line.revision)
}

fn change(line: Line, begun: Duration) -> serde_json::Result<Change> {
    let namespace = line.namespace.as_deref();
    let change = match line.object {
        Some(object) => {
            let object = serde_json::from_str(object.get())?;
            Change::new(line.revision, &line.uid, namespace, &line.name, object)
        }
        None => Change::gone(line.revision, &line.uid, namespace, &line.name),
    };
    Ok(change.at(Duration::from_millis(line.at_ms).saturating_sub(begun)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
{"revision":7,"at_ms":1000500,"key":"k","deleted":false,"resource":{"group":"","plural":"configmaps"},"namespace":"d","name":"a","uid":"u","object":{"data":{}},"previous":null}
{"revision":8,"at_ms":1000600,"key":"k","deleted":false,"resource":{"group":"","plural":"namespaces"},"namespace":null,"name":"d","uid":"n","object":{},"previous":null}
{"revision":9,"at_ms":1000700,"key":"k","deleted":true,"resource":{"group":"","plural":"configmaps"},"namespace":"d","name":"a","uid":"u","object":null,"previous":{"data":{}}}
"#;

    const WANTED: Wanted<'static> = Wanted { begun: UNIX_EPOCH, group: "", plural: "configmaps" };

    #[test]
    fn changes_of_the_resource_are_taken_over_with_times_since_the_beginning() -> Result<(), Error> {
        let mut told = History::new();
        let begun = UNIX_EPOCH + Duration::from_secs(1000);
        Wanted { begun, ..WANTED }.read(FILE.trim(), 0, &mut told)?;
        let at = Duration::from_millis;
        assert_eq!(last_revision(FILE.trim()), Some(9));
        let created = Change::new(7, "u", Some("d"), "a", serde_json::json!({ "data": {} })).at(at(500));
        assert_eq!(told.changes(), [created, Change::gone(9, "u", Some("d"), "a").at(at(700))]);
        Ok(())
    }

    #[test]
    fn of_what_was_restored_only_the_new_is_told_in_an_epoch_of_its_own() -> Result<(), Error> {
        let mut told = History::new();
        WANTED.read(FILE.trim(), 0, &mut told)?;
        told.restore(Duration::ZERO, 7);
        WANTED.read(FILE.trim(), 7, &mut told)?;
        let told: Vec<_> = told.changes().iter().map(|change| (change.epoch, change.version)).collect();
        assert_eq!(told, [(0, 7), (0, 9), (1, 9)]);
        Ok(())
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        let told = WANTED.read("{}", 0, &mut History::new()).expect_err("it has no revision").to_string();
        assert!(told.starts_with("line 1 of the history: missing field"), "{told}");
    }
}
