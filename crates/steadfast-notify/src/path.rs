//! The path to a field of an object, as `changed(…)` takes it.

use std::str::FromStr;

use serde_json::Value;

/// `spec.replicas`, `spec.containers[0].image`, `metadata.annotations['a.b/c']`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldOf(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Item(usize),
}

impl FieldOf {
    /// What is there, if anything is.
    pub(crate) fn of<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(object, |value, step| match step {
            Step::Field(name) => value.get(name),
            Step::Item(number) => value.get(number),
        })
    }
}

impl FieldOf {
    /// The steps: the name of a field, or `None` for an item of a list.
    pub(crate) fn names(&self) -> impl Iterator<Item = Option<&str>> {
        self.0.iter().map(|step| match step {
            Step::Field(name) => Some(name.as_str()),
            Step::Item(_) => None,
        })
    }
}

impl FromStr for FieldOf {
    /// What is wrong with it.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{text:?} is no path to a field, as `spec.replicas` is: {why}");
        let (mut steps, mut rest) = (Vec::new(), text);
        while !rest.is_empty() || steps.is_empty() {
            if let Some(inside) = rest.strip_prefix('[') {
                let quote = inside.chars().next().filter(|letter| ['\'', '"'].contains(letter));
                let end = match quote {
                    Some(quote) => {
                        inside[1..].find([quote]).map(|at| at + 2).filter(|at| inside[*at..].starts_with(']'))
                    }
                    None => inside.find(']'),
                };
                let end = end.ok_or_else(|| wrong("a bracket is not closed"))?;
                steps.push(match quote {
                    Some(_) => Step::Field(inside[1..end - 1].to_owned()),
                    None => Step::Item(inside[..end].parse().map_err(|_| wrong("a number has to be in the brackets"))?),
                });
                rest = &inside[end + 1..];
            } else {
                let name = if steps.is_empty() { rest } else { rest.strip_prefix('.').unwrap_or(rest) };
                let end = name.find(['.', '[']).unwrap_or(name.len());
                if end == 0 {
                    return Err(wrong("a name is empty"));
                }
                steps.push(Step::Field(name[..end].to_owned()));
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
    fn paths_lead_to_what_they_name() {
        let object = json!({
            "spec": {"containers": [{"image": "a"}, {"image": "b"}]},
            "metadata": {"annotations": {"a.b/c": "d"}},
        });
        let at = |path: &str| path.parse::<FieldOf>().expect("it is a path").of(&object).cloned();
        assert_eq!(at("spec.containers[1].image"), Some(json!("b")));
        assert_eq!(at("metadata.annotations['a.b/c']"), Some(json!("d")));
        assert_eq!(at("['spec'].containers[2]"), None);
        assert_eq!(at("spec.replicas.x"), None);
    }

    #[test]
    fn what_leads_nowhere_is_refused_with_what_is_wrong() {
        for (path, why) in [
            ("", "a name is empty"),
            ("spec..x", "a name is empty"),
            ("spec.", "a name is empty"),
            ("spec[0", "a bracket is not closed"),
            ("spec['x]", "a bracket is not closed"),
            ("spec[x]", "a number has to be in the brackets"),
        ] {
            let told = path.parse::<FieldOf>().expect_err(path);
            assert!(told.contains(why), "{told}");
        }
    }
}
