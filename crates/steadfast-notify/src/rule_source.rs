//! Source of a rule: a resource type in one scope of a cluster (one namespace or all), with its shared informer.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::core::{ApiResource, DynamicObject};
use serde_json::Value;
use steadfast::{Checkpoint, Diagnostic, Informer, InformerFactory, Lazy, Object, Scope};

use crate::engine_event::{EngineEvent, EventCallback};
use crate::event_subject::EventSubject;

/// Informers of a cluster with watch settings. Rules with the same resource and scope share an informer.
#[derive(Clone, Debug)]
pub struct ClusterInformers {
    /// Number of the connection. After a reload, another connection can have the same cluster name.
    pub connection_id: u64,
    /// Informers of the connection.
    pub factory: InformerFactory,
    /// Storage of caches across restarts.
    pub checkpoint: Option<Checkpoint>,
    /// Folder of watermark files. A watermark is the instant up to which messages caused by time or lookups are
    /// delivered or dead letters. Without a folder, such messages are lost while the program is down.
    pub watermark_folder: Option<PathBuf>,
    /// Interval between audits of the caches.
    pub audit_interval: Duration,
    /// Maximum size of one cache in bytes. `None` for no limit.
    pub memory_limit: Option<usize>,
    /// Wall clock for `now` in expressions: [`Timestamp::now`], except in tests.
    pub clock: fn() -> Timestamp,
}

impl ClusterInformers {
    /// Starts or shares the informer of a resource in one scope. `report` is a name and a callback for events about the
    /// checkpoint.
    pub(crate) fn informer(
        &self,
        resource: &ApiResource,
        scope: Scope,
        report: Option<(String, Arc<EventCallback>)>,
    ) -> Result<Informer<Lazy<DynamicObject>>, String> {
        let informer =
            self.factory.builder_with::<Lazy<DynamicObject>>(resource, scope).audit_every(self.audit_interval);
        let informer = match self.checkpoint.as_ref().filter(|_| may_be_stored(resource)) {
            Some(checkpoint) => informer.checkpoint(checkpoint),
            None => informer,
        };
        let informer = match self.memory_limit {
            Some(bytes) => informer.memory_limit(bytes),
            None => informer,
        };
        let informer = match report {
            Some((source, report)) => informer.on_diagnostic(move |diagnostic| {
                if let Some(event) = to_event(&source, diagnostic) {
                    report(event);
                }
            }),
            None => informer,
        };
        informer.start().map_err(|error| error.to_string())
    }
}

fn may_be_stored(resource: &ApiResource) -> bool {
    !(resource.group.is_empty() && resource.plural == "secrets")
}

/// A looked-up resource of a rule, with the scope.
#[derive(Clone, Debug, PartialEq)]
pub struct LookupResource {
    /// Name of the resource in the expression.
    pub name: String,
    /// Resource as described by the server.
    pub resource: ApiResource,
    /// True for a namespaced resource.
    pub is_namespaced: bool,
    /// The only namespace for lookups. `None` for all namespaces.
    pub namespace: Option<String>,
}

impl LookupResource {
    /// Returns the watched scope of the resource.
    pub fn scope(&self) -> Scope {
        self.namespace.as_ref().map_or_else(Scope::all, Scope::namespace)
    }
}

/// Resource and scope of a rule in one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleSource {
    /// Name of the rule.
    pub rule: String,
    /// Name of the cluster in the configuration.
    pub cluster: String,
    /// Resource as described by the server.
    pub resource: ApiResource,
    /// Scope of the watch.
    pub scope: Scope,
    /// Looked-up resources of the rule's expressions.
    pub lookups: Vec<LookupResource>,
}

impl RuleSource {
    /// Returns the name of the resource with the group.
    pub fn resource_name(&self) -> String {
        let ApiResource { plural, group, .. } = &self.resource;
        if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") }
    }

    /// Returns a predicate for the objects of this source. A rule can have sources in several clusters and namespaces.
    pub(crate) fn subject_filter(&self) -> impl Fn(&EventSubject) -> bool {
        let resource = self.resource_name();
        move |subject| {
            let is_in_scope = |only: &str| subject.namespace.is_empty() || subject.namespace == only;
            subject.cluster == self.cluster
                && subject.resource == resource
                && self.scope.in_namespace().is_none_or(is_in_scope)
        }
    }

    /// Returns true if objects may be written to disk. False for Secrets.
    pub fn may_be_stored(&self) -> bool {
        may_be_stored(&self.resource)
    }

    /// Starts or shares the informer of the source. `report` receives reports on checkpoint errors.
    ///
    /// # Errors
    ///
    /// Returns the informer's error text if the informer cannot be started.
    pub fn informer(
        &self,
        cluster_informers: &ClusterInformers,
        report: Option<Arc<EventCallback>>,
    ) -> Result<Informer<Lazy<DynamicObject>>, String> {
        let report = report.map(|report| (format!("{} of {}", self.resource_name(), self.cluster), report));
        cluster_informers.informer(&self.resource, self.scope.clone(), report)
    }
}

/// Converts a diagnostic into an event for the operator.
fn to_event(source: &str, diagnostic: &Diagnostic) -> Option<EngineEvent> {
    let source = source.to_owned();
    match diagnostic {
        Diagnostic::NotRestored { reason } => {
            Some(EngineEvent::CheckpointDiscarded { source, reason: reason.to_string() })
        }
        Diagnostic::CheckpointNotWritten { .. } | Diagnostic::DeliveredUnrecorded { .. } => {
            Some(EngineEvent::CheckpointNotWritten { source, reason: diagnostic.to_string() })
        }
        _ => None,
    }
}

/// Returns the reason why the cache may differ from the server, with the freshness.
pub(crate) fn doubt(informer: &Informer<Lazy<DynamicObject>>) -> Option<String> {
    let freshness = informer.freshness();
    let reason = freshness.doubt().map(|doubt| doubt.reason.clone());
    let reason = reason.or_else(|| (!informer.has_synced()).then(|| "the resource has not been listed yet".into()))?;
    Some(format!("{}: {reason}", freshness.name()))
}

/// Returns the identity of an object.
pub(crate) fn subject(source: &RuleSource, resource: &str, object: &Object<DynamicObject>) -> EventSubject {
    EventSubject {
        cluster: source.cluster.clone(),
        resource: resource.to_owned(),
        namespace: object.key().namespace().unwrap_or_default().to_owned(),
        name: object.key().name().to_owned(),
        uid: object.identity().uid.to_string(),
    }
}

/// Returns the object as JSON. List items lack API version and kind, so both are added.
pub(crate) fn json_with_type(object: &DynamicObject, resource: &ApiResource) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.insert("apiVersion".to_owned(), resource.api_version.clone().into());
        fields.insert("kind".to_owned(), resource.kind.clone().into());
    }
    value
}
