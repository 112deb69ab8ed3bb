//! Where changes come from: a handler of an informer for each rule and each part of a cluster that it looks at.
//!
//! Where the informer has a checkpoint it is a durable one, which is told a change until all that it caused is settled, in this
//! life of the program or a later one. Else it is an ordinary one, and what is not settled when the program dies is lost.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::core::DynamicObject;
use steadfast::{
    AsyncHandler, Call, DurableRegistration, Event, HandlerError, Informer, Lazy, Object, Registration, Told,
};
use tokio::sync::oneshot;

use crate::change::{Change, State};
use crate::config::EventKind;
use crate::engine::Engine;
use crate::short_hash::short_hash;
use crate::source::{Lookout, Source, subject, whole};

/// How many changes of a rule may wait for it to be asked; of what comes then, the newest state of each object does.
const WAITING: usize = 1024;

/// Of how many objects a rule may have something to be settled at a time: as many as may wait for a sink, so that those that a
/// sink does not take keep nobody else's place.
const UNSETTLED: usize = 10_000;

/// What is told is settled when it is delivered or given up, however long that takes; a message may be kept for as long.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The longest name that a durable handler may have, in bytes.
const LONGEST_NAME: usize = 63;

/// A rule that looks; it looks no more once this is dropped.
pub struct Following {
    registered: Registered,
}

enum Registered {
    Passing(Registration<Lazy<DynamicObject>>),
    Durable(DurableRegistration<DynamicObject>),
}

impl Following {
    /// Begins to hand what `source` tells to `engine`; with a checkpoint, from where an earlier life of the program was. Several
    /// that look at the same thing share one watch.
    ///
    /// # Errors
    ///
    /// Where there is no such informer, in its words.
    pub fn begin(lookout: &Lookout, source: Source, engine: &Engine) -> Result<Self, String> {
        let informer = source.informer(lookout, None)?;
        let is_kept = lookout.checkpoint.is_some() && source.may_be_kept();
        let hand_over = HandOver { resource: source.resource_name(), source, engine: engine.clone() };
        let registered = if is_kept { hand_over.durably(&informer) } else { hand_over.in_passing(&informer) };
        Ok(Self { registered: registered.map_err(|error| error.to_string())? })
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        match &self.registered {
            Registered::Passing(registration) => drop(registration.remove()),
            Registered::Durable(registration) => registration.remove(),
        }
    }
}

/// Forgets what is kept for rules that `is_rule` does not know any more: one of the same name would be a new one.
pub fn forget_others(informer: &Informer<Lazy<DynamicObject>>, rules: &[&str]) {
    let names: Vec<String> = rules.iter().map(|rule| durable_name(rule)).collect();
    for (name, counts) in informer.durables() {
        if !counts.is_here && !names.iter().any(|known| **known == *name) {
            informer.drop_durable(&name);
        }
    }
}

/// Under which name the checkpoint has what a rule is owed.
fn durable_name(rule: &str) -> String {
    if rule.len() <= LONGEST_NAME {
        return rule.to_owned();
    }
    // Half of the hash is enough to tell any two apart.
    short_hash(rule, 16)
}

struct HandOver {
    source: Source,
    resource: String,
    engine: Engine,
}

impl HandOver {
    fn in_passing(self, informer: &Informer<Lazy<DynamicObject>>) -> Result<Registered, HandlerError> {
        informer.handler().deliver_each(WAITING).add_async_handler(self).map(Registered::Passing)
    }

    fn durably(self, informer: &Informer<Lazy<DynamicObject>>) -> Result<Registered, HandlerError> {
        let (name, hand_over) = (durable_name(&self.source.rule), Arc::new(self));
        let durable = informer.durable(&name).concurrency(UNSETTLED).deadline(FOREVER);
        let registered = durable.on_event(move |told: Told<Lazy<DynamicObject>>| {
            let hand_over = hand_over.clone();
            async move {
                let Some(change) = hand_over.change(&told.event, told.failures > 0) else { return Ok(()) };
                let (settled, settlement) = oneshot::channel();
                hand_over
                    .engine
                    .accept(&hand_over.source.rule, change, move || {
                        // Nobody waits for it where the program ends.
                        let _ = settled.send(());
                    })
                    .await;
                settlement.await.map_err(|_| "what it was to send was dropped before it was delivered")
            }
        });
        registered.map(Registered::Durable)
    }

    /// The change that an event is, if it is one; `again` says that it was handed over before, and not settled.
    fn change(&self, event: &Event<Lazy<DynamicObject>>, again: bool) -> Option<Arc<Change>> {
        match event.decoded() {
            Ok(event) => change(&self.source, &self.resource, &event, Timestamp::now(), again).map(Arc::new),
            Err(error) => {
                let (resource, key, cluster) = (&self.resource, event.object().key(), &self.source.cluster);
                self.engine.overlook(&self.source.rule, format!("{resource} {key} of {cluster}"), error.to_string());
                None
            }
        }
    }
}

impl AsyncHandler<Lazy<DynamicObject>> for HandOver {
    async fn handle(&self, event: Event<Lazy<DynamicObject>>, _: Call) {
        let Some(change) = self.change(&event, false) else { return };
        self.engine.accept(&self.source.rule, change, || {}).await;
    }
}

/// The change that an event is; none where nothing changed.
///
/// Its id is made of what the server says alone, so that it is the same for whoever is told the same.
fn change(source: &Source, resource: &str, event: &Event<DynamicObject>, at: Timestamp, again: bool) -> Option<Change> {
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
        again,
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
