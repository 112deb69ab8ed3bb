//! What a rule looks at in one place, and the informer of it: rules that look at the same thing share one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::core::{ApiResource, DynamicObject};
use serde_json::Value;
use steadfast::{Checkpoint, Diagnostic, Informer, InformerFactory, Lazy, Object, Scope};

use crate::notice::{Notice, Tell};
use crate::subject::Subject;

/// How a cluster is looked at: rules that look at the same thing share one informer.
#[derive(Clone, Debug)]
pub struct Lookout {
    /// Number of the connection: another one may have the same names.
    pub connection: u64,
    /// The informers on it.
    pub factory: InformerFactory,
    /// Where their caches are kept beyond this life of the program.
    pub checkpoint: Option<Checkpoint>,
    /// Folder of the instants up to which messages are settled that time or lookups cause. Without one, those are missed that would
    /// have been sent while the program was down.
    pub rechecks: Option<PathBuf>,
    /// How often they are compared with what the server has.
    pub audit: Duration,
    /// Maximum size of one cache in bytes. No limit if absent.
    pub memory_limit: Option<usize>,
    /// Wall clock that gives `now` in expressions: [`Timestamp::now`], except in tests.
    pub clock: fn() -> Timestamp,
}

impl Lookout {
    /// The informer of a part of a resource. `tell` receives reports on its checkpoint, under this name.
    pub(crate) fn informer(
        &self,
        resource: &ApiResource,
        scope: Scope,
        tell: Option<(String, Arc<Tell>)>,
    ) -> Result<Informer<Lazy<DynamicObject>>, String> {
        let informer = self.factory.build_with::<Lazy<DynamicObject>>(resource, scope).audit_every(self.audit);
        let informer = match self.checkpoint.as_ref().filter(|_| may_be_kept(resource)) {
            Some(checkpoint) => informer.checkpoint(checkpoint),
            None => informer,
        };
        let informer = match self.memory_limit {
            Some(bytes) => informer.memory_limit(bytes),
            None => informer,
        };
        let informer = match tell {
            Some((of, tell)) => informer.on_diagnostic(move |note| {
                if let Some(notice) = notice(&of, note) {
                    tell(notice);
                }
            }),
            None => informer,
        };
        informer.start().map_err(|error| error.to_string())
    }
}

fn may_be_kept(resource: &ApiResource) -> bool {
    !(resource.group.is_empty() && resource.plural == "secrets")
}

/// A resource that a rule looks up, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct LookedUp {
    /// The name of the resource in the expression.
    pub name: String,
    /// The resource, as the server describes it.
    pub resource: ApiResource,
    /// Whether its objects have namespaces.
    pub is_namespaced: bool,
    /// The only namespace whose objects can be looked up. All namespaces if absent.
    pub namespace: Option<String>,
}

impl LookedUp {
    /// The part of the resource that is watched.
    pub fn scope(&self) -> Scope {
        self.namespace.as_ref().map_or_else(Scope::all, Scope::namespace)
    }
}

/// What a rule looks at in one place.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The rule, by name.
    pub rule: String,
    /// The cluster, as the configuration calls it.
    pub cluster: String,
    /// The resource, as the server describes it.
    pub resource: ApiResource,
    /// Which of its objects.
    pub scope: Scope,
    /// The resources that the rule's expressions look up.
    pub lookups: Vec<LookedUp>,
}

impl Source {
    /// What the resource is called, with its group.
    pub fn resource_name(&self) -> String {
        let ApiResource { plural, group, .. } = &self.resource;
        if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") }
    }

    /// Whether what it looks at may be written to disk: Secrets may not.
    pub fn may_be_kept(&self) -> bool {
        may_be_kept(&self.resource)
    }

    /// The informer of it, as `lookout` has its informers; `tell` is told what its checkpoint comes to, where that is less than could be.
    ///
    /// # Errors
    ///
    /// Where there is no such informer, in its words.
    pub fn informer(
        &self,
        lookout: &Lookout,
        tell: Option<Arc<Tell>>,
    ) -> Result<Informer<Lazy<DynamicObject>>, String> {
        let tell = tell.map(|tell| (format!("{} of {}", self.resource_name(), self.cluster), tell));
        lookout.informer(&self.resource, self.scope.clone(), tell)
    }
}

/// What whoever runs the program should know of a note.
fn notice(of: &str, note: &Diagnostic) -> Option<Notice> {
    let of = of.to_owned();
    match note {
        Diagnostic::NotRestored { why } => Some(Notice::Anew { of, why: why.to_string() }),
        Diagnostic::NotKept { .. } | Diagnostic::ToldUnwritten { .. } => {
            Some(Notice::CheckpointUnsupported { of, why: note.to_string() })
        }
        _ => None,
    }
}

/// Why the cache may differ from the server, if it may: its freshness, and the reason.
pub(crate) fn doubt(informer: &Informer<Lazy<DynamicObject>>) -> Option<String> {
    let freshness = informer.freshness();
    let why = freshness.doubt().map(|doubt| doubt.why.clone());
    let why = why.or_else(|| (!informer.has_synced()).then(|| "it was not listed yet".into()))?;
    Some(format!("{}: {why}", freshness.name()))
}

/// Which object it is.
pub(crate) fn subject(source: &Source, resource: &str, object: &Object<DynamicObject>) -> Subject {
    Subject {
        cluster: source.cluster.clone(),
        resource: resource.to_owned(),
        namespace: object.key().namespace().unwrap_or_default().to_owned(),
        name: object.key().name().to_owned(),
        uid: object.identity().uid.to_string(),
    }
}

/// The object as JSON; items of lists do not say what kind they are of.
pub(crate) fn whole(object: &DynamicObject, resource: &ApiResource) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.insert("apiVersion".to_owned(), resource.api_version.clone().into());
        fields.insert("kind".to_owned(), resource.kind.clone().into());
    }
    value
}
