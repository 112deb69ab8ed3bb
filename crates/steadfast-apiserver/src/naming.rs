//! Validation of names, keys and values, with the messages of the real server.

/// Maximum length of a name, and of the prefix of a key, in bytes.
const MAX_NAME_BYTES: usize = 253;
/// Maximum length of a label's value, and of a key without its prefix, in bytes.
const MAX_LABEL_BYTES: usize = 63;

const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
                         or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used \
                         for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
                     must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
                     validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
                     '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or \
                     '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const KEY_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                   alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                   '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Returns the violations of a DNS subdomain.
pub(crate) fn subdomain_violations(text: &str) -> Vec<String> {
    length_and_syntax_violations(text, MAX_NAME_BYTES, "characters", text.split('.').all(is_label), SUBDOMAIN_RULE)
}

/// Returns the violations of a DNS label.
pub(crate) fn label_violations(text: &str) -> Vec<String> {
    length_and_syntax_violations(text, MAX_LABEL_BYTES, "characters", is_label(text), LABEL_RULE)
}

fn length_and_syntax_violations(text: &str, max_bytes: usize, unit: &str, is_valid: bool, detail: &str) -> Vec<String> {
    let mut violations = Vec::new();
    // The length is in bytes, although the message for names specifies characters. Valid names are ASCII.
    if text.len() > max_bytes {
        violations.push(format!("must be no more than {max_bytes} {unit}"));
    }
    if !is_valid {
        violations.push(detail.to_owned());
    }
    violations
}

/// Returns the violations of the key of a label or an annotation, or of a finalizer.
pub(crate) fn key_violations(text: &str) -> Vec<String> {
    let mut violations = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                violations.push("prefix part must be non-empty".to_owned());
            } else {
                let prefix = length_and_syntax_violations(
                    prefix,
                    MAX_NAME_BYTES,
                    "bytes",
                    prefix.split('.').all(is_label),
                    SUBDOMAIN_RULE,
                );
                violations.extend(prefix.into_iter().map(|detail| format!("prefix part {detail}")));
            }
            *name
        }
        _ => {
            return vec![format!(
                "a valid label key {KEY_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        violations.push("name part must be non-empty".to_owned());
    }
    let name = length_and_syntax_violations(name, MAX_LABEL_BYTES, "bytes", is_qualified(name), KEY_RULE);
    violations.extend(name.into_iter().map(|detail| format!("name part {detail}")));
    violations
}

/// Returns the violations of a label's value.
pub(crate) fn label_value_violations(value: &str) -> Vec<String> {
    length_and_syntax_violations(value, MAX_LABEL_BYTES, "bytes", value.is_empty() || is_qualified(value), VALUE_RULE)
}

fn is_label(text: &str) -> bool {
    let is_edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = text.as_bytes();
    let is_inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    is_edge(bytes.first()) && is_edge(bytes.last()) && bytes.iter().all(is_inner)
}

fn is_qualified(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    is_edge(bytes.first()) && is_edge(bytes.last()) && bytes.iter().all(is_inner)
}
