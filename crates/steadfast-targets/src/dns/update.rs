//! Updates of names and of single records, in wire format and as commands of nsupdate.

use std::collections::{BTreeMap, BTreeSet};

use domain::base::iana::{Class, Rtype};
use domain::base::message_builder::{AdditionalBuilder, AnswerBuilder};
use domain::base::{Ttl, UnknownRecordData};

use super::contents::ZoneContents;
use super::error::DnsError;
use super::record::{
    DnsRecord, MARK_LABEL, RecordData, canonical_within, parse_name, record_hash, record_mark, text_octets,
};
use super::term::TermRecord;
use crate::entry::Step;

/// TTL of a mark, in seconds. Only mirrors read marks, and they never cache.
const MARK_TTL: u32 = 60;

/// Changes of one name, or of one record at the apex. They are applied atomically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Update {
    pub(super) name: String,
    pub(super) owner: NameOwner,
    /// Records to delete. Deletions come first, so that a name can replace a CNAME.
    pub(super) removed: Vec<DnsRecord>,
    pub(super) added: Vec<DnsRecord>,
    /// Marks of single records, by the name of the mark.
    pub(super) records: BTreeMap<String, RecordMark>,
}

/// Owner of the name of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameOwner {
    /// The mirror: the name has the mark, which is deleted together with the last record of the name.
    Mirror {
        /// True if the name has no entry left.
        is_last: bool,
    },
    /// Free name: neither the name nor a mark may exist.
    Free,
    /// Other clients own the apex of the zone. Only marks of single records identify the mirror's records there.
    Zone,
}

/// Change of the mark of a single record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordMark {
    /// Missing mark to add.
    Add,
    /// Existing mark that stays. The update requires that the mark exists.
    Keep,
    /// Existing mark to delete.
    Remove,
}

impl Update {
    /// Returns an ID of the update that is equal in the next attempt.
    pub(super) fn id(&self) -> String {
        match (self.owner, self.records.keys().next()) {
            (NameOwner::Zone, Some(mark)) => mark.clone(),
            _ => self.name.clone(),
        }
    }

    /// Returns an upper bound of the size within a message, in bytes.
    pub(super) fn size(&self) -> usize {
        let name = self.name.len() + 16;
        let records = self.removed.iter().chain(&self.added);
        let data = |record: &DnsRecord| record.data.to_wire().map_or(0, |(_, octets)| octets.len());
        // Each mark has a condition and a change, with 210 bytes of text at most.
        2 * (name + 256)
            + records.map(|record| name + data(record)).sum::<usize>()
            + self.records.len() * 2 * (name + 256)
    }
}

/// Returns the updates for `steps`, ordered by their first steps, and the error of the first impossible step. The
/// updates also remove marks of records that do not exist any more.
pub(super) fn build_updates(
    zone: &str,
    contents: &ZoneContents,
    steps: &[Step<DnsRecord>],
) -> (Vec<Update>, Result<(), DnsError>) {
    let (mut updates, mut positions) = (Vec::<Update>::new(), BTreeMap::new());
    // Entries per name after all steps. The mark of a name is removed together with the last entry.
    let mut remaining: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (entry, record) in &contents.own {
        remaining.entry(&record.name).or_default().insert(entry);
    }
    let mut first_error = Ok(());
    for step in steps {
        let (removed, added) = match step {
            Step::Add { value, .. } => (None, Some(value)),
            Step::Change { from, to, .. } => (Some(from), Some(to)),
            Step::Remove { value, .. } => (Some(value), None),
        };
        // Both records of a change have the same name.
        let Some(name) = added.or(removed).map(|record| &record.name) else { continue };
        let checked = added.map_or(Ok(()), |record| check_form(zone, record, contents));
        if checked.is_err() {
            first_error = first_error.and(checked);
            continue;
        }
        let entries = remaining.entry(name).or_default();
        if added.is_some() {
            entries.insert(step.name());
        } else {
            entries.remove(step.name());
        }
        let is_apex = name == zone;
        // At the apex, each record has its own update, because records of different owners share this name.
        let key = (name, is_apex.then(|| step.name()));
        let position = *positions.entry(key).or_insert_with(|| {
            let owner = match (is_apex, contents.marked.contains(name)) {
                (true, _) => NameOwner::Zone,
                (false, true) => NameOwner::Mirror { is_last: false },
                (false, false) => NameOwner::Free,
            };
            let (removed, added, records) = (Vec::new(), Vec::new(), BTreeMap::new());
            updates.push(Update { name: name.clone(), owner, removed, added, records });
            updates.len() - 1
        });
        updates[position].removed.extend(removed.cloned());
        updates[position].added.extend(added.cloned());
    }
    for update in &mut updates {
        if let NameOwner::Mirror { is_last } = &mut update.owner {
            *is_last = remaining[&*update.name].is_empty();
        }
        update.records = record_marks(update, contents);
    }
    updates.retain(|update| {
        let alias_conflict = remaining_alias(update, contents);
        let is_possible = alias_conflict.is_none();
        if let (Some(error), true) = (alias_conflict, first_error.is_ok()) {
            first_error = Err(error);
        }
        is_possible
    });
    // If another client deletes a record, its mark remains without a record. A mark in use stays.
    let needed: BTreeSet<String> = updates.iter().flat_map(|update| update.records.keys().cloned()).collect();
    updates
        .extend(unused_marks(contents, zone).filter(|update| !update.records.keys().any(|mark| needed.contains(mark))));
    (updates, first_error)
}

