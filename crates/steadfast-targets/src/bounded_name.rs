//! Names for keys of any form, within the limits of a target.

use sha2::{Digest, Sha256};

/// Separates the readable part of a name from the hash. No Kubernetes name contains this text.
const SEPARATOR: &str = ".-";

/// Length of the hash: 26 digits of 5 bits each.
const HASH_LEN: usize = 26;

const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Minimum limit for [`bounded_name`]: a name that consists of separator and hash only.
pub(crate) const MIN_NAME_BYTES: usize = SEPARATOR.len() + HASH_LEN;

/// Returns true if `name` consists of 1 to `limit` ASCII letters, digits, `-`, `_` and `.`.
pub(crate) fn is_valid_name(name: &str, limit: usize) -> bool {
    (1..=limit).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Returns a name for `key` of at most `limit` bytes, made of ASCII letters, digits, `-`, `_` and `.`.
///
/// A key that already has this form is returned unchanged. Any other key becomes a readable part, `.-` and 26 base32
/// digits of its SHA-256. Equal keys have equal names in all versions and on all machines. Different keys have
/// different names, since 130 bits of SHA-256 do not collide in practice. A key that looks like such a hashed name is
/// hashed too. Otherwise the key could equal the name of another key.
///
/// `limit` must be at least [`MIN_NAME_BYTES`].
pub(crate) fn bounded_name(key: &str, limit: usize) -> String {
    if is_valid_name(key, limit) && !is_hashed_name(key) {
        return key.to_owned();
    }
    let readable = key.chars().map(|character| match character {
        '/' => '.',
        character if u8::try_from(character).is_ok_and(is_plain) => character,
        _ => '_',
    });
    let readable_len = limit.saturating_sub(MIN_NAME_BYTES);
    let readable: String = readable.take(readable_len).collect();
    format!("{readable}{SEPARATOR}{}", hash(key))
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)
}

fn is_hashed_name(name: &str) -> bool {
    name.rsplit_once(SEPARATOR)
        .is_some_and(|(_, hash)| hash.len() == HASH_LEN && hash.bytes().all(|digit| DIGITS.contains(&digit)))
}

/// Returns the first 130 bits of the SHA-256 of `key`, in base32.
fn hash(key: &str) -> String {
    let digest = Sha256::digest(key.as_bytes());
    // 26 digits of five bits each: 130 bits of the digest, in the alphabet of RFC 4648 in lower case.
    let bit = |number: usize| usize::from(digest[number / 8] >> (7 - number % 8) & 1);
    let digit = |index: usize| (0..5).fold(0, |value, offset| value << 1 | bit(index * 5 + offset));
    (0..HASH_LEN).map(|index| char::from(DIGITS[digit(index)])).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn invalid_key_gets_stable_name() {
        for key in ["web-1", "a.b_C", &"x".repeat(128)] {
            assert_eq!(bounded_name(key, 128), key);
        }
        // The expected name is fixed: a different name after an upgrade would replace every server of a running load
        // balancer.
        assert_eq!(bounded_name("c1/shop/web-1", 125), "c1.shop.web-1.-f6lzdbw3o7n4nohw45h4zffdjo");
        assert_eq!(bounded_name("", 64).len(), MIN_NAME_BYTES);
        assert_eq!(bounded_name(&"x".repeat(129), 128).len(), 128);
    }

    #[test]
    fn generated_name_as_key_does_not_collide() {
        let result = bounded_name("c1/shop/web-1", 125);
        assert_ne!(bounded_name(&result, 125), result);
    }

    proptest! {
        #[test]
        fn names_fit_and_never_collide(
            keys in prop::collection::btree_set("[a/.\\-ä ]{0,6}|[a-z0-9]{1,70}|\\PC{0,200}", 2..20),
            limit in MIN_NAME_BYTES..=128_usize,
        ) {
            let mut names: BTreeSet<String> = BTreeSet::new();
            for key in &keys {
                let name = bounded_name(key, limit);
                prop_assert!(is_valid_name(&name, limit), "{key:?} became {name:?}");
                prop_assert_eq!(&bounded_name(key, limit), &name);
                prop_assert!(names.insert(name));
            }
            // Keys that equal the names of other keys do not collide either.
            for key in names.clone() {
                let name = bounded_name(&key, limit);
                prop_assert!(keys.contains(&key) || names.insert(name));
            }
        }
    }
}
