//! Resolution of competing entries. A location is a name, an address or a key. Only the group that holds a location may
//! use the location.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::entry::{ActualState, DesiredState, EntryValue};
use crate::mirror_record::{EntryRecord, MirrorRecord};
use crate::origin::Origin;

/// Desired entries after the assignment of each location to one group.
#[derive(Clone, Debug)]
pub(crate) struct ClaimResolution<V> {
    pub(crate) values: BTreeMap<String, V>,
    pub(crate) origins: BTreeMap<String, Arc<Origin>>,
    /// Entries whose location another group holds.
    pub(crate) conflicts: BTreeMap<String, LocationConflict>,
    /// Names with several different entries from one group.
    pub(crate) conflicting: Vec<String>,
}

/// An entry whose location belongs to another group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct LocationConflict {
    /// The name, address or key that both groups want.
    pub location: String,
    /// The group that holds the location.
    pub holder: String,
    /// Origin of the skipped entry.
    pub claimant: Arc<Origin>,
}

impl<V: EntryValue> ClaimResolution<V> {
    /// Assigns each location to its recorded holder, or else to the first claimant.
    pub(crate) fn resolve(desired: &DesiredState<V>, found: &ActualState<V>, record: &MirrorRecord) -> Self {
        let default_origin = Arc::new(Origin::default());
        let origin_of = |name: &String| desired.origins.get(name).unwrap_or(&default_origin);
        // Earlier holders come first: a group that already holds a location keeps it, regardless of the order of the
        // groups.
        let mut location_holders = location_holders(desired, found, record);
        let mut resolution = Self {
            values: BTreeMap::new(),
            origins: BTreeMap::new(),
            conflicts: BTreeMap::new(),
            conflicting: Vec::new(),
        };
        let primary = desired.entries.iter().map(|(name, value)| (name, value, origin_of(name)));
        let competing =
            desired.competing.iter().map(|competing| (&competing.name, &competing.value, &competing.origin));
        for (name, value, origin) in primary.chain(competing) {
            resolution.add(name, value, origin, &mut location_holders);
        }
        resolution.conflicting.dedup();
        resolution
    }

    fn add(&mut self, name: &str, value: &V, origin: &Arc<Origin>, location_holders: &mut HashMap<String, String>) {
        let locations = value.locations(name);
        let all_locations = || std::iter::once(name).chain(locations.iter().map(String::as_str));
        let conflicting_location = all_locations().find_map(|location| {
            Some((location, location_holders.get(location).filter(|group| **group != origin.group)?))
        });
        if let Some((location, holder)) = conflicting_location {
            let conflict =
                LocationConflict { location: location.to_owned(), holder: holder.clone(), claimant: origin.clone() };
            self.conflicts.entry(name.to_owned()).or_insert(conflict);
            return;
        }
        // A free location goes to the first claim. The maps are sorted, so the order of claims is equal in each pass.
        for location in all_locations() {
            if !location_holders.contains_key(location) {
                location_holders.insert(location.to_owned(), origin.group.clone());
            }
        }
        match self.values.get_mut(name) {
            Some(current) if current == value => {}
            // Both entries belong to one group. An entry that receives traffic takes precedence, otherwise the earlier
            // entry.
            Some(current) => {
                self.conflicting.push(name.to_owned());
                if value.serves() && !current.serves() {
                    *current = value.clone();
                    self.origins.insert(name.to_owned(), origin.clone());
                }
            }
            None => {
                self.values.insert(name.to_owned(), value.clone());
                self.origins.insert(name.to_owned(), origin.clone());
            }
        }
    }
}

/// Returns a predicate on names and origins of entries. It returns true if the group of the origin still desires the
/// entry, or if the origin is uncertain.
pub(crate) fn is_claimed<V>(desired: &DesiredState<V>) -> impl Fn(&str, &Origin) -> bool {
    let competing: HashSet<(&str, &str)> =
        desired.competing.iter().map(|competing| (&*competing.name, &*competing.origin.group)).collect();
    move |name: &str, origin: &Origin| {
        let group = origin.group.as_str();
        let is_primary =
            desired.entries.contains_key(name) && desired.origins.get(name).map_or("", |origin| &origin.group) == group;
        // An entry lost by the target still reserves its location while its removal is uncertain.
        is_primary
            || competing.contains(&(name, group))
            || desired.doubt.is_some()
            || desired.uncertain_origins.about(Some(origin)).is_some()
    }
}

/// Returns the group that holds each location.
///
/// A group keeps a location while the group desires the entry, the target contains the entry, or the origin of the
/// entry is uncertain. So a group keeps its locations while a restarted target is empty.
fn location_holders<V: EntryValue>(
    desired: &DesiredState<V>,
    found: &ActualState<V>,
    record: &MirrorRecord,
) -> HashMap<String, String> {
    let is_claimed = is_claimed(desired);
    let mut location_holders = HashMap::new();
    for (name, EntryRecord { origin, locations, .. }) in record.entries() {
        if found.own.contains_key(name) || is_claimed(name, origin) {
            for location in std::iter::once(name).chain(locations) {
                location_holders.entry(location.clone()).or_insert_with(|| origin.group.clone());
            }
        }
    }
    location_holders
}
