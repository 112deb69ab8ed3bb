//! Checks the deliveries to a durable handler of the config maps in `default` over several runs. The check compares
//! them with the server's own history, and uses no code of the library.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_contract::{Change, History};

/// Actions of a handler over all runs, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Told(Word),
    /// The handler acknowledged the event with this ID.
    Done(String),
    /// The program was killed, and started again.
    Died,
    /// The informer reported that the checkpoint was unusable. All objects are delivered again, and no deletion is
    /// pending.
    Anew,
}

/// Delivered event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) name: String,
    /// Kind of the event: `+`, `~` or `-`.
    pub(crate) kind: char,
    pub(crate) id: String,
    pub(crate) uid: String,
    pub(crate) version: u64,
    /// Version of the old state of an update.
    pub(crate) old: Option<u64>,
    /// `true` if the informer inferred the deletion from a list.
    pub(crate) is_inferred: bool,
}

impl Word {
    pub(crate) fn line(&self) -> String {
        let Self { name, kind, id, uid, version, old, is_inferred } = self;
        format!("{name} {kind} {id} {uid} {version} {} {is_inferred}", old.unwrap_or(0))
    }

    pub(crate) fn of_line(line: &str) -> Option<Self> {
        let mut parts = line.split(' ');
        let mut next = || parts.next();
        let (name, kind, id, uid) =
            (next()?.to_owned(), next()?.chars().next()?, next()?.to_owned(), next()?.to_owned());
        let (version, old, is_inferred) = (next()?.parse().ok()?, next()?.parse().ok()?, next()?.parse().ok()?);
        Some(Self { name, kind, id, uid, version, old: Some(old).filter(|old| *old > 0), is_inferred })
    }
}

/// Formats a log, one action per line.
pub(crate) fn lines(log: &[Seen]) -> String {
    let line = |seen: &Seen| match seen {
        Seen::Told(word) => format!("told {}\n", word.line()),
        Seen::Done(id) => format!("done {id}\n"),
        Seen::Died => "died\n".to_owned(),
        Seen::Anew => "anew\n".to_owned(),
    };
    log.iter().map(line).collect()
}

/// Counts of a log.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    pub(crate) told: usize,
    pub(crate) again: usize,
    pub(crate) again_after_death: usize,
    pub(crate) ends: usize,
}

/// Time from an object's creation to its deletion.
struct Stay {
    uid: String,
    versions: Vec<u64>,
    has_ended: bool,
}

/// Returns the relevant changes: a real server has other config maps too.
pub(crate) fn told_of(history: &History) -> impl Iterator<Item = &Change> {
    history.changes().iter().filter(|change| change.namespace.as_deref() == Some("default"))
}

