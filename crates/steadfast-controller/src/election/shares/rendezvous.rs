//! Whose a key is, among members that are known: everybody who knows the same members says the same.
//!
//! Each member has a number for each key, and the highest has the key. So a member that goes leaves its keys to all the others
//! and moves no other key, and one that comes takes some from each. The numbers are the same in each version of this program
//! and on each machine: a change of them would be one of the protocol.

use std::collections::BTreeSet;
use std::sync::Arc;

use steadfast::ObjectKey;

/// Members, by the names of their leases.
pub(super) type View = BTreeSet<Arc<str>>;

/// Which of `view` has `key`; nobody where there is nobody.
pub(super) fn owner<'a>(view: &'a View, key: &ObjectKey) -> Option<&'a str> {
    view.iter().map(AsRef::as_ref).max_by_key(|member| (number(member, key), *member))
}

/// FNV-1a over all three texts, with what no text has between them; then mixed as in splitmix64, for the last bytes of a name
/// alone hardly reach the high bits.
fn number(member: &str, key: &ObjectKey) -> u64 {
    let texts = [member, key.namespace().unwrap_or_default(), key.name()];
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for text in texts {
        for byte in text.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(members: &[&str]) -> View {
        members.iter().map(|member| Arc::from(*member)).collect()
    }

    fn keys() -> impl Iterator<Item = ObjectKey> {
        (0..3000).map(|number| ObjectKey::namespaced(format!("team-{}", number % 7), format!("web-{number}")))
    }

    #[test]
    fn the_numbers_are_those_that_other_versions_have() {
        assert_eq!(number("it-1", &ObjectKey::namespaced("default", "a")), 0x9b13_40c2_f751_4080);
        assert_eq!(number("it-1", &ObjectKey::cluster("a")), 0xf238_7a0b_78b1_154a);
    }

    #[test]
    fn each_has_its_part() {
        let three = view(&["it-1", "it-2", "it-3"]);
        for member in &three {
            let part = keys().filter(|key| owner(&three, key) == Some(member)).count();
            assert!((900..1100).contains(&part), "{member} has {part} of 3000");
        }
        assert_eq!(owner(&View::new(), &ObjectKey::cluster("a")), None);
    }

    #[test]
    fn who_goes_leaves_its_own_keys_and_moves_no_other() {
        let (three, two) = (view(&["it-1", "it-2", "it-3"]), view(&["it-1", "it-3"]));
        for key in keys() {
            let (before, after) = (owner(&three, &key), owner(&two, &key));
            assert!(before == after || before == Some("it-2"), "{key}: {before:?}, then {after:?}");
        }
    }
}
