//! Exact changes of the past: a watch from an old version, until the version of the cache.

use std::collections::HashMap;
use std::time::Duration;

use futures::{Stream, StreamExt};
use jiff::Timestamp;
use kube::api::{Api, ListParams, VersionMatch, WatchParams};
use kube::core::{DynamicObject, WatchEvent};
use serde_json::Value;
use steadfast::unstable::cause::root_cause;
use tokio::time::timeout;

use super::facts::last_write;
use crate::changes::phrases::text;
use crate::watch::watched::Subject;

/// Duration of the watch, if the end of the history is not recognized earlier. Servers send a bookmark before the end.
const WATCH_SECONDS: u32 = 5;

/// Maximum time without an event after all objects have reached the target. Then the replay ends.
const QUIET_TIME: Duration = Duration::from_millis(300);

/// Maximum number of replayed changes of a resource.
const MAX_CHANGES: usize = 10_000;

/// Maximum number of objects of a resource at the start of the replay.
pub(super) const MAX_OBJECTS: usize = 20_000;

/// Objects in a page of the list at the start.
const PAGE_SIZE: u32 = 500;

/// Maximum number of versions that are tried as start.
const MAX_STARTS: usize = 8;

/// Namespace and name of an object.
pub(super) type Name = (String, String);

/// An exact change of the past.
#[derive(Debug)]
pub(super) struct PastChange {
    /// Version of the change. Versions of different resources are comparable if the server has one storage.
    pub(super) version: u64,
    /// Time of the last write that the object records.
    pub(super) time: Option<Timestamp>,
    /// Name of the event: `Added`.
    pub(super) name: &'static str,
    /// `None` if the previous state has expired.
    pub(super) old: Option<Value>,
    pub(super) object: Value,
}

/// Reason why a replay from a version failed.
#[derive(Debug)]
pub(super) enum ReplayError {
    /// A later version may succeed.
    TooOld(String),
    /// Every version would fail.
    Failed(String),
}

impl From<kube::Error> for ReplayError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 410 => Self::TooOld("has expired".to_owned()),
            other => Self::Failed(root_cause(&other)),
        }
    }
}

/// State of the cache at the end of the replay.
#[derive(Debug)]
pub(super) struct ReplayTarget {
    pub(super) version: u64,
    pub(super) objects: HashMap<Name, String>,
}

/// Returns the versions to start from, in the order of the attempts: the newest version from before `since`, and then
/// versions of the time since.
///
/// `dated` are times and versions that objects carry. Kubernetes cannot look up the version of a given time, so no
/// other versions are known.
pub(super) fn start_versions(dated: &[(Timestamp, u64)], since: Timestamp, newest: u64) -> Vec<u64> {
    let known = || dated.iter().filter(|(_, version)| *version < newest);
    let before = known().filter(|(time, _)| *time < since).map(|(_, version)| *version).max();
    let mut starts: Vec<u64> = known().filter(|(time, _)| *time >= since).map(|(_, version)| *version).collect();
    starts.retain(|version| before.is_none_or(|before| *version > before));
    starts.extend(before);
    starts.sort_unstable();
    starts.dedup();
    let count = starts.len();
    if count <= MAX_STARTS {
        return starts;
    }
    // The first and the last one are kept.
    (0..MAX_STARTS).map(|number| starts[number * (count - 1) / (MAX_STARTS - 1)]).collect()
}

/// Replays the changes of `subject` after the version `start` until `target`.
pub(super) async fn replay(
    api: &Api<DynamicObject>,
    subject: &Subject,
    start: u64,
    target: &ReplayTarget,
) -> Result<Vec<PastChange>, ReplayError> {
    let parameters = WatchParams {
        label_selector: subject.scope.label_selector().map(str::to_owned),
        field_selector: subject.scope.field_selector().map(str::to_owned),
        timeout: Some(WATCH_SECONDS),
        ..WatchParams::default()
    };
    // The watch is opened first: its failure is known before the list of a large resource.
    let stream = api.watch(&parameters, &start.to_string()).await?;
    let states = match states_at(api, subject, start).await {
        Ok(states) => Some(states),
        // The watch cache can reach further back than the storage. The previous states are then unknown.
        Err(ReplayError::TooOld(_)) => None,
        Err(error) => return Err(error),
    };
    let mut replayed = Replayed::new(subject, states, target);
    replayed.read(std::pin::pin!(stream)).await?;
    Ok(replayed.changes)
}

/// Lists the objects at exactly this version.
async fn states_at(
    api: &Api<DynamicObject>,
    subject: &Subject,
    version: u64,
) -> Result<HashMap<Name, Value>, ReplayError> {
    let version = version.to_string();
    let mut parameters = ListParams::default().at(&version).matching(VersionMatch::Exact).limit(PAGE_SIZE);
    parameters.label_selector = subject.scope.label_selector().map(str::to_owned);
    parameters.field_selector = subject.scope.field_selector().map(str::to_owned);
    let mut states = HashMap::new();
    loop {
        let page = api.list(&parameters).await?;
        for object in page.items {
            let object = subject.typed(value(object));
            states.insert(name(&object), object);
        }
        if states.len() > MAX_OBJECTS {
            return Err(ReplayError::Failed(format!("more than {MAX_OBJECTS} objects")));
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            // Later pages have the version of the token.
            Some(token) => {
                (parameters.resource_version, parameters.version_match) = (None, None);
                parameters.continue_token = Some(token);
            }
            None => return Ok(states),
        }
    }
}

