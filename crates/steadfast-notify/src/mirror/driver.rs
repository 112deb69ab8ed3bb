//! A target of one kind behind a door that is the same for all: entries as rules send them, and how things are.

use std::collections::{BTreeMap, btree_map};
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use steadfast_outside::{
    Ask, Kept, Loss, Memory, Mirror, ObjectId, Rehearsal, Rival, Settings, State, Status, Target, Value, Wanted,
    preview,
};
use tokio::sync::watch;

use super::claim::Claim;
use super::collect::Gathered;
use super::entry::Entry;

/// Why a mirror cannot be opened: which part of its sink is wrong, how, and what to do.
pub(crate) struct Refused {
    pub(crate) path: String,
    pub(crate) what: String,
    pub(crate) remedy: &'static str,
    /// Whether the cause is outside of the configuration: a file that cannot be read, a variable that is not set. Such a cause
    /// may go away, so opening is retried.
    pub(crate) is_environment: bool,
}

impl Refused {
    pub(crate) fn at(path: impl Into<String>, what: impl Display, remedy: &'static str) -> Self {
        Self { path: path.into(), what: what.to_string(), remedy, is_environment: false }
    }

    /// The same with a cause outside of the configuration.
    pub(crate) fn of_environment(self) -> Self {
        Self { is_environment: true, ..self }
    }
}

/// What a mirror would do now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How many steps it would take.
    pub steps: usize,
    /// Those, in the words of the target's own tool.
    pub words: Vec<String>,
    /// What would not be as it is wanted, and why.
    pub kept: BTreeMap<String, String>,
    /// Removals that would need approval.
    pub asks: Vec<Ask>,
    /// Why nothing would be taken out, where what is wanted is in doubt.
    pub doubt: Option<String>,
}

/// Status of a mirror when it last looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorStanding {
    /// How the mirror is.
    pub state: State,
    /// Number of entries of the mirror in its target.
    pub entries: usize,
    /// Whether all is as it is wanted, except for entries that are left unchanged.
    pub is_settled: bool,
    /// Number of entries that are not as they are wanted and are left unchanged, and of objects whose entries are not known.
    pub kept: usize,
    /// The first of these entries, and of the objects whose entries are not known, each with the reason: at most [`MAX_LISTED`] of each.
    pub left_alone: BTreeMap<String, String>,
    /// Number of entries whose removal needs approval.
    pub asks: usize,
    /// Removals that need approval, by group.
    pub pending: Vec<Ask>,
    /// Reason why the target cannot be seen or changed, if it cannot.
    pub failing: Option<Arc<str>>,
    /// Time since the target was last seen. `None` before the first time.
    pub seen: Option<Duration>,
    /// How often the mirror was started again after a panic.
    pub restarts: u64,
}

impl MirrorStanding {
    /// Status of a mirror that is not open, and why.
    pub(super) fn blocked(why: Arc<str>) -> Self {
        Self {
            state: State::Blocked(why.clone()),
            entries: 0,
            is_settled: false,
            kept: 0,
            left_alone: BTreeMap::new(),
            asks: 0,
            pending: Vec::new(),
            failing: Some(why),
            seen: None,
            restarts: 0,
        }
    }
}

/// Number of entries that a status lists by name.
pub const MAX_LISTED: usize = 100;

pub(super) type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Who is told what would be done, where a mirror is only played.
pub(super) type Say = Box<dyn Fn(Vec<String>) + Send + Sync>;

/// A target that was opened.
pub(crate) trait AnyDriver: Send + Sync {
    /// Begins to keep it as it is wanted; only plays that where there is somebody to `say` it to.
    fn start(self: Box<Self>, name: &str, settings: Settings, memory: Memory, say: Option<Say>) -> Arc<dyn AnyMirror>;

    /// What would be done now.
    fn preview<'a>(
        &'a self,
        name: &'a str,
        settings: &'a Settings,
        memory: &'a Memory,
        gathered: &'a Gathered,
    ) -> Later<'a, Result<Seen, Arc<str>>>;
}

/// A mirror at work.
pub(crate) trait AnyMirror: Send + Sync {
    /// Sets what is wanted from now on. Returns the entries that cannot be there, with the reason, by the object that gave them.
    fn want(&self, gathered: &Gathered) -> BTreeMap<ObjectId, Arc<str>>;

    /// Has it look now.
    fn nudge(&self);

    /// Returns what needs somebody's attention.
    fn troubles(&self) -> Troubles;

    /// How it stands.
    fn standing(&self) -> MirrorStanding;

    /// Returns why its task has ended, if it has although it was not stopped. A panic counts, whether or not the task runs again.
    fn ended(&self) -> Option<String>;