/// Returns the changes of the marks of single records.
fn record_marks(update: &Update, contents: &ZoneContents) -> BTreeMap<String, RecordMark> {
    let is_marked = |record: &&DnsRecord| update.owner == NameOwner::Zone || record.data.may_share_name();
    let mut marks = BTreeMap::new();
    for record in update.removed.iter().filter(is_marked) {
        marks.insert(record_mark(&update.name, &record_hash(record)), RecordMark::Remove);
    }
    for record in update.added.iter().filter(is_marked) {
        let record_hash = record_hash(record);
        let exists = contents.records.contains(&(update.name.clone(), record_hash.clone()));
        marks.insert(record_mark(&update.name, &record_hash), if exists { RecordMark::Keep } else { RecordMark::Add });
    }
    marks
}

/// Returns an error if the name keeps a CNAME and gets another record. Servers ignore such an addition without an
/// error.
fn remaining_alias(update: &Update, contents: &ZoneContents) -> Option<DnsError> {
    let is_alias = |record: &&DnsRecord| matches!(record.data, RecordData::Cname(_));
    let mut existing = contents.own.values().filter(|record| record.name == update.name);
    let alias = existing.find(is_alias).filter(|record| !update.removed.contains(record))?;
    let other = update.added.iter().find(|record| !is_alias(record))?;
    let (first, second) = (alias.data.to_string(), other.data.to_string());
    Some(DnsError::Clash { name: update.name.clone(), first, second })
}

/// Returns updates that delete marks without a record. Otherwise the mirror would claim a record that another client
/// adds again later.
fn unused_marks<'a>(contents: &'a ZoneContents, zone: &'a str) -> impl Iterator<Item = Update> + 'a {
    let used: BTreeSet<_> = contents.own.values().map(|record| (record.name.clone(), record_hash(record))).collect();
    let unused = contents.records.iter().filter(move |record| !used.contains(record));
    unused.filter(move |(name, _)| name == zone || contents.marked.contains(name)).map(|(name, record_hash)| Update {
        name: name.clone(),
        owner: NameOwner::Zone,
        removed: Vec::new(),
        added: Vec::new(),
        records: BTreeMap::from([(record_mark(name, record_hash), RecordMark::Remove)]),
    })
}

/// Checks that `record` has the form of [`entry`](super::entry). A different form would change the entry name at each
/// read.
fn check_form(zone: &str, record: &DnsRecord, contents: &ZoneContents) -> Result<(), DnsError> {
    record.data.to_wire()?;
    let name = canonical_within(zone, &record.name)?;
    if name != record.name {
        let reason = format!("write {name}, the form that `dns::entry` returns");
        return Err(DnsError::Name { name: record.name.clone(), reason });
    }
    let foreign = contents.foreign.get(&name).into_iter().flatten();
    if foreign.into_iter().any(|other| other.data == record.data) {
        return Err(DnsError::Exists { name, record: record.data.to_string() });
    }
    if name == zone && matches!(record.data, RecordData::Cname(_)) {
        return Err(DnsError::Apex { name, record: record.data.to_string() });
    }
    Ok(())
}

/// Error of changes that do not fit into one message.
#[derive(Debug)]
pub(super) struct MessageFull;

