//! The watched resource, and the form of its objects: encoded in the cache, decoded for one line at a time.

use jiff::Timestamp;
use kube::core::{ApiResource, DynamicObject};
use serde_json::Value;
use steadfast::{
    Call, Certainty, DeleteReason, Event, InformerBuilder, InformerFactory, Lazy, Object, ResourceVersion, Scope,
};

use super::owners::OwnerChain;
use crate::changes::columns::Column;
use crate::changes::kind::Kind;

/// Object in the cache. A hundred thousand decoded objects would take gigabytes.
pub(crate) type CachedObject = Lazy<DynamicObject>;

/// The watched resource and its name in the output lines.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    /// The resource with its group: `deployments.apps`.
    pub(super) name: String,
    pub(super) api_resource: ApiResource,
    pub(super) scope: Scope,
    /// Group and kind, for descriptions.
    pub(super) kind: Kind,
    /// Printer columns of a custom resource.
    pub(super) columns: Vec<Column>,
    /// Name of the cluster's context, if several contexts are watched.
    pub(super) context: Option<String>,
}

impl Subject {
    /// Creates the subject.
    pub(super) fn new(name: String, api_resource: ApiResource, scope: Scope) -> Self {
        let kind = Kind::new(&api_resource.group, &api_resource.kind);
        Self { name, api_resource, scope, kind, columns: Vec::new(), context: None }
    }

    /// Returns the context, if several are watched, and the resource: `east pods`.
    pub(super) fn title(&self) -> String {
        self.context.iter().chain([&self.name]).map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    /// Returns the title with the namespace, if the scope has one.
    pub(super) fn scoped_title(&self) -> String {
        match self.scope.in_namespace() {
            Some(namespace) => format!("{} in {namespace}", self.title()),
            None => self.title(),
        }
    }

    /// Decodes the objects of `event`, which `call` delivered.
    pub(super) fn event<'a>(&self, event: &'a Event<CachedObject>, call: Call) -> DecodedEvent<'a> {
        let old = match event {
            Event::Updated { old, .. } => Some(self.decode(old)),
            _ => None,
        };
        let deletion = match event {
            Event::Deleted { version, certainty, reason, .. } => {
                Some(Deletion { version: version.as_ref(), certainty: *certainty, reason: *reason })
            }
            _ => None,
        };
        DecodedEvent {
            name: event.name(),
            old,
            object: self.decode(event.object()),
            deletion,
            call,
            owners: OwnerChain::default(),
            time: EventTime::Now,
        }
    }

    /// Decodes `object`, with its type: items of a list lack the type, which would look like a change.
    pub(super) fn decode(&self, object: &Object<CachedObject>) -> Value {
        decode_object(&self.api_resource, object)
    }

    /// Returns the object with its type.
    pub(super) fn typed(&self, value: Value) -> Value {
        typed(&self.api_resource, value)
    }
}

/// Maximum number of events that are pending for a handler. Above this number, events of one object are merged.
pub(crate) const MAX_PENDING_EVENTS: usize = 1024;

/// Returns the builder of an informer whose cache keeps the objects encoded and compressed.
pub(crate) fn compressed_informer<'f>(
    factory: &'f InformerFactory,
    api_resource: &ApiResource,
    scope: Scope,
) -> InformerBuilder<'f, CachedObject> {
    factory.builder_with::<CachedObject>(api_resource, scope).protobuf(false).delta_compressed(true)
}

/// Decodes `object`, with the type of `api_resource`: items of a list lack the type.
pub(crate) fn decode_object(api_resource: &ApiResource, object: &Object<CachedObject>) -> Value {
    // The informer requests JSON. An object that is not JSON never reaches a handler.
    typed(api_resource, serde_json::from_slice(&object.bytes()).unwrap_or_default())
}

fn typed(api_resource: &ApiResource, mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.entry("apiVersion").or_insert_with(|| api_resource.api_version.clone().into());
        fields.entry("kind").or_insert_with(|| api_resource.kind.clone().into());
    }
    value
}

/// Details of a deletion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deletion<'a> {
    pub(super) version: Option<&'a ResourceVersion>,
    pub(super) certainty: Certainty,
    pub(super) reason: DeleteReason,
}

/// Event with decoded objects.
#[derive(Debug)]
pub(super) struct DecodedEvent<'a> {
    /// Name of the event: `Added`.
    pub(super) name: &'static str,
    /// Previous state of a changed object.
    pub(super) old: Option<Value>,
    /// Current state, or the last state of a deleted object.
    pub(super) object: Value,
    pub(super) deletion: Option<Deletion<'a>>,
    pub(super) call: Call,
    /// Known owners of the object.
    pub(super) owners: OwnerChain,
    pub(super) time: EventTime,
}

/// Time of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventTime {
    /// The event has just arrived.
    Now,
    /// The event is from before the start of the program. The time is that of the last write to the object, if known.
    Past(Option<Timestamp>),
}

impl DecodedEvent<'_> {
    /// Returns the time of the line.
    pub(super) fn line_time(&self) -> Timestamp {
        match self.time {
            EventTime::Past(Some(time)) => time,
            EventTime::Past(None) | EventTime::Now => Timestamp::now(),
        }
    }

    /// Returns a text of the object's metadata.
    pub(super) fn metadata(&self, field: &str) -> Option<&str> {
        self.object.get("metadata")?.get(field)?.as_str()
    }
}
