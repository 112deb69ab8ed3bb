//! What all rules of a mirror send, put together.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Place;
use std::sync::Arc;

use super::driver::Gathered;
use super::entry::Entry;
use super::view::Sent;

/// What came of putting together what rules send.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Collected {
    pub(super) gathered: Gathered,
    /// The keys that several have, with different things to say.
    pub(super) contested: Vec<String>,
    /// Why of some object nobody knows what it means: the first reason, and of how many objects that is so.
    pub(super) unclear: Option<(Arc<str>, usize)>,
}

/// Puts together what is `sent`, in this order: where two are of one name and differ, the one that is ready comes first, then
/// the earlier one. With a `doubt`, or where of one object nobody knows what it means, all of it is in doubt.
pub(super) fn collect<'a>(sent: impl Iterator<Item = &'a Sent>, doubt: Option<String>) -> Collected {
    let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
    let (mut contested, mut why, mut unclear) = (Vec::new(), None, 0);
    for sent in sent {
        let sent = match sent {
            Ok(sent) => sent,
            Err(reason) => {
                unclear += 1;
                why = why.or_else(|| Some(Arc::<str>::from(reason.as_str())));
                continue;
            }
        };
        for entry in sent {
            match entries.entry(entry.key.clone()) {
                Place::Vacant(place) => drop(place.insert(entry.clone())),
                Place::Occupied(place) if place.get() == entry => {}
                Place::Occupied(mut place) => {
                    contested.push(entry.key.clone());
                    if entry.is_ready && !place.get().is_ready {
                        place.insert(entry.clone());
                    }
                }
            }
        }
    }
    contested.sort();
    contested.dedup();
    let doubt = doubt.map(Arc::from).or_else(|| why.clone());
    Collected { gathered: Gathered { entries, doubt }, contested, unclear: why.map(|why| (why, unclear)) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::mirror::entry::entries;
    use crate::shape::SERVER;

    fn sent(entry: [(&str, u16, bool); 1]) -> Sent {
        let [(key, port, ready)] = entry;
        entries(&json!({"key": key, "address": "10.0.0.1", "port": port, "ready": ready}), SERVER, &Value::Null)
    }

    #[test]
    fn what_several_rules_send_is_one_mirror() {
        let all = [sent([("a", 1, true)]), sent([("b", 2, true)]), sent([("a", 1, true)])];
        let Collected { gathered, contested, unclear } = collect(all.iter(), None);
        assert_eq!(gathered.entries.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((gathered.doubt, contested, unclear), (None, vec![], None));
    }

    #[test]
    fn of_two_of_one_name_the_one_that_is_ready_comes_first_then_the_earlier_one_and_it_is_told() {
        let all = [sent([("a", 1, false)]), sent([("a", 2, true)]), sent([("a", 3, true)])];
        let Collected { gathered, contested, .. } = collect(all.iter(), None);
        assert_eq!(gathered.entries["a"].address().map(|address| address.port()), Ok(2));
        assert_eq!((contested, gathered.doubt), (vec!["a".to_owned()], None));
    }

    #[test]
    fn one_object_of_which_nobody_knows_what_it_means_puts_all_in_doubt() {
        let all = [Err("x".to_owned()), sent([("a", 1, true)]), Err("y".to_owned())];
        let Collected { gathered, unclear, .. } = collect(all.iter(), None);
        assert_eq!((gathered.doubt, unclear), (Some("x".into()), Some(("x".into(), 2))));
        assert_eq!(gathered.entries.len(), 1);
        let Collected { gathered, .. } = collect(all.iter(), Some("stale".to_owned()));
        assert_eq!(gathered.doubt, Some("stale".into()));
    }
}
