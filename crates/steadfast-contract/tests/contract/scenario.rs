//! A history and a trace, built step by step; each step takes ten milliseconds.

use std::time::Duration;

use serde_json::{Value, json};
use steadfast_contract::{
    Bounds, Certainty, Change, Clause, Freshness, HandlerEvent, History, Key, ObjectVersionRef, Reason, Record, Report,
    Scope, StoreContent, Trace, WaitOutcome, WaitTarget,
};

pub(crate) const STEP: Duration = Duration::from_millis(10);

/// A scenario about the informer `pods` and its handler `h`.
pub(crate) struct Scenario {
    pub(crate) history: History,
    pub(crate) trace: Trace,
    pub(crate) bounds: Bounds,
    now: Duration,
    calls: u64,
}

impl Scenario {
    pub(crate) fn new(scope: Scope) -> Self {
        let mut scenario = Self::before_registration(scope);
        scenario.record(Record::registered("h", "pods"));
        scenario
    }

    pub(crate) fn before_registration(scope: Scope) -> Self {
        let bounds = Bounds {
            period: Duration::from_secs(1),
            slack: Duration::ZERO,
            lag: Duration::ZERO,
            convergence: Duration::from_secs(1),
            audit: None,
        };
        let (history, trace) = (History::new(), Trace::new());
        let mut scenario = Self { history, trace, bounds, now: Duration::ZERO, calls: 0 };
        scenario.record(Record::informer("pods", scope));
        scenario
    }

    /// Creates a scenario without a selector in which `a` (u1, v5) was created and delivered.
    pub(crate) fn with_object_a() -> Self {
        let mut scenario = Self::new(Scope::all());
        scenario.set(5, "a", "u1").deliver(added("a", "u1", 5));
        scenario
    }

    pub(crate) fn wait(&mut self, time: Duration) -> &mut Self {
        self.now += time;
        self
    }

    /// The server writes `name`.
    pub(crate) fn set(&mut self, version: u64, name: &str, uid: &str) -> &mut Self {
        self.write(version, name, uid, json!({ "written": version }))
    }

    /// The server writes `name`, labelled `app=<app>`.
    pub(crate) fn set_app(&mut self, version: u64, name: &str, uid: &str, app: &str) -> &mut Self {
        self.write(version, name, uid, json!({ "metadata": { "labels": { "app": app } } }))
    }

    pub(crate) fn write(&mut self, version: u64, name: &str, uid: &str, object: Value) -> &mut Self {
        let change = Change::new(version, uid, Some("default"), name, object);
        self.push(change)
    }

    /// The server deletes `name`.
    pub(crate) fn delete(&mut self, version: u64, name: &str, uid: &str) -> &mut Self {
        self.push(Change::deleted(version, uid, Some("default"), name))
    }

    fn push(&mut self, change: Change) -> &mut Self {
        self.now += STEP;
        self.history.push(change.in_epoch(self.history.epoch()).at(self.now));
        self
    }

    /// The server is restored to its state at version `to`.
    pub(crate) fn restore(&mut self, to: u64) -> &mut Self {
        self.now += STEP;
        self.history.restore(self.now, to);
        self
    }

    pub(crate) fn record(&mut self, record: Record) -> &mut Self {
        self.now += STEP;
        self.trace.record(self.now, record);
        self
    }

    /// Adds another record at the same instant. In virtual time many events share an instant.
    pub(crate) fn record_at_same_instant(&mut self, record: Record) -> &mut Self {
        self.trace.record(self.now, record);
        self
    }

    /// Delivers an event; the handler returns.
    pub(crate) fn deliver(&mut self, event: HandlerEvent) -> &mut Self {
        self.deliver_with_store(event, StoreContent::NotRead)
    }

    /// Delivers an event while the cache holds `store`; the handler returns.
    pub(crate) fn deliver_with_store(&mut self, event: HandlerEvent, store: StoreContent) -> &mut Self {
        let call = self.enter("h", event, 0, store);
        self.record(Record::returned("h", call))
    }

    /// Delivers an event; the handler panics.
    pub(crate) fn deliver_and_panic(&mut self, event: HandlerEvent, retry: u32) -> &mut Self {
        let call = self.enter("h", event, retry, StoreContent::NotRead);
        self.record(Record::Panicked { handler: "h".into(), call })
    }

    /// Delivers an event again after a panic; the handler returns.
    pub(crate) fn redeliver(&mut self, event: HandlerEvent, retry: u32) -> &mut Self {
        let call = self.enter("h", event, retry, StoreContent::NotRead);
        self.record(Record::returned("h", call))
    }

    /// Starts a handler call. Returns its number, with which the test ends the call.
    pub(crate) fn enter(&mut self, handler: &str, event: HandlerEvent, retry: u32, store: StoreContent) -> u64 {
        self.calls += 1;
        let call = self.calls;
        self.record(Record::Entered { handler: handler.into(), call, event, retry, store });
        call
    }