/// Writes `updates` into one message, which the server applies as a whole or not at all.
pub(super) fn write_update(
    updates: &[&Update],
    mark: &str,
    term: Option<TermRecord>,
    mut prerequisites: AnswerBuilder<Vec<u8>>,
) -> Result<AdditionalBuilder<Vec<u8>>, MessageFull> {
    // Names and data were validated before, and a mark is short. So a failure means that the message is too large.
    fn too_large(_: impl Sized) -> MessageFull {
        MessageFull
    }
    let data = |kind: Rtype, octets: Vec<u8>| UnknownRecordData::from_octets(kind, octets).map_err(too_large);
    let empty_data = || data(Rtype::ANY, Vec::new());
    let text = || data(Rtype::TXT, text_octets(&[mark.as_bytes().to_vec()]));
    let name_of = |name: &str| parse_name(name).map_err(too_large);
    let mark_of = |update: &Update| parse_name(&format!("{MARK_LABEL}{}", update.name)).map_err(too_large);
    let zero_ttl = Ttl::from_secs(0);
    if let Some(TermRecord { name, text }) = term {
        prerequisites.push((name, Class::IN, zero_ttl, data(Rtype::TXT, text)?)).map_err(too_large)?;
    }
    for update in updates {
        match update.owner {
            // The mark must exist with the mirror's text. A foreign or removed mark rejects the whole message.
            NameOwner::Mirror { .. } => {
                prerequisites.push((mark_of(update)?, Class::IN, zero_ttl, text()?)).map_err(too_large)?;
            }
            NameOwner::Free => {
                // Neither the name nor its mark may exist, so the mirror never takes over a name of another client.
                prerequisites
                    .push((name_of(&update.name)?, Class::NONE, zero_ttl, empty_data()?))
                    .map_err(too_large)?;
                prerequisites.push((mark_of(update)?, Class::NONE, zero_ttl, empty_data()?)).map_err(too_large)?;
            }
            NameOwner::Zone => {}
        }
        for (name, mark) in &update.records {
            let condition = match mark {
                RecordMark::Add => (name_of(name)?, Class::NONE, zero_ttl, empty_data()?),
                RecordMark::Keep | RecordMark::Remove => (name_of(name)?, Class::IN, zero_ttl, text()?),
            };
            prerequisites.push(condition).map_err(too_large)?;
        }
    }
    let mut changes = prerequisites.authority();
    for update in updates {
        let name = name_of(&update.name)?;
        // Class NONE deletes one record, class IN adds one (RFC 2136, section 2.5). Deletions come first: a server
        // silently ignores a CNAME that would join other records.
        for (records, class) in [(&update.removed, Class::NONE), (&update.added, Class::IN)] {
            for record in records {
                let (kind, octets) = record.data.to_wire().map_err(too_large)?;
                let ttl = if class == Class::IN { Ttl::from_secs(record.ttl) } else { zero_ttl };
                changes.push((&name, class, ttl, data(kind, octets)?)).map_err(too_large)?;
            }
        }
        match update.owner {
            NameOwner::Mirror { is_last: true } => {
                changes.push((mark_of(update)?, Class::NONE, zero_ttl, text()?)).map_err(too_large)?;
            }
            NameOwner::Free if !update.added.is_empty() => {
                changes.push((mark_of(update)?, Class::IN, Ttl::from_secs(MARK_TTL), text()?)).map_err(too_large)?;
            }
            _ => {}
        }
        for (name, mark) in &update.records {
            let change = match mark {
                RecordMark::Add => (name_of(name)?, Class::IN, Ttl::from_secs(MARK_TTL), text()?),
                RecordMark::Remove => (name_of(name)?, Class::NONE, zero_ttl, text()?),
                RecordMark::Keep => continue,
            };
            changes.push(change).map_err(too_large)?;
        }
    }
    Ok(changes.additional())
}

/// Escapes semicolons, which start a comment in zone files. The decimal form is valid within and outside of quotes.
fn escape_comment(text: &str) -> String {
    text.replace(';', "\\059")
}

/// Returns an update as commands of nsupdate.
pub(super) fn nsupdate_commands(update: &Update, mark: &str) -> Vec<String> {
    let Update { name, owner, removed, added, records } = update;
    let name = &escape_comment(name);
    let mut commands = match owner {
        NameOwner::Mirror { .. } => vec![format!("prereq yxrrset {MARK_LABEL}{name} IN TXT \"{mark}\"")],
        NameOwner::Free => vec![format!("prereq nxdomain {name}"), format!("prereq nxdomain {MARK_LABEL}{name}")],
        NameOwner::Zone => Vec::new(),
    };
    let records: Vec<_> = records.iter().map(|(name, change)| (escape_comment(name), change)).collect();
    commands.extend(records.iter().map(|(name, change)| match change {
        RecordMark::Add => format!("prereq nxdomain {name}"),
        RecordMark::Keep | RecordMark::Remove => format!("prereq yxrrset {name} IN TXT \"{mark}\""),
    }));
    let data_of = |record: &DnsRecord| escape_comment(&record.data.to_string());
    commands.extend(removed.iter().map(|record| format!("update delete {name} IN {}", data_of(record))));
    commands.extend(added.iter().map(|record| format!("update add {name} {} IN {}", record.ttl, data_of(record))));
    match owner {
        NameOwner::Mirror { is_last: true } => {
            commands.push(format!("update delete {MARK_LABEL}{name} IN TXT \"{mark}\""));
        }
        NameOwner::Free if !added.is_empty() => {
            commands.push(format!("update add {MARK_LABEL}{name} {MARK_TTL} IN TXT \"{mark}\""));
        }
        _ => {}
    }
    commands.extend(records.iter().filter_map(|(name, change)| match change {
        RecordMark::Add => Some(format!("update add {name} {MARK_TTL} IN TXT \"{mark}\"")),
        RecordMark::Remove => Some(format!("update delete {name} IN TXT \"{mark}\"")),
        RecordMark::Keep => None,
    }));
    commands.push("send".to_owned());
    commands
}
