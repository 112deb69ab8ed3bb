//! Field selectors: `metadata.name`, `metadata.namespace` and dotted paths.

use serde_json::Value;

use super::SelectorError;

/// A field selector. An object must meet all requirements.
#[derive(Debug, PartialEq)]
pub(crate) struct FieldSelector(Vec<FieldRequirement>);

#[derive(Debug, PartialEq)]
struct FieldRequirement {
    path: String,
    value: String,
    is_equality: bool,
}

impl FieldSelector {
    pub(crate) fn parse(text: &str) -> Result<Self, SelectorError> {
        let terms = split_terms(text).into_iter().filter(|term| !term.is_empty());
        terms.map(|term| FieldRequirement::parse(text, &term)).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> + Clone {
        self.0.iter().map(|requirement| requirement.path.as_str())
    }

    pub(crate) fn matches(&self, namespace: Option<&str>, name: &str, object: &Value) -> bool {
        self.0.iter().all(|FieldRequirement { path, value, is_equality }| {
            let actual = match path.as_str() {
                "metadata.name" => name.to_owned(),
                "metadata.namespace" => namespace.unwrap_or_default().to_owned(),
                path => field_text(object, path),
            };
            (actual == *value) == *is_equality
        })
    }
}

impl FieldRequirement {
    fn parse(selector: &str, term: &str) -> Result<Self, SelectorError> {
        // As in apimachinery, the first operator ends the path. `==` is tried before `=`, so that its second `=` is not
        // part of the value.
        let operators = [("!=", false), ("==", true), ("=", true)];
        let found = term.char_indices().find_map(|(position, _)| {
            let (path, rest) = term.split_at(position);
            operators.iter().find_map(|(operator, is_equality)| {
                rest.strip_prefix(operator).map(|value| (path, value, *is_equality))
            })
        });
        let Some((path, value, is_equality)) = found else {
            return Err(SelectorError::new(selector, format!("{term:?} has no operator")));
        };
        if path.is_empty() {
            return Err(SelectorError::new(selector, "a path is missing"));
        }
        let value = unescape(value).map_err(|problem| SelectorError::new(selector, problem))?;
        Ok(Self { path: path.to_owned(), value, is_equality })
    }
}

/// Returns the text that the server compares: empty for a missing field.
fn field_text(object: &Value, path: &str) -> String {
    match path.split('.').try_fold(object, |value, step| value.get(step)) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Splits a selector at its commas. An escaped comma belongs to a value.
fn split_terms(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut is_escaped = false;
    for character in text.chars() {
        let last = terms.len() - 1;
        match character {
            ',' if !is_escaped => terms.push(String::new()),
            character => terms[last].push(character),
        }
        is_escaped = character == '\\' && !is_escaped;
    }
    terms
}

/// Removes the escapes of a value. As in apimachinery, `\\`, `,` and `=` must be escaped, and no other character may be.
fn unescape(value: &str) -> Result<String, String> {
    let mut text = String::new();
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => text.push(escaped),
                other => {
                    let sequence: String = other.into_iter().collect();
                    return Err(format!("invalid escape sequence \\{sequence}"));
                }
            },
            ',' | '=' => return Err(format!("{character:?} in the value {value:?} is not escaped")),
            character => text.push(character),
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn matches(selector: &str) -> bool {
        let pod = json!({ "spec": { "nodeName": "node-1", "replicas": 3 }, "status": { "phase": "Running" } });
        FieldSelector::parse(selector).expect(selector).matches(Some("shop"), "web-0", &pod)
    }

    #[test]
    fn paths_and_identity_are_compared_as_text() {
        assert!(matches("spec.nodeName=node-1,status.phase!=Failed"));
        assert!(matches("metadata.name==web-0,metadata.namespace=shop"));
        assert!(matches("spec.replicas=3"));
        assert!(!matches("spec.nodeName=node-2"));
        assert!(!matches("metadata.namespace!=shop"));
        assert!(matches(""));
    }

    #[test]
    fn a_missing_field_is_empty() {
        assert!(matches("spec.hostname="));
        assert!(!matches("spec.hostname!="));
    }

    #[test]
    fn escaped_characters_belong_to_the_value() {
        let object = json!({ "spec": { "note": "a,b=c\\" } });
        let selector = FieldSelector::parse(r"spec.note=a\,b\=c\\").unwrap();
        assert!(selector.matches(None, "x", &object));
    }

    #[test]
    fn invalid_selectors_are_rejected() {
        for selector in ["spec.nodeName", "=x", "a=b,c"] {
            assert!(FieldSelector::parse(selector).is_err(), "{selector}");
        }
    }

    /// `fields.ParseSelector` of apimachinery rejects these selectors.
    #[test]
    fn wrong_escapes_are_rejected() {
        for selector in ["a=b=c", "a==b=c", "a=b!=c", "a===b", r"a=\x", r"a=b\", r"a=b\\\"] {
            assert!(FieldSelector::parse(selector).is_err(), "{selector}");
        }
    }
}