    /// Ends it, when what is being done is done.
    fn stop(&self) -> Later<'_, ()>;
}

/// What of a mirror needs somebody's attention.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Troubles {
    pub(crate) asks: Vec<Ask>,
    pub(crate) failing: Option<Arc<str>>,
    /// Names for which one group gave several different entries.
    pub(crate) contested: Vec<String>,
    /// Entries that are left out or unchanged because of what they are, with the reason.
    pub(crate) rejected: BTreeMap<String, String>,
    /// The last loss of entries at the target.
    pub(crate) loss: Option<Loss>,
}

/// A target, and the conversion of an entry to what lies there.
pub(super) struct Driver<T: Target> {
    pub(super) target: T,
    pub(super) values: Values<T::Value>,
}

/// Converts one entry to a name and a value at the target; `None` for an entry that must not be there now.
///
/// An error concerns this entry alone.
pub(super) type Values<V> = Box<dyn Fn(&Entry) -> Result<Option<(String, V)>, String> + Send + Sync>;

/// The conversion for targets that hold every entry, in service or not.
pub(super) fn one_by_one<V: Value>(
    value: impl Fn(&Entry) -> Result<(String, V), String> + Send + Sync + 'static,
) -> Values<V> {
    Box::new(move |entry| value(entry).map(Some))
}

/// The conversion for targets that hold only entries that are ready.
pub(super) fn ready<V: Value>(
    value: impl Fn(&Entry) -> Result<(String, V), String> + Send + Sync + 'static,
) -> Values<V> {
    Box::new(move |entry| if entry.is_ready { value(entry).map(Some) } else { Ok(None) })
}

impl<T: Target> AnyDriver for Driver<T> {
    fn start(self: Box<Self>, name: &str, settings: Settings, memory: Memory, say: Option<Say>) -> Arc<dyn AnyMirror> {
        let Self { target, values } = *self;
        let mirror = match say {
            None => Mirror::start(name, target, settings, memory),
            Some(say) => Mirror::start(name, Rehearsal::new(target, say), settings, memory),
        };
        let status = mirror.status();
        Arc::new(Running { mirror: Mutex::new(Some(mirror)), status, values, unknown: Mutex::default() })
    }

    fn preview<'a>(
        &'a self,
        name: &'a str,
        settings: &'a Settings,
        memory: &'a Memory,
        gathered: &'a Gathered,
    ) -> Later<'a, Result<Seen, Arc<str>>> {
        let (wanted, invalid) = wanted(gathered, &self.values);
        Box::pin(async move {
            let seen = preview(name, &self.target, settings, memory, &wanted).await?;
            let doubts = wanted.doubts.clusters.values().chain(wanted.doubts.objects.values());
            let doubt = wanted.doubt.iter().chain(doubts).next().map(ToString::to_string);
            let mut kept = told(&seen.kept);
            kept.extend(invalid.into_iter().map(|(object, why)| (object.to_string(), why.to_string())));
            Ok(Seen { steps: seen.steps.len(), words: seen.words, kept, asks: seen.asks, doubt })
        })
    }
}

/// Converts what was gathered. Entries that cannot be there are returned by their objects, whose other entries stay as they are.
fn wanted<V: Value>(gathered: &Gathered, values: &Values<V>) -> (Wanted<V>, BTreeMap<ObjectId, Arc<str>>) {
    let Gathered { claims, doubts, doubt, exists } = gathered;
    let mut wanted = Wanted { doubt: doubt.clone(), exists: exists.clone(), ..Wanted::default() };
    let mut invalid = BTreeMap::new();
    for Claim { entry, origin } in claims {
        match values(entry) {
            Ok(None) => {}
            Ok(Some((name, value))) => match wanted.entries.entry(name.clone()) {
                btree_map::Entry::Vacant(place) => {
                    place.insert(value);
                    wanted.origins.insert(name, origin.clone());
                }
                btree_map::Entry::Occupied(_) => {
                    wanted.rivals.push(Rival { name, value, origin: origin.clone() });
                }
            },
            Err(why) => {
                let why = format!("the entry {:?} cannot be there: {why}", entry.key);
                invalid.entry(origin.object.clone()).or_insert_with(|| Arc::from(why));
            }
        }
    }
    wanted.doubts = doubts.clone();
    wanted.doubts.objects.extend(invalid.clone());
    (wanted, invalid)
}

fn told(kept: &BTreeMap<String, Kept>) -> BTreeMap<String, String> {
    kept.iter().map(|(name, why)| (name.clone(), why.to_string())).collect()
}

