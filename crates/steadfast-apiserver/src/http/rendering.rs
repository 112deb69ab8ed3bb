//! Rendering of objects for one response.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Map, Value, json};

use super::namespace_versions;
use super::negotiate::{Encoding, Form, IncludeObject};
use super::tables;
use crate::clock::Clock;
use crate::encode;
use crate::faults::ObjectCorruption;
use crate::metadata;
use crate::protobuf;
use crate::resources::ServedResource;
use crate::storage::Change;

/// Rendering of objects: their form, their version, and the effects of faults.
#[derive(Clone, Debug)]
pub(super) struct Rendering {
    pub(super) form: Form,
    pub(super) encoding: Encoding,
    pub(super) resource: Arc<ServedResource>,
    pub(super) api_version: String,
    pub(super) clock: Clock,
    /// Part of the objects in the rows of a table.
    pub(super) include_object: IncludeObject,
    /// True if tables include their column definitions. In a watch, only the first table includes them.
    pub(super) includes_columns: bool,
    /// Objects whose content is corrupted.
    pub(super) corrupted_objects: Arc<BTreeMap<(String, String), ObjectCorruption>>,
    /// True if each namespace has its own version counter.
    pub(super) has_namespace_counters: bool,
}

/// State of an object to render: the state after the change, or the last state of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RenderedState {
    Current,
    Deleted,
}

impl Rendering {
    /// Writes an item of a list in JSON.
    pub(super) fn put_item(&self, buffer: &mut BytesMut, change: &Change) {
        match self.form {
            Form::Object if self.resource.is_custom => self.put_object(buffer, change, RenderedState::Current),
            // Items of built-in lists lack `kind` and `apiVersion`, as on the real server.
            Form::Object => encode::put_typed_item(buffer, &self.fields(change, RenderedState::Current)),
            Form::Metadata | Form::Table => self.put_object(buffer, change, RenderedState::Current),
        }
    }

    /// Writes a single object, or the object of an event.
    pub(super) fn put_object(&self, buffer: &mut BytesMut, change: &Change, state: RenderedState) {
        if self.encoding == Encoding::Protobuf {
            return buffer.put_slice(&self.enveloped(&self.message(change, state)));
        }
        match self.form {
            Form::Object => {
                encode::put_object(buffer, &self.resource.kind, &self.api_version, &self.fields(change, state));
            }
            Form::Metadata => {
                let object = self.object_of(change, state);
                buffer.put_slice(&encode::json(&partial_object(&object)));
            }
            Form::Table => {
                let object = self.object_of(change, state);
                let table = self.table(
                    &json!({"resourceVersion": metadata::text(&object, "resourceVersion")}),
                    std::slice::from_ref(&object),
                );
                buffer.put_slice(&encode::json(&table));
            }
        }
    }

    /// Encodes a value outside of the history, such as the result of a dry run.
    pub(super) fn encode(&self, object: &Arc<Value>) -> Bytes {
        let object = &*self.resource.view(object, self.version_name());
        if self.encoding == Encoding::Protobuf {
            return self.enveloped(&self.message_of(object)).into();
        }
        match self.form {
            Form::Object => {
                let mut buffer = BytesMut::new();
                let fields = encode::encode_fields(object, None);
                encode::put_object(&mut buffer, &self.resource.kind, &self.api_version, &fields);
                buffer.freeze()
            }
            Form::Metadata => encode::json(&partial_object(object)),
            Form::Table => {
                let version = metadata::text(object, "resourceVersion");
                let table = self.table(&json!({"resourceVersion": version}), std::slice::from_ref(object));
                encode::json(&table)
            }
        }
    }

