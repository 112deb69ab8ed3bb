//! Text with placeholders for secrets: `https://hooks.example.com/{token}`.

use std::collections::BTreeMap;

use crate::secret::Secret;

/// Part of a text with placeholders.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TemplatePart<'a> {
    Text(&'a str),
    /// Name between the braces.
    Secret(&'a str),
}

/// Splits a text at the placeholders. Braces around anything but a name are text.
pub(crate) fn parts(text: &str) -> Vec<TemplatePart<'_>> {
    let mut parts = Vec::new();
    let (mut rest, mut search_start) = (text, 0);
    while let Some(at) = rest[search_start..].find('{').map(|at| search_start + at) {
        let end = rest[at..].find('}').map(|end| at + end);
        // Braces that enclose no valid name are ordinary text, for example JSON.
        let Some(end) = end.filter(|end| is_placeholder_name(&rest[at + 1..*end])) else {
            search_start = at + 1;
            continue;
        };
        parts.push(TemplatePart::Text(&rest[..at]));
        parts.push(TemplatePart::Secret(&rest[at + 1..end]));
        (rest, search_start) = (&rest[end + 1..], 0);
    }
    parts.push(TemplatePart::Text(rest));
    parts.retain(|part| *part != TemplatePart::Text(""));
    parts
}

/// Returns true for a valid name of a secret. Expressions use the name as `secrets.NAME`.
pub(crate) fn is_placeholder_name(name: &str) -> bool {
    let is_letter = |character: char| character.is_ascii_alphabetic() || character == '_';
    name.starts_with(is_letter) && name.chars().all(|character| is_letter(character) || character.is_ascii_digit())
}

/// Replaces placeholders by secrets. Returns true as second value if any secret was used. Unknown placeholders stay
/// unchanged.
pub(crate) fn fill(text: &str, secrets: &BTreeMap<String, Secret>) -> Result<(String, bool), String> {
    let (mut filled, mut has_secrets) = (String::new(), false);
    for part in parts(text) {
        match part {
            TemplatePart::Text(text) => filled.push_str(text),
            TemplatePart::Secret(name) => match secrets.get(name) {
                Some(secret) => {
                    let text = secret.text().ok_or_else(|| format!("the secret {name} is not text"))?;
                    filled.push_str(text);
                    has_secrets = true;
                }
                None => filled.extend(["{", name, "}"]),
            },
        }
    }
    Ok((filled, has_secrets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_names_in_braces() {
        use TemplatePart::{Secret, Text};
        assert_eq!(parts("https://h/{a_1}/x{b}"), [Text("https://h/"), Secret("a_1"), Text("/x"), Secret("b")]);
        for text in ["no braces", "{", "}{", "{}", "{a b}", "{\"json\": 1}", "{1}"] {
            assert_eq!(parts(text), [Text(text)], "{text}");
        }
        assert_eq!(parts("{{a}}"), [Text("{"), Secret("a"), Text("}")]);
        assert_eq!(parts(""), []);
    }
}
