//! Checks the deliveries to a durable handler of the config maps in `default` over several runs. The check compares
//! them with the server's own history, and uses no code of the library.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_contract::{Change, History};

/// Actions of a handler over all runs, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HandlerRecord {
    Delivered(Delivery),
    /// The handler acknowledged the event with this ID.
    Acknowledged(String),
    /// The program was killed, and started again.
    Killed,
    /// The informer reported that the checkpoint was unusable. All objects are delivered again, and no deletion is
    /// pending.
    CheckpointRejected,
}

/// Delivered event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) name: String,
    /// Kind of the event: `+`, `~` or `-`.
    pub(crate) kind: char,
    pub(crate) id: String,
    pub(crate) uid: String,
    pub(crate) version: u64,
    /// Version of the old state of an update.
    pub(crate) old_version: Option<u64>,
    /// `true` if the informer inferred the deletion from a list.
    pub(crate) is_inferred: bool,
}

impl Delivery {
    pub(crate) fn line(&self) -> String {
        let Self { name, kind, id, uid, version, old_version, is_inferred } = self;
        format!("{name} {kind} {id} {uid} {version} {} {is_inferred}", old_version.unwrap_or(0))
    }

    pub(crate) fn parse_line(line: &str) -> Option<Self> {
        let mut parts = line.split(' ');
        let mut next = || parts.next();
        let (name, kind, id, uid) =
            (next()?.to_owned(), next()?.chars().next()?, next()?.to_owned(), next()?.to_owned());
        let (version, old_version, is_inferred) = (next()?.parse().ok()?, next()?.parse().ok()?, next()?.parse().ok()?);
        Some(Self {
            name,
            kind,
            id,
            uid,
            version,
            old_version: Some(old_version).filter(|version| *version > 0),
            is_inferred,
        })
    }
}

/// Formats a log, one action per line.
pub(crate) fn lines(log: &[HandlerRecord]) -> String {
    let line = |record: &HandlerRecord| match record {
        HandlerRecord::Delivered(delivery) => format!("delivered {}\n", delivery.line()),
        HandlerRecord::Acknowledged(id) => format!("acknowledged {id}\n"),
        HandlerRecord::Killed => "killed\n".to_owned(),
        HandlerRecord::CheckpointRejected => "checkpoint rejected\n".to_owned(),
    };
    log.iter().map(line).collect()
}

/// Numbers of the deliveries in a log.
#[derive(Debug, Default)]
pub(crate) struct DeliveryCounts {
    pub(crate) delivered: usize,
    pub(crate) repeated: usize,
    pub(crate) repeated_after_kill: usize,
    pub(crate) deletions: usize,
}

/// Time from an object's creation to its deletion.
struct Stay {
    uid: String,
    versions: Vec<u64>,
    has_ended: bool,
}

/// Returns the relevant changes: a real server has other config maps too.
pub(crate) fn relevant_changes(history: &History) -> impl Iterator<Item = &Change> {
    history.changes().iter().filter(|change| change.namespace.as_deref() == Some("default"))
}

/// Returns the stays of each name in order, from the server's history.
fn stays(history: &History) -> BTreeMap<String, Vec<Stay>> {
    let mut stays = BTreeMap::<String, Vec<Stay>>::new();
    for change in relevant_changes(history) {
        let name_stays = stays.entry(change.name.clone()).or_default();
        let is_new = name_stays.last().is_none_or(|stay| stay.uid != change.uid);
        if is_new {
            name_stays.push(Stay { uid: change.uid.clone(), versions: Vec::new(), has_ended: false });
        }
        if let Some(stay) = name_stays.last_mut() {
            match change.object {
                Some(_) => stay.versions.push(change.version),
                None => stay.has_ended = true,
            }
        }
    }
    stays
}

/// State of one name while a log is checked.
#[derive(Default)]
struct NameState {
    last: Option<Delivery>,
    is_done: bool,
    was_killed_since: bool,
    ids: BTreeSet<String>,
}