/// The changes of a watch, and the states after them.
struct Replayed<'a> {
    subject: &'a Subject,
    target: &'a ReplayTarget,
    states: HashMap<Name, Value>,
    /// False if the states at the start have expired.
    is_complete: bool,
    /// Number of objects whose state differs from the target.
    different: usize,
    changes: Vec<PastChange>,
}

impl<'a> Replayed<'a> {
    fn new(subject: &'a Subject, states: Option<HashMap<Name, Value>>, target: &'a ReplayTarget) -> Self {
        let is_complete = states.is_some();
        let states = states.unwrap_or_default();
        let changed = target.objects.iter().filter(|(name, version)| {
            states.get(*name).is_none_or(|object| text(object, "metadata/resourceVersion") != version.as_str())
        });
        let removed = states.keys().filter(|name| !target.objects.contains_key(*name));
        let different = changed.count() + removed.count();
        Self { subject, target, states, is_complete, different, changes: Vec::new() }
    }

    /// Returns whether the state of this name differs from the target.
    fn differs(&self, name: &Name) -> bool {
        let version = self.states.get(name).map(|object| text(object, "metadata/resourceVersion"));
        version != self.target.objects.get(name).map(String::as_str)
    }

    /// Reads the changes until the target is reached.
    async fn read(
        &mut self,
        mut stream: std::pin::Pin<&mut (impl Stream<Item = kube::Result<WatchEvent<DynamicObject>>> + ?Sized)>,
    ) -> Result<(), ReplayError> {
        loop {
            // Without the states of the start, only the versions and the end of the watch show the end of the history.
            let is_reached = self.is_complete && self.different == 0;
            let item = match timeout(if is_reached { QUIET_TIME } else { Duration::MAX }, stream.next()).await {
                Ok(Some(item)) => item?,
                Ok(None) if is_reached || !self.is_complete => return Ok(()),
                Ok(None) => return Err(ReplayError::Failed("the watch ended early".to_owned())),
                Err(_) => return Ok(()),
            };
            let (name, object) = match item {
                WatchEvent::Added(object) => ("Added", object),
                WatchEvent::Modified(object) => ("Updated", object),
                WatchEvent::Deleted(object) => ("Deleted", object),
                WatchEvent::Bookmark(bookmark) => {
                    if bookmark
                        .metadata
                        .resource_version
                        .parse()
                        .is_ok_and(|version: u64| version >= self.target.version)
                    {
                        return Ok(());
                    }
                    continue;
                }
                WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
            };
            if !self.add(name, self.subject.typed(value(object))) {
                return Ok(());
            }
            if self.changes.len() > MAX_CHANGES {
                return Err(ReplayError::TooOld(format!("is followed by more than {MAX_CHANGES} changes")));
            }
        }
    }

    /// Adds a change; returns false for a change after the target.
    fn add(&mut self, event: &'static str, object: Value) -> bool {
        let version = text(&object, "metadata/resourceVersion").parse().unwrap_or(u64::MAX);
        if version > self.target.version {
            return false;
        }
        let name = name(&object);
        let differed = self.differs(&name);
        let old = if event == "Deleted" {
            self.states.remove(&name);
            None
        } else {
            self.states.insert(name.clone(), object.clone())
        };
        self.different += usize::from(self.differs(&name));
        self.different -= usize::from(differed).min(self.different);
        let time = last_write(&object);
        self.changes.push(PastChange { version, time, name: event, old, object });
        true
    }
}

fn value(object: DynamicObject) -> Value {
    // Cannot fail: the object was parsed from JSON.
    serde_json::to_value(object).unwrap_or_default()
}

fn name(object: &Value) -> Name {
    (text(object, "metadata/namespace").to_owned(), text(object, "metadata/name").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_known_versions_come_first() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let dated = [(at(10), 7), (at(20), 9), (at(120), 14), (at(110), 12), (at(200), 30), (at(100), 12)];
        assert_eq!(start_versions(&dated, at(100), 30), [9, 12, 14]);
        assert_eq!(start_versions(&dated, at(0), 10), [7, 9]);
        assert_eq!(start_versions(&dated, at(500), 40), [30]);
        assert!(start_versions(&[], at(0), 40).is_empty());
        let many: Vec<(Timestamp, u64)> = (0..100_u32).map(|number| (at(number.into()), number.into())).collect();
        let starts = start_versions(&many, at(50), 200);
        assert_eq!((starts.len(), starts[0], starts[MAX_STARTS - 1]), (MAX_STARTS, 49, 99));
        assert!(starts.is_sorted());
    }
}
