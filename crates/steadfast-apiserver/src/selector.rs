//! Label and field selectors.

use serde_json::Value;

use crate::resources::ServedResource;
use crate::status::Status;

mod labels;
mod object;
mod text;

pub(crate) use labels::LabelSelector;
pub(crate) use object::matches;
pub(crate) use text::text;

/// Selection of a resource's objects in a list or a watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: LabelSelector,
    fields: Vec<FieldRequirement>,
}

#[derive(Clone, Debug)]
struct FieldRequirement {
    path: Vec<String>,
    value: String,
    is_equality: bool,
}

impl Selector {
    /// Parses both selectors. Rejects fields that the resource does not support.
    pub(crate) fn parse(labels: &str, fields: &str, resource: &ServedResource) -> Result<Self, Status> {
        let labels = LabelSelector::parse(labels)?;
        let fields = split_unescaped(fields)
            .into_iter()
            .map(|term| FieldRequirement::parse(&term, resource))
            .collect::<Result<_, _>>()?;
        Ok(Self { labels, fields })
    }

    /// Returns whether the selector matches all objects.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_empty()
    }

    /// Returns whether the selector matches objects of one name only.
    pub(crate) fn names_one(&self) -> bool {
        // `!=` with a name excludes one object and selects all others.
        self.fields.iter().any(|requirement| requirement.is_equality && requirement.path == ["metadata", "name"])
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.labels.matches(object) && self.fields.iter().all(|requirement| requirement.matches(object))
    }
}

impl FieldRequirement {
    fn parse(term: &str, resource: &ServedResource) -> Result<Self, Status> {
        let Some((operator, length, is_equality)) = find_operator(term) else {
            return Err(Status::bad_request(format_args!("invalid selector: '{term}'; can't understand '{term}'")));
        };
        let field = &term[..operator];
        let is_supported = field == "metadata.name"
            || field == "metadata.namespace" && (resource.namespaced || !resource.is_custom)
            || resource.selectable_fields.iter().any(|selectable| selectable == field);
        if !is_supported {
            // Kinds with selectable fields have another message.
            return Err(if resource.is_custom || !resource.selectable_fields.is_empty() {
                Status::bad_request(format_args!("field label not supported: {field}"))
            } else {
                Status::bad_request(format_args!(
                    "\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                ))
            });
        }
        Ok(Self {
            path: resource.stored_path(field).split('.').map(str::to_owned).collect(),
            value: unescape(&term[operator + length..])?,
            is_equality,
        })
    }

    fn matches(&self, object: &Value) -> bool {
        let found = self.path.iter().try_fold(object, |value, step| value.get(step));
        let text = match found {
            Some(Value::String(text)) => text.clone(),
            // The source of an event is its component, or else its reporting component.
            None | Some(Value::Object(_)) if self.path == ["source"] => {
                let component = found.and_then(|source| source.get("component")).and_then(Value::as_str);
                let reporting = || object.get("reportingComponent").and_then(Value::as_str);
                component.filter(|name| !name.is_empty()).or_else(reporting).unwrap_or_default().to_owned()
            }
            // As in typed objects, an absent flag equals false, and an absent number or string equals the empty value.
            Some(Value::Null) | None if matches!(self.value.as_str(), "true" | "false") => "false".to_owned(),
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_string(),
        };
        // `is_equality` is false for `!=`, which then requires a different text.
        (text == self.value) == self.is_equality
    }
}

/// Returns the first `=`, `==` or `!=`: its position, its length, and whether it tests equality.
fn find_operator(term: &str) -> Option<(usize, usize, bool)> {
    let position = term.find(['=', '!'])?;
    let rest = &term[position..];
    if rest.starts_with("!=") {
        Some((position, 2, false))
    } else if rest.starts_with("==") {
        Some((position, 2, true))
    } else {
        rest.starts_with('=').then_some((position, 1, true))
    }
}

/// Splits at commas that are not escaped by a backslash.
fn split_unescaped(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for character in text.chars() {
        if character == ',' && !escaped {
            terms.push(String::new());
        } else if let Some(term) = terms.last_mut() {
            term.push(character);
        }
        // An escaped backslash does not escape the next character.
        escaped = character == '\\' && !escaped;
    }
    terms.retain(|term| !term.is_empty());
    terms
}

fn unescape(text: &str) -> Result<String, Status> {
    let mut characters = text.chars();
    let mut plain = String::with_capacity(text.len());
    while let Some(character) = characters.next() {
        // Terms are split at unescaped commas, so only this character can remain.
        if character == '=' {
            // The real server prints the number of the character too.
            let detail = format!("invalid field selector: unescaped character in value: {}", u32::from(character));
            return Err(Status::bad_request(detail));
        }
        if character != '\\' {
            plain.push(character);
            continue;
        }
        match characters.next() {
            Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
            other => {
                let sequence: String = other.into_iter().collect();
                let detail = format_args!("invalid field selector: invalid escape sequence: \\{sequence}").to_string();
                return Err(Status::bad_request(detail));
            }
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::unescape;

    #[test]
    fn unescaped_equals_sign_is_rejected() {
        assert_eq!(unescape(r"b\=c\,d").map_err(|status| status.message), Ok("b=c,d".to_owned()));
        let status = unescape("b=c").expect_err("an unescaped character");
        assert_eq!(status.message, "invalid field selector: unescaped character in value: 61");
    }
}
