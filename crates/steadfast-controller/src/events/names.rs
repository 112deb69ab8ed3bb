//! Limits of names and texts, by `pkg/apis/core/validation/events.go` of Kubernetes.

/// Maximum length of a note in bytes (`NoteLengthLimit`).
pub(super) const MAX_NOTE_BYTES: usize = 1024;

/// Maximum length of a reason or an action in bytes (`ReasonLengthLimit`, `ActionLengthLimit`).
pub(super) const MAX_REASON_BYTES: usize = 128;

/// Maximum length of a reporter's instance in bytes (`ReportingInstanceLengthLimit`).
pub(super) const MAX_INSTANCE_BYTES: usize = 128;

/// Maximum length of an object's name in bytes (`DNS1123SubdomainMaxLength`).
const MAX_NAME_BYTES: usize = 253;

/// Maximum length of a qualified name after its prefix in bytes (`qualifiedNameMaxLength`).
const MAX_QUALIFIED_NAME_BYTES: usize = 63;

/// Returns the longest prefix of `text` with at most `max_bytes` bytes and complete characters.
pub(super) fn truncated(text: &str, max_bytes: usize) -> &str {
    let mut end = max_bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Returns the name of an event of the object `object_name`, like client-go: the name and a hexadecimal number.
///
/// Some object names are invalid in event names, for example `system:node`. Invalid characters are replaced, so that
/// the name still shows the object; client-go uses a random name instead.
pub(super) fn event_name(object_name: &str, number: u64) -> String {
    let number = format!("{number:x}");
    let mut stem = String::with_capacity(MAX_NAME_BYTES);
    for label in object_name.split('.') {
        let label: String = label.chars().map(label_character).collect();
        let label = label.trim_matches('-');
        if !label.is_empty() {
            if !stem.is_empty() {
                stem.push('.');
            }
            stem.push_str(label);
        }
    }
    // The number must fit completely, because only the number makes the name unique.
    stem.truncate(MAX_NAME_BYTES - 1 - number.len());
    let stem = stem.trim_end_matches(['-', '.']);
    format!("{}.{number}", if stem.is_empty() { "event" } else { stem })
}

/// Replaces a character that is invalid in a label.
fn label_character(character: char) -> char {
    if character.is_ascii_alphanumeric() { character.to_ascii_lowercase() } else { '-' }
}

/// Returns true for a DNS subdomain by RFC 1123, as required for names of objects and namespaces.
pub(super) fn is_subdomain(name: &str) -> bool {
    let is_label = |label: &str| {
        label.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
            && !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= MAX_NAME_BYTES && name.split('.').all(is_label)
}

/// Returns true for a qualified name, as required for reporting controllers: a name, optionally after a subdomain and a
/// slash.
pub(super) fn is_qualified(name: &str) -> bool {
    let (prefix, name) = name.split_once('/').map_or((None, name), |(prefix, name)| (Some(prefix), name));
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric();
    prefix.is_none_or(is_subdomain)
        && name.len() <= MAX_QUALIFIED_NAME_BYTES
        && name.as_bytes().first().is_some_and(is_plain)
        && name.as_bytes().last().is_some_and(is_plain)
        && name.bytes().all(|byte| is_plain(&byte) || matches!(byte, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn truncation_keeps_complete_characters() {
        assert_eq!(truncated("abc", 3), "abc");
        assert_eq!(truncated("abcd", 3), "abc");
        assert_eq!(truncated("aéé", 4), "aé");
        assert_eq!(truncated("é", 1), "");
        assert_eq!(truncated("", 0), "");
    }

    #[test]
    fn event_name_follows_object_name() {
        assert_eq!(event_name("web-0", 0x17), "web-0.17");
        assert_eq!(event_name("a.b", 1), "a.b.1");
        assert_eq!(event_name("system:node", 1), "system-node.1");
        assert_eq!(event_name("Upper_Case", 1), "upper-case.1");
        assert_eq!(event_name("-..:.a-", 1), "a.1");
        assert_eq!(event_name("", 1), "event.1");
        assert_eq!(event_name("é", 1), "event.1");
    }

    #[test]
    fn longest_name_keeps_the_number() {
        let longest = event_name(&"a".repeat(MAX_NAME_BYTES), u64::MAX);
        assert_eq!(longest.len(), MAX_NAME_BYTES);
        let dots = format!("{}.{}", "a".repeat(235), "b".repeat(17));
        assert_eq!(event_name(&dots, u64::MAX), format!("{}.ffffffffffffffff", "a".repeat(235)));
    }

    #[test]
    fn reporter_name_must_be_qualified() {
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
        fn every_object_name_yields_valid_event_name(object_name in ".{0,300}", number: u64) {
            let name = event_name(&object_name, number);
            prop_assert!(is_subdomain(&name), "{name}");
        }

        #[test]
        fn valid_name_stays_unchanged(object_name in "[a-z0-9]{1,20}(\\.[a-z0-9]{1,20}){0,5}") {
            prop_assert_eq!(event_name(&object_name, 7), format!("{object_name}.7"));
        }

        #[test]
        fn truncation_returns_longest_fitting_prefix(text in ".{0,50}", max_bytes in 0..100_usize) {
            let prefix = truncated(&text, max_bytes);
            prop_assert!(text.starts_with(prefix) && prefix.len() <= max_bytes);
            let next = text[prefix.len()..].chars().next();
            prop_assert!(next.is_none_or(|next| prefix.len() + next.len_utf8() > max_bytes));
        }
    }
}
