//! Where changes come from: an ordinary handler of an informer for each rule and each part of a cluster that it looks at.
//!
//! A handler that keeps what it has told across restarts takes this one's place without anything else being touched: it
//! hands over the same changes, with the same ids, and is told when each is settled.

use std::sync::Arc;

use jiff::Timestamp;
use kube::core::{ApiResource, DynamicObject};
use serde_json::Value;
use steadfast::{AsyncHandler, Call, Event, Freshness, Informer, InformerFactory, Object, Registration, Scope};

use crate::change::{Change, State, Subject};
use crate::config::EventKind;
use crate::engine::Engine;

/// How many changes of a rule may wait for it to be asked; of what comes then, the newest state of each object does.
const WAITING: usize = 1024;

/// What a rule looks at in one place.
#[derive(Clone, Debug)]
pub struct Source {
    /// The rule, by name.
    pub rule: String,
    /// The cluster, as the configuration calls it.
    pub cluster: String,
    /// The resource, as the server describes it.
    pub resource: ApiResource,
    /// Which of its objects.
    pub scope: Scope,
}

impl Source {
    /// What the resource is called, with its group.
    pub fn resource_name(&self) -> String {
        let ApiResource { plural, group, .. } = &self.resource;
        if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") }
    }
}

/// A rule that looks; it looks no more once this is dropped.
pub struct Following {
    informer: Informer<DynamicObject>,
    registration: Registration<DynamicObject>,
}

impl Following {
    /// Begins to hand what `source` tells to `engine`. Several that look at the same thing share one watch.
    ///
    /// # Errors
    ///
    /// Where there is no such informer, in its words.
    pub fn begin(factory: &InformerFactory, source: Source, engine: &Engine) -> Result<Self, String> {
        let informer = factory
            .informer_with::<DynamicObject>(&source.resource, source.scope.clone())
            .map_err(|error| error.to_string())?;
        let hand_over = HandOver { resource: source.resource_name(), source, engine: engine.clone() };
        let registration =
            informer.handler().deliver_each(WAITING).add_async_handler(hand_over).map_err(|error| error.to_string())?;
        Ok(Self { informer, registration })
    }

    /// Waits until the rule was asked about all that was there at the beginning.
    pub async fn until_synced(&self) -> bool {
        self.registration.until_synced().await
    }

    /// How true what it looks at is now.
    pub fn freshness(&self) -> Freshness {
        self.informer.freshness()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.registration.remove();
    }
}

struct HandOver {
    source: Source,
    resource: String,
    engine: Engine,
}

impl AsyncHandler<DynamicObject> for HandOver {
    async fn handle(&self, event: Event<DynamicObject>, _: Call) {
        let Some(change) = change(&self.source, &self.resource, &event, Timestamp::now()) else { return };
        self.engine.accept(&self.source.rule, Arc::new(change), || {}).await;
    }
}

/// The change that an event is; none where nothing changed.
///
/// Its id is made of what the server says alone, so that it is the same for whoever is told the same.
fn change(source: &Source, resource: &str, event: &Event<DynamicObject>, at: Timestamp) -> Option<Change> {
    let state = |object: &Object<DynamicObject>| Some(State::new(whole(object, &source.resource)));
    let object = event.object();
    let subject = subject(source, resource, object);
    // What has no UID is known by its name.
    let who = if subject.uid.is_empty() {
        format!("{}/{}/{}", subject.resource, subject.namespace, subject.name)
    } else {
        subject.uid.clone()
    };
    let mut change = Change {
        id: format!("{who}@{}", object.version()),
        kind: EventKind::Added,
        initial: false,
        subject,
        old: None,
        new: None,
        certainty: None,
        reason: None,
        at,
    };
    match event {
        Event::Added { object, initial } => {
            (change.new, change.initial) = (state(object), *initial);
        }
        Event::Updated { old, new } => {
            (change.kind, change.old, change.new) = (EventKind::Updated, state(old), state(new));
        }
        Event::Deleted { last, certainty, reason, .. } => {
            (change.kind, change.old) = (EventKind::Deleted, state(last));
            change.id.push_str("-gone");
            (change.certainty, change.reason) = (Some(certainty.to_string()), Some(reason.to_string()));
        }
        Event::Resynced { .. } => return None,
    }
    Some(change)
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
