//! A target of one kind behind a door that is the same for all: entries as rules send them, and how things are.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use steadfast_outside::{Ask, Kept, Memory, Mirror, Rehearsal, Settings, Status, Target, Value, Wanted, preview};
use tokio::sync::watch;

use super::entry::Entry;

/// Why a mirror cannot be opened: which part of its sink is wrong, how, and what to do.
pub(crate) struct Refused {
    pub(crate) path: String,
    pub(crate) what: String,
    pub(crate) remedy: &'static str,
}

impl Refused {
    pub(crate) fn at(path: impl Into<String>, what: impl Display, remedy: &'static str) -> Self {
        Self { path: path.into(), what: what.to_string(), remedy }
    }
}

/// All that is to be there, as rules send it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Gathered {
    pub(crate) entries: BTreeMap<String, Entry>,
    /// Why that may not be how things are.
    pub(crate) doubt: Option<Arc<str>>,
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
    /// What would have to be approved of.
    pub ask: Option<Ask>,
    /// Why nothing would be taken out, where what is wanted is in doubt.
    pub doubt: Option<String>,
}

/// How a mirror stands, when it was looked at last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorStanding {
    /// How many entries there are, of its own.
    pub entries: usize,
    /// Whether all was as it is wanted, but for what is kept.
    pub is_settled: bool,
    /// How many are not as they are wanted and stay so: what others own, what may not be taken out now.
    pub kept: usize,
    /// How many wait for an approval to be taken out.
    pub asks: usize,
    /// Why it could not be seen, or changed.
    pub failing: Option<Arc<str>>,
    /// How long ago it was seen; none where it never was.
    pub seen: Option<Duration>,
}

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
    /// From now on it is to be so; answers what of that cannot be, if anything cannot.
    fn want(&self, gathered: &Gathered) -> Option<String>;

    /// Has it look now.
    fn nudge(&self);

    /// What waits to be approved of, and why it could not be seen what there is, or not be changed.
    fn troubles(&self) -> (Option<Ask>, Option<Arc<str>>);

    /// How it stands.
    fn standing(&self) -> MirrorStanding;

    /// Ends it, when what is being done is done.
    fn stop(&self) -> Later<'_, ()>;
}

/// A target, and what is to lie there for entries.
pub(super) struct Driver<T: Target> {
    pub(super) target: T,
    pub(super) values: Values<T::Value>,
}

/// What is to lie there for entries, by name; and what cannot, if anything cannot.
pub(super) type Values<V> =
    Box<dyn Fn(&BTreeMap<String, Entry>) -> (BTreeMap<String, V>, Option<String>) + Send + Sync>;

/// What is to lie there where each entry is one of its own, under the name that comes with it. Of two under one name, as when the
/// address of a pod that has ended is another's by now, the one in traffic counts.
pub(super) fn one_by_one<V: Value>(
    value: impl Fn(&Entry) -> Result<(String, V), String> + Send + Sync + 'static,
) -> Values<V> {
    Box::new(move |entries| {
        let (mut values, mut wrong) = (BTreeMap::new(), None);
        for (key, entry) in entries {
            match value(entry) {
                Ok((name, value)) => {
                    let is_served = values.get(&name).is_some_and(|there: &V| there.serves() || !value.serves());
                    if !is_served {
                        values.insert(name, value);
                    }
                }
                Err(why) => wrong = wrong.or_else(|| Some(format!("the entry {key:?} cannot be there: {why}"))),
            }
        }
        (values, wrong)
    })
}

impl<T: Target> AnyDriver for Driver<T> {
    fn start(self: Box<Self>, name: &str, settings: Settings, memory: Memory, say: Option<Say>) -> Arc<dyn AnyMirror> {
        let Self { target, values } = *self;
        let mirror = match say {
            None => Mirror::start(name, target, settings, memory),
            Some(say) => Mirror::start(name, Rehearsal::new(target, say), settings, memory),
        };
        let status = mirror.status();
        Arc::new(Running { mirror: Mutex::new(Some(mirror)), status, values })
    }

    fn preview<'a>(
        &'a self,
        name: &'a str,
        settings: &'a Settings,
        memory: &'a Memory,
        gathered: &'a Gathered,
    ) -> Later<'a, Result<Seen, Arc<str>>> {
        let (wanted, _) = wanted(gathered, &self.values);
        Box::pin(async move {
            let seen = preview(name, &self.target, settings, memory, &wanted).await?;
            let doubt = wanted.doubt.map(|why| why.to_string());
            Ok(Seen { steps: seen.steps.len(), words: seen.words, kept: told(&seen.kept), ask: seen.ask, doubt })
        })
    }
}

/// What was gathered, as what lies there. What cannot be is left out, and nothing is taken out while that is so.
fn wanted<V>(gathered: &Gathered, values: &Values<V>) -> (Wanted<V>, Option<String>) {
    let (entries, wrong) = values(&gathered.entries);
    let doubt = gathered.doubt.clone().or_else(|| wrong.as_deref().map(Arc::from));
    (Wanted { entries, doubt }, wrong)
}

fn told(kept: &BTreeMap<String, Kept>) -> BTreeMap<String, String> {
    kept.iter().map(|(name, why)| (name.clone(), why.to_string())).collect()
}

struct Running<V> {
    mirror: Mutex<Option<Mirror<V>>>,
    status: watch::Receiver<Status<V>>,
    values: Values<V>,
}

impl<V: Value> AnyMirror for Running<V> {
    fn want(&self, gathered: &Gathered) -> Option<String> {
        let (wanted, wrong) = wanted(gathered, &self.values);
        if let Some(mirror) = &*self.mirror.lock().unwrap_or_else(PoisonError::into_inner) {
            mirror.want(wanted);
        }
        wrong
    }

    fn nudge(&self) {
        if let Some(mirror) = &*self.mirror.lock().unwrap_or_else(PoisonError::into_inner) {
            mirror.nudge();
        }
    }

    fn troubles(&self) -> (Option<Ask>, Option<Arc<str>>) {
        let status = self.status.borrow();
        (status.ask.clone(), status.failing.clone())
    }

    fn standing(&self) -> MirrorStanding {
        let status = self.status.borrow();
        MirrorStanding {
            entries: status.entries,
            is_settled: status.settled,
            kept: status.kept.len(),
            asks: status.ask.as_ref().map_or(0, |ask| ask.names.len()),
            failing: status.failing.clone(),
            seen: status.seen.map(|seen| seen.elapsed()),
        }
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
    use steadfast_outside::haproxy::Server;

    use super::*;
    use crate::mirror::entry::entries;
    use crate::shape::SERVER;

    #[test]
    fn an_address_that_a_pod_left_behind_is_that_of_whoever_is_ready_there() {
        let values = one_by_one(|entry| {
            let server = Server { address: entry.address()?, weight: entry.weight()? };
            Ok((server.address.to_string(), server))
        });
        let weights = |all: [(&str, bool); 2]| {
            let pods = all.map(|(key, ready)| json!({"key": key, "address": "10.0.0.1", "port": 80, "ready": ready}));
            let read = entries(&json!(pods), SERVER, &serde_json::Value::Null).expect("they are entries");
            let read = read.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
            let (there, wrong) = values(&read);
            assert_eq!(wrong, None);
            there.into_values().map(|server| server.weight).collect::<Vec<_>>()
        };
        assert_eq!(weights([("new", true), ("old", false)]), [1]);
        assert_eq!(weights([("a-old", false), ("new", true)]), [1]);
        assert_eq!(weights([("a", false), ("b", false)]), [0]);
    }
}