/// Objects whose entries are not known: how many, and the first [`MAX_LISTED`] with the reason.
#[derive(Default)]
struct Unknown {
    count: usize,
    listed: BTreeMap<String, String>,
}

struct Running<V> {
    mirror: Mutex<Option<Mirror<V>>>,
    status: watch::Receiver<Status<V>>,
    values: Values<V>,
    unknown: Mutex<Unknown>,
}

impl<V: Value> AnyMirror for Running<V> {
    fn want(&self, gathered: &Gathered) -> BTreeMap<ObjectId, Arc<str>> {
        let (wanted, invalid) = wanted(gathered, &self.values);
        let objects = &wanted.doubts.objects;
        let listed = objects.iter().take(MAX_LISTED).map(|(object, why)| (object.to_string(), why.to_string()));
        *self.unknown.lock().unwrap_or_else(PoisonError::into_inner) =
            Unknown { count: objects.len(), listed: listed.collect() };
        if let Some(mirror) = &*self.mirror.lock().unwrap_or_else(PoisonError::into_inner) {
            mirror.want(wanted);
        }
        invalid
    }

    fn nudge(&self) {
        if let Some(mirror) = &*self.mirror.lock().unwrap_or_else(PoisonError::into_inner) {
            mirror.nudge();
        }
    }

    fn troubles(&self) -> Troubles {
        let status = self.status.borrow();
        let of_entry = |why: &Kept| {
            matches!(why, Kept::Conflict(_) | Kept::Invalid(_) | Kept::Others | Kept::OtherProcess | Kept::Refused(_))
        };
        let rejected = status.kept.iter().filter(|(_, why)| of_entry(why));
        Troubles {
            asks: status.asks.clone(),
            failing: status.failing.clone(),
            contested: status.contested.clone(),
            rejected: rejected.map(|(name, why)| (name.clone(), why.to_string())).collect(),
            loss: status.loss.clone(),
        }
    }

    fn standing(&self) -> MirrorStanding {
        let status = self.status.borrow();
        let unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        let left_alone = status.kept.iter().take(MAX_LISTED).map(|(name, why)| (name.clone(), why.to_string()));
        let left_alone = left_alone.chain(unknown.listed.clone());
        MirrorStanding {
            state: status.state(),
            entries: status.entries,
            is_settled: status.settled,
            kept: status.kept.len() + unknown.count,
            left_alone: left_alone.collect(),
            asks: status.asks.iter().map(|ask| ask.names.len()).sum(),
            pending: status.asks.clone(),
            failing: status.failing.clone(),
            seen: status.seen.map(|seen| seen.elapsed()),
            restarts: status.restarts,
        }
    }

    fn ended(&self) -> Option<String> {
        // The sender of the status is the task's own.
        let has_ended = self.status.has_changed().is_err();
        let status = self.status.borrow();
        let why = || status.failing.as_deref().unwrap_or("the task that compares the target has ended").to_owned();
        (has_ended || status.restarts > 0).then(why)
    }

    fn stop(&self) -> Later<'_, ()> {
        let mirror = self.mirror.lock().unwrap_or_else(PoisonError::into_inner).take();
        Box::pin(async move {
            if let Some(mirror) = mirror {
                mirror.stop().await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use steadfast_outside::Origin;
    use steadfast_outside::haproxy::Server;

    use super::*;
    use crate::mirror::entry::entries;
    use crate::shape::SERVER;

    fn origin(name: &str) -> Arc<Origin> {
        let object = ObjectId { cluster: "c".into(), name: name.into(), ..ObjectId::default() };
        Arc::new(Origin { group: "c/shop".into(), object, uid: String::new() })
    }

    #[test]
    fn invalid_entry_makes_only_its_object_uncertain() {
        let claims = [("good", json!(80)), ("bad", json!(0))].map(|(key, port)| {
            let value = json!({"key": key, "address": "10.0.0.1", "port": port});
            let read = entries(&value, SERVER, &serde_json::Value::Null, key).expect("an entry");
            Claim { entry: read[0].clone(), origin: origin(key) }
        });
        let values = one_by_one(|entry: &Entry| {
            Ok((entry.key.clone(), Server { address: entry.address()?, weight: entry.weight()? }))
        });
        let gathered = Gathered { claims: claims.into(), ..Gathered::default() };
        let (wanted, invalid) = wanted(&gathered, &values);
        assert_eq!(wanted.entries.keys().collect::<Vec<_>>(), ["good"]);
        assert_eq!(wanted.doubts.objects, invalid);
        let why = &invalid[&origin("bad").object];
        assert!(why.contains("\"bad\"") && why.contains("`port`"), "{why}");
    }
}
