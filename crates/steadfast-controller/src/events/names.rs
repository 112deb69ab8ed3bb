//! Names and texts as the API takes them of events: `pkg/apis/core/validation/events.go` of Kubernetes refuses all others.

/// The longest note, in bytes (`NoteLengthLimit`).
pub(super) const LONGEST_NOTE: usize = 1024;

/// The longest reason and the longest action, in bytes (`ReasonLengthLimit`, `ActionLengthLimit`).
pub(super) const LONGEST_WORD: usize = 128;

/// The longest name of a reporter's instance, in bytes (`ReportingInstanceLengthLimit`).
pub(super) const LONGEST_INSTANCE: usize = 128;

/// The longest name of an object, in bytes (`DNS1123SubdomainMaxLength`).
const LONGEST_NAME: usize = 253;

/// The longest name behind the prefix of a qualified one, in bytes (`qualifiedNameMaxLength`).
const LONGEST_QUALIFIED: usize = 63;

/// As much of `text` as fits into `most` bytes, whole characters alone.
pub(super) fn cut(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The name of an event about the object called `about`, as client-go makes it: that and a number in hexadecimal digits.
///
/// Not every object's name can be in an event's (`system:node` cannot): what cannot is replaced, so that one still sees what
/// it is about, where client-go takes a random name.
pub(super) fn event_name(about: &str, number: u64) -> String {
    let number = format!("{number:x}");
    let mut stem = String::with_capacity(LONGEST_NAME);
    for label in about.split('.') {
        let label: String = label.chars().map(plain).collect();
        let label = label.trim_matches('-');
        if !label.is_empty() {
            if !stem.is_empty() {
                stem.push('.');
            }
            stem.push_str(label);
        }
    }
    stem.truncate(LONGEST_NAME - 1 - number.len());
    let stem = stem.trim_end_matches(['-', '.']);
    format!("{}.{number}", if stem.is_empty() { "event" } else { stem })
}

/// One character of a label, as it may be in a name.
fn plain(character: char) -> char {
    if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '-' }
}

/// Whether it is a DNS subdomain of RFC 1123, as names of objects and namespaces are.
pub(super) fn is_subdomain(name: &str) -> bool {
    let is_label = |label: &str| {
        label.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
            && !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= LONGEST_NAME && name.split('.').all(is_label)
}

/// Whether it is a qualified name, as reporting controllers have to have: a name, maybe behind a subdomain and a slash.
pub(super) fn is_qualified(name: &str) -> bool {
    let (prefix, name) = name.split_once('/').map_or((None, name), |(prefix, name)| (Some(prefix), name));
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric();
    prefix.is_none_or(is_subdomain)
        && name.len() <= LONGEST_QUALIFIED
        && name.as_bytes().first().is_some_and(is_plain)
        && name.as_bytes().last().is_some_and(is_plain)
        && name.bytes().all(|byte| is_plain(&byte) || matches!(byte, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "abc");
        assert_eq!(cut("aéé", 4), "aé");
        assert_eq!(cut("é", 1), "");
        assert_eq!(cut("", 0), "");
    }

    #[test]
    fn an_event_is_named_after_its_object() {
        assert_eq!(event_name("web-0", 0x17), "web-0.17");
        assert_eq!(event_name("a.b", 1), "a.b.1");
        assert_eq!(event_name("system:node", 1), "system-node.1");
        assert_eq!(event_name("Upper_Case", 1), "upper-case.1");
        assert_eq!(event_name("-..:.a-", 1), "a.1");
        assert_eq!(event_name("", 1), "event.1");
        assert_eq!(event_name("é", 1), "event.1");
    }

    #[test]
    fn the_longest_name_leaves_room_for_the_number() {
        let longest = event_name(&"a".repeat(LONGEST_NAME), u64::MAX);
        assert_eq!(longest.len(), LONGEST_NAME);
        let dots = format!("{}.{}", "a".repeat(235), "b".repeat(17));
        assert_eq!(event_name(&dots, u64::MAX), format!("{}.ffffffffffffffff", "a".repeat(235)));
    }

    #[test]
    fn a_reporter_has_a_qualified_name() {
        for name in ["a", "web-controller", "example.com/web_controller.1", "0"] {
            assert!(is_qualified(name), "{name}");
        }
        let long = "a".repeat(64);
        for name in ["", "/", "a/", "/a", "a/b/c", "A.com/a", "-a", "a-", "a b", "é", &long] {
            assert!(!is_qualified(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn whatever_an_object_is_called_its_events_have_valid_names(about in ".{0,300}", number: u64) {
            let name = event_name(&about, number);
            prop_assert!(is_subdomain(&name), "{name}");
        }

        #[test]
        fn a_name_that_is_valid_stays_as_it_is(about in "[a-z0-9]{1,20}(\\.[a-z0-9]{1,20}){0,5}") {
            prop_assert_eq!(event_name(&about, 7), format!("{about}.7"));
        }

        #[test]
        fn what_is_cut_is_the_longest_beginning_that_fits(text in ".{0,50}", most in 0..100_usize) {
            let kept = cut(&text, most);
            prop_assert!(text.starts_with(kept) && kept.len() <= most);
            let next = text[kept.len()..].chars().next();
            prop_assert!(next.is_none_or(|next| kept.len() + next.len_utf8() > most));
        }
    }
}
