//! Groups of entries: cluster and namespace of the object, or the result of `guard.group`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::claim::default_group;
use super::entry::Entry;
use crate::change::EventSubject;
use crate::expression::{Bindings, Expression};

/// Variables of `guard.group`.
pub(crate) const GROUP_NAMES: [&str; 3] = ["object", "event", "entry"];

/// Maximum length of a group, in bytes.
const MAX_GROUP_BYTES: usize = 512;

/// Computes the group of each entry of a mirror.
#[derive(Clone, Default)]
pub(crate) struct Grouping(Option<Arc<Expression>>);

impl Grouping {
    /// Groups by this expression, or by cluster and namespace without an expression.
    pub(crate) fn new(expression: Option<Arc<Expression>>) -> Self {
        Self(expression)
    }

    /// Returns the group of each entry of an object.
    ///
    /// # Errors
    ///
    /// Returns an error if the expression fails for an entry, or the result is not text. All entries of an object share
    /// one budget.
    pub(super) fn group_entries(
        &self,
        subject: &EventSubject,
        object: &Value,
        entries: &[Entry],
    ) -> Result<Vec<String>, String> {
        let Some(expression) = &self.0 else { return Ok(vec![default_group(subject); entries.len()]) };
        let EventSubject { cluster, resource, namespace, name, uid } = subject;
        let event = json!({"cluster": cluster, "resource": resource, "namespace": namespace, "name": name, "uid": uid});
        let mut bindings = Bindings::for_values([("object", object.clone()), ("event", event), ("entry", Value::Null)]);
        let mut groups = Vec::with_capacity(entries.len());
        for entry in entries {
            bindings.set("entry", entry.to_json());
            let result = expression.evaluate(&mut bindings);
            match result.map_err(|reason| format!("`guard.group` failed: {reason}"))? {
                Value::String(group) if (1..=MAX_GROUP_BYTES).contains(&group.len()) => groups.push(group),
                _ => return Err(format!("`guard.group` is not text of 1 to {MAX_GROUP_BYTES} bytes")),
            }
        }
        Ok(groups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry_fields::SERVER;
    use crate::expression::Purpose;
    use crate::mirror::entry::entries;

    fn subject() -> EventSubject {
        let [cluster, resource, namespace, name, uid] = ["c", "pods", "shop", "web-0", "1"].map(str::to_owned);
        EventSubject { cluster, resource, namespace, name, uid }
    }

    fn groups(expression: Option<&str>) -> Result<Vec<String>, String> {
        let compiled = expression.map(|text| {
            let compiled = Expression::compile(text, Purpose::Body(&GROUP_NAMES));
            Arc::new(compiled.unwrap_or_else(|errors| panic!("{errors:?}")))
        });
        let object = json!({"metadata": {"labels": {"team": "pay"}}});
        let servers = json!([{"address": "10.0.0.1", "port": 80}, {"address": "10.0.0.2", "port": 80}]);
        let entries = entries(&servers, SERVER, &object, "c.shop.web-0").expect("entries");
        Grouping::new(compiled).group_entries(&subject(), &object, &entries)
    }

    #[test]
    fn group_defaults_to_cluster_and_namespace() {
        assert_eq!(groups(None), Ok(vec!["c/shop".to_owned(); 2]));
    }

    #[test]
    fn group_depends_on_object_event_and_entry() {
        let text = "object.metadata.labels.team + ' ' + event.cluster + ' ' + entry.address";
        assert_eq!(groups(Some(text)), Ok(vec!["pay c 10.0.0.1".to_owned(), "pay c 10.0.0.2".to_owned()]));
    }

    #[test]
    fn group_must_be_text() {
        assert!(groups(Some("1")).is_err_and(|reason| reason.contains("is not text")));
        assert!(groups(Some("''")).is_err());
        assert!(groups(Some("object.metadata.absent")).is_err_and(|reason| reason.contains("`guard.group` failed")));
    }
}