    /// Writes a bookmark object, which has only a version.
    pub(super) fn put_bookmark(&self, buffer: &mut BytesMut, revision: u64, initial_events_end: bool) {
        let version = self.version_of_collection(revision);
        let mut metadata = json!({"resourceVersion": version});
        if initial_events_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        if self.encoding == Encoding::Protobuf {
            return buffer.put_slice(&self.enveloped(&self.message_of(&json!({ "metadata": metadata }))));
        }
        match self.form {
            Form::Object => {
                let mut fields = BytesMut::from(&b"\"metadata\":"[..]);
                fields.put_slice(&encode::json(&metadata));
                encode::put_object(buffer, &self.resource.kind, &self.api_version, &fields);
            }
            Form::Metadata => buffer.put_slice(&encode::json(&partial_object(&json!({"metadata": metadata})))),
            Form::Table => {
                let bookmark = json!({"metadata": metadata});
                let version = json!({"resourceVersion": version});
                buffer.put_slice(&encode::json(&self.table(&version, &[bookmark])));
            }
        }
    }

    /// Writes an event of a watch, with the object that `object` writes.
    pub(super) fn put_event(&self, buffer: &mut BytesMut, kind: &str, object: impl FnOnce(&Self, &mut BytesMut)) {
        if self.encoding == Encoding::Protobuf {
            let mut bytes = BytesMut::new();
            object(self, &mut bytes);
            return buffer.put_slice(&protobuf::event(kind, &bytes));
        }
        buffer.put_slice(b"{\"type\":\"");
        buffer.put_slice(kind.as_bytes());
        buffer.put_slice(b"\",\"object\":");
        object(self, buffer);
        buffer.put_slice(b"}\n");
    }

    /// Returns the version and the kind of rendered objects.
    pub(super) fn served_type(&self) -> (&str, &str) {
        match self.form {
            Form::Object => (&self.api_version, &self.resource.kind),
            Form::Metadata => ("meta.k8s.io/v1", "PartialObjectMetadata"),
            Form::Table => ("meta.k8s.io/v1", "Table"),
        }
    }

    /// Returns the message of an object, without its envelope.
    pub(super) fn message(&self, change: &Change, state: RenderedState) -> Bytes {
        let is_corrupted = self.form == Form::Object && self.corruption_of(change).is_some();
        // The cached encoding fits only the stored form. Faults and conversions need another
        // encoding.
        if is_corrupted
            || self.has_namespace_counters
            || self.form != Form::Object
            || !self.can_send_stored_form(change)
        {
            let object = self.object_of(change, state);
            // Only complete objects are corrupted. Metadata requests must still identify the object.
            let corruption = self.corruption_of(change).filter(|_| is_corrupted);
            return self.message_of(
                &corruption.map_or_else(|| object.clone(), |corruption| corrupted_object(&object, corruption)),
            );
        }
        match state {
            RenderedState::Current => change.message(&self.api_version, &self.resource.kind),
            RenderedState::Deleted => change.deleted_message(&self.api_version, &self.resource.kind),
        }
    }

    fn message_of(&self, object: &Value) -> Bytes {
        let (api_version, kind) = self.served_type();
        protobuf::fields(api_version, kind, object).unwrap_or_default().into()
    }

    fn enveloped(&self, message: &[u8]) -> Vec<u8> {
        let (api_version, kind) = self.served_type();
        protobuf::enveloped(api_version, kind, message)
    }

    fn corruption_of(&self, change: &Change) -> Option<ObjectCorruption> {
        if self.corrupted_objects.is_empty() {
            return None;
        }
        self.corrupted_objects.get(&(change.namespace.clone().unwrap_or_default(), change.name.clone())).copied()
    }