    pub(crate) fn record_sync(&mut self) -> &mut Self {
        self.record(Record::InformerSynced { informer: "pods".into() })
    }

    pub(crate) fn record_registration_sync(&mut self) -> &mut Self {
        self.record(Record::RegistrationSynced { handler: "h".into() })
    }

    pub(crate) fn record_relist(&mut self, from: Option<u64>, to: u64) -> &mut Self {
        let from = from.map(|from| from.to_string());
        self.record(Record::Relisted { informer: "pods".into(), from, to: Some(to.to_string()) })
    }

    pub(crate) fn epoch(&mut self) -> &mut Self {
        self.record(Record::Epoch { informer: "pods".into() })
    }

    pub(crate) fn report_fresh(&mut self, version: u64, age: Duration) -> &mut Self {
        self.report_freshness(Freshness::Fresh { version: version.to_string(), age })
    }

    pub(crate) fn report_freshness(&mut self, state: Freshness) -> &mut Self {
        self.record(Record::Freshness { informer: "pods".into(), state, tainted: Vec::new() })
    }

    pub(crate) fn read(&mut self, name: &str, content: StoreContent) -> &mut Self {
        self.record(Record::Read { informer: "pods".into(), key: key(name), content })
    }

    pub(crate) fn record_snapshot(&mut self, objects: &[(&str, &str, u64)]) -> &mut Self {
        let objects = objects.iter().map(|(name, uid, version)| object(name, uid, *version)).collect();
        self.record(Record::Snapshot { informer: "pods".into(), objects, tainted: Vec::new() })
    }

    pub(crate) fn record_wait(&mut self, target: WaitTarget, store_version: Option<u64>) -> &mut Self {
        let store_version = store_version.map(|version| version.to_string());
        self.record(Record::WaitedFor { informer: "pods".into(), target, outcome: WaitOutcome::Ok, store_version })
    }

    pub(crate) fn settle(&mut self) -> &mut Self {
        self.record(Record::Quiet).record(Record::Settled)
    }

    pub(crate) fn report(&self) -> Report {
        self.bounds.report(&self.history, &self.trace)
    }

    pub(crate) fn assert_passes(&self) {
        let report = self.report();
        assert!(report.has_no_violation(), "{report:#?}");
    }

    /// Asserts that the trace violates exactly these clauses.
    pub(crate) fn assert_violates(&self, clauses: &[Clause]) {
        let report = self.report();
        assert_eq!(report.malformed, []);
        let mut violated: Vec<_> = report.violations.iter().map(|violation| violation.clause).collect();
        violated.sort();
        violated.dedup();
        assert_eq!(violated, clauses, "{:#?}", report.violations);
    }
}

pub(crate) fn key(name: &str) -> Key {
    Key::new(Some("default"), name)
}

pub(crate) fn object(name: &str, uid: &str, version: u64) -> ObjectVersionRef {
    ObjectVersionRef::new(Some("default"), name, uid, &version.to_string())
}

pub(crate) fn stored(uid: &str, version: u64) -> StoreContent {
    StoreContent::Present { uid: uid.into(), version: version.to_string() }
}

pub(crate) fn added(name: &str, uid: &str, version: u64) -> HandlerEvent {
    HandlerEvent::Added { object: object(name, uid, version), initial: false }
}

pub(crate) fn initially_added(name: &str, uid: &str, version: u64) -> HandlerEvent {
    HandlerEvent::Added { object: object(name, uid, version), initial: true }
}

pub(crate) fn updated(name: &str, uid: &str, old: u64, new: u64) -> HandlerEvent {
    HandlerEvent::Updated { old: object(name, uid, old), new: object(name, uid, new) }
}

pub(crate) fn resynced(name: &str, uid: &str, version: u64) -> HandlerEvent {
    HandlerEvent::Resynced { object: object(name, uid, version) }
}

/// Creates an observed deletion for a scope without a selector.
pub(crate) fn deleted(name: &str, uid: &str, last: u64, version: u64) -> HandlerEvent {
    let (version, certainty) = (Some(version.to_string()), Certainty::Observed);
    HandlerEvent::Deleted { last: object(name, uid, last), version, certainty, reason: Reason::Deleted }
}

/// Creates an inferred deletion for a scope without a selector.
pub(crate) fn inferred_deletion(name: &str, uid: &str, last: u64) -> HandlerEvent {
    let certainty = Certainty::Inferred;
    HandlerEvent::Deleted { last: object(name, uid, last), version: None, certainty, reason: Reason::Deleted }
}

/// Replaces the reason of a deletion.
pub(crate) fn with_reason(reason: Reason, event: HandlerEvent) -> HandlerEvent {
    match event {
        HandlerEvent::Deleted { last, version, certainty, .. } => {
            HandlerEvent::Deleted { last, version, certainty, reason }
        }
        other => panic!("{other} has no reason"),
    }
}
