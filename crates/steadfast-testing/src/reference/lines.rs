//! The history's file, in the words of the checker.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::Value;
use steadfast_contract::{Change, History};

use crate::WorldError;

/// One change, as the reference writes it.
#[derive(Debug, Deserialize)]
struct Line {
    revision: u64,
    at_ms: u64,
    resource: Resource,
    namespace: Option<String>,
    name: String,
    uid: String,
    object: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Resource {
    group: String,
    plural: String,
}

/// What the file `text` says of the resource `plural` of `group`; times begin with `begun`.
pub(super) fn history(text: &str, begun: SystemTime, group: &str, plural: &str) -> Result<History, WorldError> {
    let begun = begun.duration_since(UNIX_EPOCH)?;
    let mut history = History::new();
    for (index, line) in text.lines().enumerate() {
        let line: Line =
            serde_json::from_str(line).map_err(|error| format!("line {} of the history: {error}", index + 1))?;
        if line.resource.group == group && line.resource.plural == plural {
            history.push(change(line, begun));
        }
    }
    Ok(history)
}

/// The revision of the newest change in the file `text`.
pub(super) fn last_revision(text: &str) -> Option<u64> {
    #[derive(Deserialize)]
    struct Revision {
        revision: u64,
    }
    serde_json::from_str::<Revision>(text.lines().next_back()?).ok().map(|line| line.revision)
}

fn change(line: Line, begun: Duration) -> Change {
    let namespace = line.namespace.as_deref();
    let change = match line.object {
        Some(object) => Change::new(line.revision, &line.uid, namespace, &line.name, object),
        None => Change::gone(line.revision, &line.uid, namespace, &line.name),
    };
    change.at(Duration::from_millis(line.at_ms).saturating_sub(begun))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
{"revision":7,"at_ms":1000500,"key":"k","deleted":false,"resource":{"group":"","plural":"configmaps"},"namespace":"d","name":"a","uid":"u","object":{"data":{}},"previous":null}
{"revision":8,"at_ms":1000600,"key":"k","deleted":false,"resource":{"group":"","plural":"namespaces"},"namespace":null,"name":"d","uid":"n","object":{},"previous":null}
{"revision":9,"at_ms":1000700,"key":"k","deleted":true,"resource":{"group":"","plural":"configmaps"},"namespace":"d","name":"a","uid":"u","object":null,"previous":{"data":{}}}
"#;

    #[test]
    fn changes_of_the_resource_are_taken_over_with_times_since_the_beginning() -> Result<(), WorldError> {
        let told = history(FILE.trim(), UNIX_EPOCH + Duration::from_secs(1000), "", "configmaps")?;
        let at = Duration::from_millis;
        assert_eq!(last_revision(FILE.trim()), Some(9));
        let created = Change::new(7, "u", Some("d"), "a", serde_json::json!({ "data": {} })).at(at(500));
        assert_eq!(told.changes(), [created, Change::gone(9, "u", Some("d"), "a").at(at(700))]);
        Ok(())
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        let told = history("{}", UNIX_EPOCH, "", "configmaps").expect_err("it has no revision").to_string();
        assert!(told.starts_with("line 1 of the history: missing field"), "{told}");
    }
}
