//! Paths to fields, as users write them: `spec.nodeName`, `metadata.labels["app.kubernetes.io/name"]`,
//! `spec.containers[*].image`.

use steadfast::FieldPath;

use crate::tree::{Map, Node};

/// Path to one or several fields.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    /// Names up to the first list, which the library decodes without the rest of the object.
    prefix: FieldPath,
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    Member(String),
    /// Each element of a list, or each value of an object.
    EachElement,
}

impl Path {
    /// Parses a path.
    ///
    /// # Errors
    ///
    /// Returns the error with its position.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let steps = steps(text)?;
        let mut rest = &steps[..];
        let mut prefix: Option<FieldPath> = None;
        while let [Step::Member(name), following @ ..] = rest {
            // `FieldPath::new` would split a name that contains dots.
            prefix = Some(match prefix {
                Some(path) => path.then(name),
                None if name.contains('.') => return Err(format!("path {text:?} starts with a quoted name")),
                None => FieldPath::new(name),
            });
            rest = following;
        }
        match prefix {
            Some(prefix) => Ok(Self { prefix, steps: rest.to_vec() }),
            None => Err(format!("path {text:?} must start with a field name, such as spec")),
        }
    }

    /// Returns the path up to the first list.
    pub(crate) fn prefix(&self) -> &FieldPath {
        &self.prefix
    }

    /// Returns the value at [`prefix`](Self::prefix) in an object.
    pub(crate) fn value<'a>(&self, root: &'a Map) -> Option<&'a Node> {
        let (last, above) = self.prefix.names().split_last()?;
        let parent = above.iter().try_fold(root, |map, name| match map.get(name)? {
            Node::Map(inner) => Some(inner),
            _ => None,
        })?;
        parent.get(last)
    }

    /// Calls `on_value` for each value below `node`, the value at [`prefix`](Self::prefix).
    pub(crate) fn visit<'a>(&self, node: &'a Node, on_value: &mut dyn FnMut(&'a Node)) {
        visit(node, &self.steps, on_value);
    }

    /// Returns true if the path can lead to several values.
    pub(crate) fn is_plural(&self) -> bool {
        !self.steps.is_empty()
    }
}

fn visit<'a>(node: &'a Node, steps: &[Step], on_value: &mut dyn FnMut(&'a Node)) {
    let Some((step, rest)) = steps.split_first() else { return on_value(node) };
    match (step, node) {
        (Step::EachElement, Node::List(elements)) => elements.iter().for_each(|element| visit(element, rest, on_value)),
        (Step::EachElement, Node::Map(map)) => map.members().iter().for_each(|(_, value)| visit(value, rest, on_value)),
        (Step::Member(name), Node::Map(map)) => {
            if let Some(value) = map.get(name) {
                visit(value, rest, on_value);
            }
        }
        _ => {}
    }
}

fn steps(text: &str) -> Result<Vec<Step>, String> {
    if let Some(path) = correct_form(text) {
        return Err(format!("path {text:?} has another syntax; write {path}"));
    }
    let mut steps = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let error = || format!("path {text:?} has no closing ']' with [\"name\"] or [*]");
            let (step, after) = if let Some(after) = inner.strip_prefix("*]") {
                (Step::EachElement, after)
            } else {
                let index = inner.split_once(']').map(|(index, _)| index.trim_start_matches('-'));
                if index.is_some_and(|index| !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit())) {
                    return Err(format!(
                        "path {text:?} contains a position, which is not supported; write [*] for all elements"
                    ));
                }
                let quote = inner.chars().next().filter(|quote| matches!(quote, '"' | '\'')).ok_or_else(error)?;
                let (name, after) = inner[1..].split_once(quote).ok_or_else(error)?;
                (Step::Member(name.to_owned()), after.strip_prefix(']').ok_or_else(error)?)
            };
            steps.push(step);
            rest = rest_after_separator(text, after)?;
            continue;
        }
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        if end == 0 {
            return Err(format!("path {text:?} contains an empty name; write spec.nodeName"));
        }
        steps.push(Step::Member(rest[..end].to_owned()));
        rest = rest_after_separator(text, &rest[end..])?;
    }
    Ok(steps)
}

/// Returns the path in the syntax of this module, if `text` is a `JSONPath` or a JSON pointer.
fn correct_form(text: &str) -> Option<String> {
    let inner = text.strip_prefix('{').map_or(text, |inner| inner.strip_suffix('}').unwrap_or(inner));
    let from_root = inner.strip_prefix('$').unwrap_or(inner);
    let is_json_path = from_root.len() < text.len() || from_root.starts_with('.');
    // No field above the first bracket has a slash in its name; names in brackets may have one.
    let is_pointer = from_root.split('[').next().is_some_and(|names| names.contains('/'));
    if !is_json_path && !is_pointer {
        return None;
    }
    let names = from_root.split(['.', '/']).filter(|name| !name.is_empty());
    let path = if is_pointer { names.collect::<Vec<_>>().join(".") } else { from_root.trim_matches('.').to_owned() };
    Some(if path.is_empty() { "spec.nodeName".to_owned() } else { path })
}

/// Returns the rest of the path after the separator of two steps. `after` is the part of the path `text` behind a step.
fn rest_after_separator<'a>(text: &str, after: &'a str) -> Result<&'a str, String> {
    match after.strip_prefix('.') {
        Some("") => Err(format!("path {text:?} ends with a dot")),
        Some(next) => Ok(next),
        None if after.is_empty() || after.starts_with('[') => Ok(after),
        None => Err(format!("path {text:?} lacks a dot before {after:?}")),
    }
}

/// Returns the index values of a node: a scalar, or each scalar of a list.
pub(crate) fn index_values(node: &Node, values: &mut Vec<String>) {
    match node {
        Node::Text(text) => values.push(text.to_string()),
        Node::Int(number) => values.push(number.to_string()),
        Node::Unsigned(number) => values.push(number.to_string()),
        Node::Float(number) => values.push(number.to_string()),
        Node::Bool(value) => values.push(value.to_string()),
        Node::List(elements) => elements.iter().for_each(|element| index_values(element, values)),
        Node::Null | Node::Map(_) => {}
    }
}