impl NameState {
    /// Checks a delivery. Returns `true` if the delivery repeats an earlier one.
    fn check_delivery(&mut self, delivery: &Delivery, stays: &[Stay]) -> Result<bool, String> {
        let stay_index = stays.iter().position(|stay| stay.uid == delivery.uid).ok_or("no such object existed")?;
        let stay = &stays[stay_index];
        if !stay.versions.contains(&delivery.version) {
            return Err("the object never had this version".to_owned());
        }
        let suffix = if delivery.kind == '-' { "-gone" } else { "" };
        if delivery.id != format!("{}@{}{suffix}", delivery.uid, delivery.version) {
            return Err("the ID is wrong".to_owned());
        }
        let last = self.last.as_ref();
        if let Some(last) = last.filter(|last| last.id == delivery.id) {
            if last != delivery {
                return Err(format!("the same ID belongs to another event than {}", last.line()));
            }
            if self.is_done && !self.was_killed_since {
                return Err("the event was acknowledged already".to_owned());
            }
            (self.is_done, self.was_killed_since) = (false, false);
            return Ok(true);
        }
        if last.is_some() && !self.is_done {
            return Err("an earlier event is not acknowledged".to_owned());
        }
        if !self.ids.insert(delivery.id.clone()) {
            return Err("the event was delivered before another one".to_owned());
        }
        let is_next = match (delivery.kind, last) {
            ('+', None) => true,
            ('+', Some(last)) => {
                last.kind == '-'
                    && stays.iter().position(|stay| stay.uid == last.uid).is_some_and(|index| index < stay_index)
            }
            ('~', Some(last)) => {
                last.kind != '-'
                    && last.uid == delivery.uid
                    && delivery.old_version == Some(last.version)
                    && last.version < delivery.version
            }
            ('-', Some(last)) => {
                // If an object changed and was then deleted, both unobserved, the library cannot know its last state.
                let is_last = stay.versions.last() == Some(&delivery.version);
                let is_known = is_last || (delivery.is_inferred && last.version <= delivery.version);
                last.kind != '-' && last.uid == delivery.uid && stay.has_ended && is_known
            }
            _ => false,
        };
        if !is_next {
            return Err(format!("it must not follow {}", last.map_or("nothing".to_owned(), Delivery::line)));
        }
        self.last = Some(delivery.clone());
        (self.is_done, self.was_killed_since) = (false, false);
        Ok(false)
    }
}

/// Checks a whole log against the history of config maps. At the end, every object must have been delivered.
pub(crate) fn check_deliveries(history: &History, log: &[HandlerRecord]) -> Result<DeliveryCounts, String> {
    let stays = stays(history);
    let (mut names, mut counts) = (BTreeMap::<String, NameState>::new(), DeliveryCounts::default());
    let mut names_by_id = BTreeMap::new();
    for record in log {
        match record {
            HandlerRecord::Delivered(delivery) => {
                names_by_id.insert(delivery.id.clone(), delivery.name.clone());
                let name_stays =
                    stays.get(&delivery.name).ok_or_else(|| format!("no object {} existed", delivery.name))?;
                let name = names.entry(delivery.name.clone()).or_default();
                let was_killed = name.was_killed_since;
                let is_repeated = name
                    .check_delivery(delivery, name_stays)
                    .map_err(|error| format!("{}: {error}", delivery.line()))?;
                counts.delivered += 1;
                counts.repeated += usize::from(is_repeated);
                counts.repeated_after_kill += usize::from(is_repeated && was_killed);
                counts.deletions += usize::from(delivery.kind == '-' && !is_repeated);
            }
            HandlerRecord::Acknowledged(id) => {
                let name = names_by_id
                    .get(id)
                    .and_then(|name| names.get_mut(name))
                    .ok_or("an unknown event was acknowledged")?;
                if name.last.as_ref().is_some_and(|last| last.id == *id) {
                    name.is_done = true;
                }
            }
            HandlerRecord::Killed => names.values_mut().for_each(|name| name.was_killed_since = true),
            HandlerRecord::CheckpointRejected => names.clear(),
        }
    }
    for (name, name_stays) in &stays {
        let last = names.get(name).and_then(|name| name.last.as_ref().map(|last| (last, name.is_done)));
        let expected = name_stays.last().filter(|stay| !stay.has_ended);
        match (expected, last) {
            (None, None) => {}
            (None, Some((last, true))) if last.kind == '-' => {}
            (Some(stay), Some((last, true)))
                if last.kind != '-' && last.uid == stay.uid && stay.versions.last() == Some(&last.version) => {}
            (expected, last) => {
                let expected =
                    expected.map_or("nothing".to_owned(), |stay| format!("{} {:?}", stay.uid, stay.versions.last()));
                let last = last.map(|(last, is_done)| format!("{}, acknowledged: {is_done}", last.line()));
                return Err(format!("{name}: the final state is {expected}, and the last delivery is {last:?}"));
            }
        }
    }
    Ok(counts)
}
