//! Owner of a key among a set of members. Every member computes the same owner for the same set.
//!
//! Rendezvous hashing: each member has a score for each key, and the member with the highest score owns the key. A
//! leaving member distributes its keys among all others and moves no other key; a joining member takes some keys from
//! each. The scores are part of the protocol, so all versions and machines must compute the same scores.

use std::collections::BTreeSet;
use std::sync::Arc;

use steadfast::ObjectKey;
use steadfast::unstable::hash::Fnv1a;

/// Members, by the names of their leases.
pub(super) type MemberSet = BTreeSet<Arc<str>>;

/// Returns the owner of `key` in `view`. None for an empty view.
pub(super) fn owner<'a>(view: &'a MemberSet, key: &ObjectKey) -> Option<&'a str> {
    // Rendezvous hashing: a changed member set moves only the keys of changed members. Ties are decided by name.
    view.iter().map(AsRef::as_ref).max_by_key(|member| (score(member, key), *member))
}

/// Returns the score: FNV-1a over the three texts, with a separator that never occurs in text. The result is mixed like
/// splitmix64, because otherwise the last bytes of a name hardly affect the high bits.
fn score(member: &str, key: &ObjectKey) -> u64 {
    let texts = [member, key.namespace().unwrap_or_default(), key.name()];
    let mut hash = Fnv1a::new();
    for text in texts {
        hash.write(text.as_bytes());
        hash.write(&[0xff]);
    }
    let mut hash = hash.finish();
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(members: &[&str]) -> MemberSet {
        members.iter().map(|member| Arc::from(*member)).collect()
    }

    fn keys() -> impl Iterator<Item = ObjectKey> {
        (0..3000).map(|number| ObjectKey::namespaced(format!("team-{}", number % 7), format!("web-{number}")))
    }

    #[test]
    fn scores_are_stable() {
        assert_eq!(score("it-1", &ObjectKey::namespaced("default", "a")), 0x9b13_40c2_f751_4080);
        assert_eq!(score("it-1", &ObjectKey::cluster("a")), 0xf238_7a0b_78b1_154a);
    }

    #[test]
    fn keys_are_distributed_evenly() {
        let three = view(&["it-1", "it-2", "it-3"]);
        for member in &three {
            let part = keys().filter(|key| owner(&three, key) == Some(member)).count();
            assert!((900..1100).contains(&part), "{member} has {part} of 3000");
        }
        assert_eq!(owner(&MemberSet::new(), &ObjectKey::cluster("a")), None);
    }

    #[test]
    fn leaving_member_moves_only_its_keys() {
        let (three, two) = (view(&["it-1", "it-2", "it-3"]), view(&["it-1", "it-3"]));
        for key in keys() {
            let (before, after) = (owner(&three, &key), owner(&two, &key));
            assert!(before == after || before == Some("it-2"), "{key}: {before:?}, then {after:?}");
        }
    }
}
