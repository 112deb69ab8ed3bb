//! Columns of a resource, and the cells of its objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::core::ApiResource;
use serde_json::Value;
use steadfast::Object;
use steadfast_apiserver::KubectlColumns;

use super::row::{ColumnOrder, Row, RowContent, RowKey, RowObject, TableColumn};
use super::usage::UsageTable;
use crate::changes::phrases::event_time;
use crate::watch::watched::{CachedObject, decode_object};

/// Columns of a resource, and the cells of its objects.
#[derive(Debug)]
pub(super) struct Schema {
    api_resource: ApiResource,
    columns: KubectlColumns,
    /// True if the first column is the namespace.
    has_namespace: bool,
    /// Processor and memory of the objects, in the last columns.
    usage: Option<Arc<UsageTable>>,
}

impl Schema {
    /// Creates the schema of a resource. `definition` is the definition of a custom resource. With `usage`, the table has
    /// columns of processor and memory.
    pub(super) fn new(
        api_resource: ApiResource,
        definition: Option<&Value>,
        has_namespace: bool,
        usage: Option<Arc<UsageTable>>,
    ) -> Self {
        let columns = match definition {
            Some(definition) => KubectlColumns::of_definition(definition, &api_resource.version),
            None => KubectlColumns::for_kind(&api_resource.group, &api_resource.kind),
        };
        Self { api_resource, columns, has_namespace, usage }
    }

    /// Returns the columns of the table.
    pub(super) fn columns(&self) -> Vec<TableColumn> {
        let column = |name: &str, order| TableColumn { name: name.to_owned(), order, is_wide: false };
        let namespace = self.has_namespace.then(|| column("Namespace", ColumnOrder::Namespace));
        let columns = self.columns.columns().into_iter().enumerate().map(|(index, column)| TableColumn {
            order: match (index, column.name.as_str()) {
                _ if column.is_time => ColumnOrder::Time,
                // As with kubectl, such a first column contains the names of the objects.
                (0, "Name") => ColumnOrder::Name,
                _ => ColumnOrder::Text,
            },
            name: column.name,
            is_wide: column.is_wide,
        });
        let usage = ["CPU", "Memory"].into_iter().filter(|_| self.usage.is_some());
        let usage = usage.map(|name| column(name, ColumnOrder::Text));
        namespace.into_iter().chain(columns).chain(usage).collect()
    }

    /// Returns the cells of an object, with ages at the time `now`.
    pub(super) fn cells(&self, object: &Value, now: Timestamp) -> Vec<String> {
        let namespace = self.has_namespace.then(|| metadata(object, "namespace").to_owned());
        let usage = self
            .usage
            .as_ref()
            .map(|usage| usage.cells(&RowKey::new(metadata(object, "namespace"), metadata(object, "name"))));
        namespace.into_iter().chain(self.columns.cells(object, now)).chain(usage.into_iter().flatten()).collect()
    }

    /// Returns the usage of the objects, if the table has columns for it.
    pub(super) fn usage(&self) -> Option<&Arc<UsageTable>> {
        self.usage.as_ref()
    }

    /// Returns the row with the current usage of its object; `None` without columns of the usage, or without cells.
    pub(super) fn with_usage(&self, row: &Row) -> Option<Row> {
        self.usage.as_ref().and_then(|usage| row.with_last_cells(&usage.cells(&row.key)))
    }

    /// Takes at most `max_rows` rows whose usage has changed.
    pub(super) fn take_changed_usage(&self, max_rows: usize) -> Vec<RowKey> {
        self.usage.as_ref().map(|usage| usage.take_changed(max_rows)).unwrap_or_default()
    }

    /// Returns the object in its cached form.
    pub(super) fn row_object(self: &Arc<Self>, object: &Object<CachedObject>) -> Arc<dyn RowObject> {
        Arc::new(EncodedObject { schema: self.clone(), object: object.clone() })
    }
}

/// Returns the key of a cached object.
pub(super) fn row_key(object: &Object<CachedObject>) -> RowKey {
    RowKey::new(object.key().namespace().unwrap_or_default(), object.key().name())
}

/// Object in its cached form.
struct EncodedObject {
    schema: Arc<Schema>,
    object: Object<CachedObject>,
}

impl std::fmt::Debug for EncodedObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The content of the object is omitted, because it may be secret.
        write!(f, "EncodedObject({})", self.object.key())
    }
}

impl RowObject for EncodedObject {
    fn decode(&self) -> Value {
        decode_object(&self.schema.api_resource, &self.object)
    }

    fn labels(&self) -> BTreeMap<String, String> {
        self.object.labels().unwrap_or_default()
    }

    fn content(&self) -> RowContent {
        let value = self.decode();
        RowContent { cells: self.schema.cells(&value, Timestamp::now()), time: row_time(&value) }
    }
}

/// Returns the time of an object in seconds since 1970: the last occurrence of an event, or else the creation.
fn row_time(object: &Value) -> i64 {
    // Other kinds may have fields with the names of an event's times.
    let is_event = object.get("kind").and_then(Value::as_str) == Some("Event");
    let time = if is_event { event_time(object) } else { metadata(object, "creationTimestamp").parse().ok() };
    time.map(Timestamp::as_second).unwrap_or_default()
}

fn metadata<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|metadata| metadata.get(field)?.as_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;
    use serde_json::json;

    use super::*;

    fn schema(kind: &str, definition: Option<&Value>, has_namespace: bool) -> Schema {
        let group = if definition.is_some() { "example.com" } else { "" };
        let gvk = GroupVersionKind::gvk(group, "v1", kind);
        Schema::new(ApiResource::from_gvk_with_plural(&gvk, "things"), definition, has_namespace, None)
    }

    #[test]
    fn cells_start_with_namespace() {
        let metadata = json!({"namespace": "shop", "name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"});
        let object = json!({"metadata": metadata, "spec": {"size": 3}});
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().expect("a time");
        assert_eq!(schema("ConfigMap", None, true).cells(&object, now), ["shop", "web", "0", "60s"]);
        let size = json!({"name": "Size", "type": "integer", "jsonPath": ".spec.size"});
        let version = json!({"name": "v1", "additionalPrinterColumns": [size]});
        let definition = json!({"spec": {"group": "example.com", "versions": [version]}});
        let custom = schema("Widget", Some(&definition), false);
        assert_eq!(custom.cells(&object, now), ["web", "3"]);
        let names: Vec<String> = custom.columns().into_iter().map(|column| column.name).collect();
        assert_eq!(names, ["Name", "Size"]);
        let orders: Vec<ColumnOrder> =
            schema("ConfigMap", None, true).columns().iter().map(|column| column.order).collect();
        let expected = [ColumnOrder::Namespace, ColumnOrder::Name, ColumnOrder::Text, ColumnOrder::Time];
        assert_eq!(orders, expected);
    }

    #[test]
    fn events_order_by_last_occurrence() {
        let created = json!({"creationTimestamp": "2026-01-01T00:00:00Z"});
        let event = json!({"kind": "Event", "metadata": created, "lastTimestamp": "2026-01-01T00:00:09Z"});
        let other = json!({"kind": "Pod", "metadata": created, "lastTimestamp": "2026-01-01T00:00:09Z"});
        assert_eq!(row_time(&event) - row_time(&other), 9);
        assert_eq!(row_time(&json!({})), 0);
    }
}