    /// Returns a table of objects.
    pub(super) fn table(&self, list_metadata: &Value, objects: &[Value]) -> Value {
        let definitions = || tables::definitions(&self.resource, self.version_name());
        let rows: Vec<Value> = objects
            .iter()
            .map(|object| {
                let cells = tables::cells(&self.resource, self.version_name(), object, &self.clock);
                match self.include_object {
                    IncludeObject::Metadata => json!({"cells": cells, "object": partial_object(object)}),
                    IncludeObject::Object => json!({"cells": cells, "object": self.with_type(object)}),
                    IncludeObject::None => json!({"cells": cells, "object": null}),
                }
            })
            .collect();
        // Only the first event of a watch contains the column definitions.
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": list_metadata,
            "columnDefinitions": self.includes_columns.then(definitions),
            "rows": rows,
        })
    }

    /// Adds the kind and the version, which the store does not keep.
    fn with_type(&self, object: &Value) -> Value {
        let mut object = object.clone();
        object["kind"] = self.resource.kind.clone().into();
        object["apiVersion"] = self.api_version.clone().into();
        object
    }

    fn fields(&self, change: &Change, state: RenderedState) -> Bytes {
        if let Some(corruption) = self.corruption_of(change) {
            return encode::encode_fields(&corrupted_object(&self.object_of(change, state), corruption), None);
        }
        if self.has_namespace_counters || !self.can_send_stored_form(change) {
            return encode::encode_fields(&self.object_of(change, state), None);
        }
        match state {
            RenderedState::Current => change.fields(),
            RenderedState::Deleted => change.deleted_fields(),
        }
    }

    fn version_name(&self) -> &str {
        self.api_version.rsplit('/').next().unwrap_or_default()
    }

    /// Returns whether the stored object can be sent unchanged, without conversion or defaults.
    fn can_send_stored_form(&self, change: &Change) -> bool {
        let Some(definition) = &self.resource.definition else {
            return !self.resource.is_converted(self.version_name());
        };
        // An updated definition may read the stored object in another way. Definitions are compared by address, so each
        // update counts, even an update that reads the object in the same way.
        let is_same_definition =
            change.definition.as_ref().is_some_and(|stored_with| Arc::ptr_eq(stored_with, definition));
        is_same_definition && self.version_name() == definition.storage()
    }

    /// Returns the object of a change: the state after the change, or the state before it with the change's revision.
    pub(super) fn object_of(&self, change: &Change, state: RenderedState) -> Value {
        let view = |stored: &Arc<Value>| Arc::unwrap_or_clone(self.resource.view(stored, self.version_name()));
        let mut object = match state {
            RenderedState::Current => change.object.as_ref().map(view).unwrap_or_default(),
            RenderedState::Deleted => change.previous.as_ref().map(view).unwrap_or_default(),
        };
        if self.has_namespace_counters {
            let version =
                namespace_versions::object_version(change.namespace.as_deref().unwrap_or_default(), change.revision);
            metadata::set(&mut object, "resourceVersion", Some(version.to_string().into()));
        } else if state == RenderedState::Deleted {
            // A deletion event contains the last object at the revision of the deletion.
            metadata::set(&mut object, "resourceVersion", Some(change.revision.to_string().into()));
        }
        object
    }

    /// Returns the version of a collection at `revision`.
    pub(super) fn version_of_collection(&self, revision: u64) -> String {
        let version =
            if self.has_namespace_counters { namespace_versions::collection_version(revision) } else { revision };
        version.to_string()
    }
}

fn partial_object(object: &Value) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

/// Returns the corrupted object. Its identity stays readable.
fn corrupted_object(object: &Value, corruption: ObjectCorruption) -> Value {
    let mut object = object.clone();
    match corruption {
        ObjectCorruption::WrongTypes => return with_wrong_types(&object),
        ObjectCorruption::Deep(levels) => {
            let nested = (0..levels).fold(json!(1), |inner, _| json!({ "f:a": inner }));
            object["metadata"]["managedFields"] = json!([{ "manager": "deep", "fieldsV1": nested }]);
            object["data"] = nested;
        }
        ObjectCorruption::Huge(bytes) => object["data"] = json!({ "huge": "x".repeat(bytes) }),
    }
    object
}

/// Replaces values by numbers in fields whose type is never a number.
fn with_wrong_types(object: &Value) -> Value {
    let fields = object.as_object().into_iter().flatten();
    let mut corrupted: Map<String, Value> = fields
        .map(|(key, value)| {
            let is_kept = matches!(key.as_str(), "kind" | "apiVersion" | "metadata");
            (key.clone(), if is_kept { value.clone() } else { 7.into() })
        })
        .collect();
    // An object without other fields gets a wrong type in its metadata.
    if corrupted.keys().all(|key| matches!(key.as_str(), "kind" | "apiVersion" | "metadata"))
        && let Some(metadata) = corrupted.get_mut("metadata")
    {
        metadata["labels"] = 7.into();
    }
    Value::Object(corrupted)
}
