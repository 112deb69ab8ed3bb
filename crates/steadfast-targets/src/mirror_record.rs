//! State of a mirror that survives restarts: the origin of each entry, and the state of the guard.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::guard::Guard;
use crate::origin::Origin;

/// Recorded entry of a mirror.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct EntryRecord {
    pub(crate) origin: Arc<Origin>,
    /// Locations of the entry in addition to its name.
    #[serde(default, rename = "places")]
    pub(crate) locations: Vec<String>,
    /// The last desired value, as text for people.
    pub(crate) state: String,
}

/// Origin that holds each name and location, according to the recorded entries.
#[derive(Debug, Default)]
pub(crate) struct RecordedHolders(HashMap<String, Arc<Origin>>);

impl RecordedHolders {
    /// Collects the holders of the names and locations of `entries`.
    pub(crate) fn new<'a>(entries: impl IntoIterator<Item = (&'a String, &'a EntryRecord)>) -> Self {
        let mut holders = Self::default();
        for (name, entry_record) in entries {
            holders.insert(name, entry_record);
        }
        holders
    }

    /// Adds an entry. The entry holds its name, and those of its locations that no other entry holds.
    pub(crate) fn insert(&mut self, name: &str, entry_record: &EntryRecord) {
        self.0.insert(name.to_owned(), entry_record.origin.clone());
        for location in &entry_record.locations {
            self.0.entry(location.clone()).or_insert_with(|| entry_record.origin.clone());
        }
    }

    /// Returns true if no other group holds the name or a location of the entry.
    pub(crate) fn permits(&self, name: &str, entry_record: &EntryRecord) -> bool {
        let mut locations = std::iter::once(name).chain(entry_record.locations.iter().map(String::as_str));
        locations.all(|location| self.0.get(location).is_none_or(|holder| holder.group == entry_record.origin.group))
    }
}

/// Recorded state of one mirror.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MirrorRecord {
    entries: BTreeMap<String, EntryRecord>,
    pub(crate) guard: Guard,
    /// Names with unwritten changes.
    changed_names: Vec<String>,
}

impl MirrorRecord {
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&String, &EntryRecord)> {
        self.entries.iter()
    }

    pub(crate) fn origin(&self, name: &str) -> Option<&Arc<Origin>> {
        self.entries.get(name).map(|entry_record| &entry_record.origin)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&EntryRecord> {
        self.entries.get(name)
    }

    /// Returns true if an entry of the mirror is at this location.
    pub(crate) fn has_location(&self, location: &str) -> bool {
        self.entries.contains_key(location)
            || self.entries.values().any(|entry_record| entry_record.locations.iter().any(|other| other == location))
    }

    /// Remembers an entry.
    pub(crate) fn insert(&mut self, name: &str, entry_record: EntryRecord) {
        if self.entries.get(name) != Some(&entry_record) {
            self.entries.insert(name.to_owned(), entry_record);
            self.changed_names.push(name.to_owned());
        }
    }

    /// Removes all entries except those for which `keep` returns true.
    pub(crate) fn retain(&mut self, keep: impl Fn(&str, &EntryRecord) -> bool) {
        let changed_names = &mut self.changed_names;
        self.entries.retain(|name, entry_record| {
            let is_kept = keep(name, entry_record);
            if !is_kept {
                changed_names.push(name.clone());
            }
            is_kept
        });
    }

    /// Takes the names with unwritten changes.
    pub(crate) fn take_changed(&mut self) -> Vec<String> {
        std::mem::take(&mut self.changed_names)
    }

    /// Restores these names as unwritten.
    pub(crate) fn put_back(&mut self, changed_names: Vec<String>) {
        self.changed_names.extend(changed_names);
    }

    /// Sets an entry that was read from the file; `None` removes the entry.
    pub(crate) fn restore(&mut self, name: String, entry_record: Option<EntryRecord>) {
        match entry_record {
            Some(entry_record) => drop(self.entries.insert(name, entry_record)),
            None => drop(self.entries.remove(&name)),
        }
    }
}
