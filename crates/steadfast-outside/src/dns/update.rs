//! What an update of a name is made of: for the wire, and in nsupdate's words.

use std::collections::{BTreeMap, BTreeSet};

use domain::base::iana::{Class, Rtype};
use domain::base::message_builder::{AdditionalBuilder, AnswerBuilder};
use domain::base::{Ttl, UnknownRecordData};

use super::contents::Seen;
use super::error::DnsError;
use super::record::{MARK, Record, parsed, within};
use crate::entry::Step;

/// For how many seconds a mark may be remembered: nobody but mirrors asks for it, and they never remember.
const MARK_TTL: u32 = 60;

/// All that is to be done to one name, at once or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Update {
    pub(super) name: String,
    /// Whether it bears the mark; otherwise it must not be in use, nor have anybody's mark.
    pub(super) is_marked: bool,
    /// What goes, before what comes: then what has a CNAME can have something else.
    pub(super) less: Vec<Record>,
    pub(super) more: Vec<Record>,
    /// Whether nothing is left that the mark is for.
    pub(super) is_last: bool,
}

/// The updates that `steps` are made of, in the order of what each name is first about, and the first that cannot be.
pub(super) fn updates(zone: &str, seen: &Seen, steps: &[Step<Record>]) -> (Vec<Update>, Result<(), DnsError>) {
    let (mut updates, mut places) = (Vec::<Update>::new(), BTreeMap::new());
    let mut left: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (entry, record) in &seen.own {
        left.entry(&record.name).or_default().insert(entry);
    }
    let mut first = Ok(());
    for step in steps {
        let (less, more) = match step {
            Step::Add { value, .. } => (None, Some(value)),
            Step::Change { from, to, .. } => (Some(from), Some(to)),
            Step::Remove { value, .. } => (Some(value), None),
        };
        // All of them are of one name; the mirror wants none that is of two.
        let Some(name) = more.or(less).map(|record| &record.name) else { continue };
        let wrong = more.map_or(Ok(()), |record| sound(zone, record));
        if wrong.is_err() {
            first = first.and(wrong);
            continue;
        }
        let entries = left.entry(name).or_default();
        if more.is_some() {
            entries.insert(step.name())
        } else {
            entries.remove(step.name())
        };
        let place = *places.entry(name).or_insert_with(|| {
            let is_marked = seen.marked.contains(name);
            updates.push(Update { name: name.clone(), is_marked, less: Vec::new(), more: Vec::new(), is_last: false });
            updates.len() - 1
        });
        updates[place].less.extend(less.cloned());
        updates[place].more.extend(more.cloned());
    }
    for update in &mut updates {
        update.is_last = left[&*update.name].is_empty();
    }
    (updates, first)
}

/// Whether `record` is as [`entries`](super::entries) makes it: another one would be there at each look under another name.
fn sound(zone: &str, record: &Record) -> Result<(), DnsError> {
    record.data.wire()?;
    let name = within(zone, &record.name)?;
    if name == record.name {
        Ok(())
    } else {
        let why = format!("it has to be written {name}, as `dns::entries` does");
        Err(DnsError::Name { name: record.name.clone(), why })
    }
}

/// What is to be changed does not go into one message.
#[derive(Debug)]
pub(super) struct TooMuch;

/// Writes `updates` into one message that is carried out as a whole or not at all.
pub(super) fn write(
    updates: &[Update],
    mark: &str,
    mut prerequisites: AnswerBuilder<Vec<u8>>,
) -> Result<AdditionalBuilder<Vec<u8>>, TooMuch> {
    // Names and data were read as such before, and a mark is short.
    fn much(_: impl Sized) -> TooMuch {
        TooMuch
    }
    let data = |kind: Rtype, octets: Vec<u8>| UnknownRecordData::from_octets(kind, octets).map_err(much);
    let nothing = || data(Rtype::ANY, Vec::new());
    let text = || data(Rtype::TXT, [&[u8::try_from(mark.len()).map_err(much)?], mark.as_bytes()].concat());
    let names = |update: &Update| {
        let mark = parsed(&format!("{MARK}{}", update.name)).map_err(much)?;
        Ok((parsed(&update.name).map_err(much)?, mark))
    };
    let now = Ttl::from_secs(0);
    for update in updates {
        let (name, says) = names(update)?;
        if update.is_marked {
            prerequisites.push((says, Class::IN, now, text()?)).map_err(much)?;
        } else {
            prerequisites.push((name, Class::NONE, now, nothing()?)).map_err(much)?;
            prerequisites.push((says, Class::NONE, now, nothing()?)).map_err(much)?;
        }
    }
    let mut changes = prerequisites.authority();
    for update in updates {
        let (name, says) = names(update)?;
        for (records, class) in [(&update.less, Class::NONE), (&update.more, Class::IN)] {
            for record in records {
                let (kind, octets) = record.data.wire().map_err(much)?;
                let ttl = if class == Class::IN { Ttl::from_secs(record.ttl) } else { now };
                changes.push((&name, class, ttl, data(kind, octets)?)).map_err(much)?;
            }
        }
        if update.is_last && update.is_marked {
            changes.push((says, Class::NONE, now, text()?)).map_err(much)?;
        } else if !update.is_last && !update.is_marked {
            changes.push((says, Class::IN, Ttl::from_secs(MARK_TTL), text()?)).map_err(much)?;
        }
    }
    Ok(changes.additional())
}

/// As nsupdate would be told it.
pub(super) fn words(update: &Update, mark: &str) -> Vec<String> {
    let Update { name, is_marked, less, more, is_last } = update;
    let mut words = if *is_marked {
        vec![format!("prereq yxrrset {MARK}{name} IN TXT \"{mark}\"")]
    } else {
        vec![format!("prereq nxdomain {name}"), format!("prereq nxdomain {MARK}{name}")]
    };
    words.extend(less.iter().map(|record| format!("update delete {name} IN {}", record.data)));
    words.extend(more.iter().map(|record| format!("update add {name} {} IN {}", record.ttl, record.data)));
    match (is_marked, is_last) {
        (true, true) => words.push(format!("update delete {MARK}{name} IN TXT \"{mark}\"")),
        (false, false) => words.push(format!("update add {MARK}{name} {MARK_TTL} IN TXT \"{mark}\"")),
        _ => {}
    }
    words.push("send".to_owned());
    words
}