/// Returns the stays of each name in order, from the server's history.
fn stays(history: &History) -> BTreeMap<String, Vec<Stay>> {
    let mut stays = BTreeMap::<String, Vec<Stay>>::new();
    for change in told_of(history) {
        let of = stays.entry(change.name.clone()).or_default();
        let is_new = of.last().is_none_or(|stay| stay.uid != change.uid);
        if is_new {
            of.push(Stay { uid: change.uid.clone(), versions: Vec::new(), has_ended: false });
        }
        if let Some(stay) = of.last_mut() {
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
struct Name {
    last: Option<Word>,
    is_done: bool,
    has_died_since: bool,
    ids: BTreeSet<String>,
}

impl Name {
    /// Checks a delivery. Returns `true` if it is a repetition.
    fn told(&mut self, word: &Word, stays: &[Stay]) -> Result<bool, String> {
        let place = stays.iter().position(|stay| stay.uid == word.uid).ok_or("no such object existed")?;
        let stay = &stays[place];
        if !stay.versions.contains(&word.version) {
            return Err("the object never had this version".to_owned());
        }
        let suffix = if word.kind == '-' { "-gone" } else { "" };
        if word.id != format!("{}@{}{suffix}", word.uid, word.version) {
            return Err("the ID is wrong".to_owned());
        }
        let last = self.last.as_ref();
        if let Some(last) = last.filter(|last| last.id == word.id) {
            if last != word {
                return Err(format!("the same ID belongs to another event than {}", last.line()));
            }
            if self.is_done && !self.has_died_since {
                return Err("the event was acknowledged already".to_owned());
            }
            (self.is_done, self.has_died_since) = (false, false);
            return Ok(true);
        }
        if last.is_some() && !self.is_done {
            return Err("an earlier event is not acknowledged".to_owned());
        }
        if !self.ids.insert(word.id.clone()) {
            return Err("the event was delivered before another one".to_owned());
        }
        let is_next = match (word.kind, last) {
            ('+', None) => true,
            ('+', Some(last)) => {
                last.kind == '-'
                    && stays.iter().position(|stay| stay.uid == last.uid).is_some_and(|before| before < place)
            }
            ('~', Some(last)) => {
                last.kind != '-'
                    && last.uid == word.uid
                    && word.old == Some(last.version)
                    && last.version < word.version
            }
            ('-', Some(last)) => {
                // If an object changed and was then deleted, both unobserved, the library cannot know its last state.
                let is_last = stay.versions.last() == Some(&word.version);
                let is_known = is_last || (word.is_inferred && last.version <= word.version);
                last.kind != '-' && last.uid == word.uid && stay.has_ended && is_known
            }
            _ => false,
        };
        if !is_next {
            return Err(format!("it must not follow {}", last.map_or("nothing".to_owned(), Word::line)));
        }
        self.last = Some(word.clone());
        (self.is_done, self.has_died_since) = (false, false);
        Ok(false)
    }
}

/// Checks a whole log against the history of config maps. At the end, every object must have been delivered.
pub(crate) fn judge(history: &History, log: &[Seen]) -> Result<Sum, String> {
    let stays = stays(history);
    let (mut names, mut sum) = (BTreeMap::<String, Name>::new(), Sum::default());
    let mut who = BTreeMap::new();
    for seen in log {
        match seen {
            Seen::Told(word) => {
                who.insert(word.id.clone(), word.name.clone());
                let of = stays.get(&word.name).ok_or_else(|| format!("no object {} existed", word.name))?;
                let name = names.entry(word.name.clone()).or_default();
                let has_died = name.has_died_since;
                let again = name.told(word, of).map_err(|why| format!("{}: {why}", word.line()))?;
                sum.told += 1;
                sum.again += usize::from(again);
                sum.again_after_death += usize::from(again && has_died);
                sum.ends += usize::from(word.kind == '-' && !again);
            }
            Seen::Done(id) => {
                let name =
                    who.get(id).and_then(|name| names.get_mut(name)).ok_or("an unknown event was acknowledged")?;
                if name.last.as_ref().is_some_and(|last| last.id == *id) {
                    name.is_done = true;
                }
            }
            Seen::Died => names.values_mut().for_each(|name| name.has_died_since = true),
            Seen::Anew => names.clear(),
        }
    }
    for (name, of) in &stays {
        let last = names.get(name).and_then(|name| name.last.as_ref().map(|last| (last, name.is_done)));
        let there = of.last().filter(|stay| !stay.has_ended);
        match (there, last) {
            (None, None) => {}
            (None, Some((last, true))) if last.kind == '-' => {}
            (Some(stay), Some((last, true)))
                if last.kind != '-' && last.uid == stay.uid && stay.versions.last() == Some(&last.version) => {}
            (there, last) => {
                let there =
                    there.map_or("nothing".to_owned(), |stay| format!("{} {:?}", stay.uid, stay.versions.last()));
                let last = last.map(|(last, done)| format!("{}, acknowledged: {done}", last.line()));
                return Err(format!("{name}: the final state is {there}, and the last delivery is {last:?}"));
            }
        }
    }
    Ok(sum)
}
