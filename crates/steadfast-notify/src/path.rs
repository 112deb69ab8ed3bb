//! Path to a field of an object, the argument of `changed(…)`.

use std::str::FromStr;

use serde_json::Value;

/// Path such as `spec.replicas`, `spec.containers[0].image` or `metadata.annotations['a.b/c']`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValuePath(Vec<PathStep>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum PathStep {
    Field(String),
    Item(usize),
}

impl ValuePath {
    /// Returns the value at the path, if present.
    pub(crate) fn resolve<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(object, |value, step| match step {
            PathStep::Field(name) => value.get(name),
            PathStep::Item(number) => value.get(number),
        })
    }
}

impl ValuePath {
    /// Returns the steps: the name of a field, or `None` for a list item.
    pub(crate) fn field_names(&self) -> impl Iterator<Item = Option<&str>> {
        self.0.iter().map(|step| match step {
            PathStep::Field(name) => Some(name.as_str()),
            PathStep::Item(_) => None,
        })
    }
}

impl FromStr for ValuePath {
    /// Description of the syntax error.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let syntax_error =
            |reason: &str| format!("{text:?} is not a valid path to a field such as `spec.replicas`: {reason}");
        let (mut steps, mut rest) = (Vec::new(), text);
        while !rest.is_empty() || steps.is_empty() {
            if let Some(inside) = rest.strip_prefix('[') {
                let quote = inside.chars().next().filter(|character| ['\'', '"'].contains(character));
                let end = match quote {
                    Some(quote) => {
                        inside[1..].find([quote]).map(|at| at + 2).filter(|at| inside[*at..].starts_with(']'))
                    }
                    None => inside.find(']'),
                };
                let end = end.ok_or_else(|| syntax_error("a bracket is not closed"))?;
                steps.push(match quote {
                    Some(_) => PathStep::Field(inside[1..end - 1].to_owned()),
                    None => PathStep::Item(
                        inside[..end].parse().map_err(|_| syntax_error("brackets need a number or a quoted name"))?,
                    ),
                });
                rest = &inside[end + 1..];
            } else {
                let name = if steps.is_empty() { rest } else { rest.strip_prefix('.').unwrap_or(rest) };
                let end = name.find(['.', '[']).unwrap_or(name.len());
                if end == 0 {
                    return Err(syntax_error("a name is empty"));
                }
                steps.push(PathStep::Field(name[..end].to_owned()));
                rest = &name[end..];
            }
        }
        Ok(Self(steps))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_resolve_to_field_values() {
        let object = json!({
            "spec": {"containers": [{"image": "a"}, {"image": "b"}]},
            "metadata": {"annotations": {"a.b/c": "d"}},
        });
        let resolve_text = |path: &str| path.parse::<ValuePath>().expect("a valid path").resolve(&object).cloned();
        assert_eq!(resolve_text("spec.containers[1].image"), Some(json!("b")));
        assert_eq!(resolve_text("metadata.annotations['a.b/c']"), Some(json!("d")));
        assert_eq!(resolve_text("['spec'].containers[2]"), None);
        assert_eq!(resolve_text("spec.replicas.x"), None);
    }

    #[test]
    fn invalid_paths_are_rejected_with_reason() {
        for (path, reason) in [
            ("", "a name is empty"),
            ("spec..x", "a name is empty"),
            ("spec.", "a name is empty"),
            ("spec[0", "a bracket is not closed"),
            ("spec['x]", "a bracket is not closed"),
            ("spec[x]", "brackets need a number or a quoted name"),
        ] {
            let error = path.parse::<ValuePath>().expect_err(path);
            assert!(error.contains(reason), "{error}");
        }
    }
}
