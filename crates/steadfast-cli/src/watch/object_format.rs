//! Formats that print objects instead of changes: YAML, names, templates and columns.

use std::sync::Arc;

use serde_json::Value;
use steadfast_apiserver::JsonPath;

use crate::changes::kind::Kind;
use crate::changes::text::escape;
use crate::output_format::CustomColumn;

/// Minimum width of a column.
const MIN_COLUMN_WIDTH: usize = 16;

/// Text of a missing value in a column, as in kubectl.
const NO_VALUE: &str = "<none>";

/// Format of an object.
#[derive(Clone, Debug)]
pub(super) enum ObjectFormat {
    /// The whole object.
    Yaml,
    /// Resource and name.
    Name,
    /// A template.
    JsonPath(Arc<JsonPath>),
    /// A row of columns.
    CustomColumns(Arc<[CustomColumn]>),
}

impl ObjectFormat {
    /// Formats `object`, which must contain no hidden values. `comment` describes the event.
    pub(super) fn render(&self, kind: &Kind, comment: &str, object: &Value) -> String {
        match self {
            Self::Yaml => format!("---\n# {comment}\n{}", yaml(object)),
            Self::Name => {
                let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
                let separator = if kind.group.is_empty() { "" } else { "." };
                // The form of `kubectl get -o name`, which other commands of kubectl accept as an argument.
                format!("{}{separator}{}/{}", kind.kind.to_lowercase(), kind.group, escape(name))
            }
            // An error of a path concerns this object only: other objects may have the field.
            Self::JsonPath(template) => match template.render(object) {
                Ok(text) => escape_lines(&text),
                Err(error) => format!("error: {}", escape(&error)),
            },
            Self::CustomColumns(columns) => row(columns.iter().map(|column| {
                let text = column.path.render(object).unwrap_or_default();
                if text.is_empty() { NO_VALUE.to_owned() } else { escape(&text).into_owned() }
            })),
        }
    }

    /// Returns the line before the first object.
    pub(super) fn heading(&self) -> Option<String> {
        match self {
            Self::CustomColumns(columns) => Some(row(columns.iter().map(|column| column.heading.clone()))),
            _ => None,
        }
    }
}

/// Returns `object` as YAML, without a final line break.
pub(crate) fn yaml(object: &Value) -> String {
    // Cannot fail: the object is JSON.
    let text = serde_saphyr::to_string(object).unwrap_or_default();
    escape_lines(text.trim_end())
}

/// Escapes each line. The line breaks of a template or document remain.
fn escape_lines(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(escape).collect();
    lines.join("\n")
}

fn row(cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.map(|cell| format!("{cell:MIN_COLUMN_WIDTH$}")).collect();
    cells.join("  ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output_format::OutputFormat;

    fn pod() -> Value {
        json!({"kind": "Pod", "metadata": {"name": "web-0"}, "status": {"phase": "Running", "message": "a\u{1b}[2J"}})
    }

    #[test]
    fn yaml_is_one_escaped_document() {
        let text = ObjectFormat::Yaml.render(&Kind::new("", "Pod"), "~ pods shop/web-0", &pod());
        assert!(text.starts_with("---\n# ~ pods shop/web-0\n"), "{text}");
        assert!(!text.chars().any(|character| character.is_control() && character != '\n'), "{text}");
        let read: Value = serde_saphyr::from_str(&text).expect("valid YAML");
        assert_eq!((&read["metadata"], &read["status"]["phase"]), (&pod()["metadata"], &json!("Running")));
    }

    #[test]
    fn names_and_columns_are_rendered() {
        assert_eq!(ObjectFormat::Name.render(&Kind::new("apps", "Deployment"), "", &pod()), "deployment.apps/web-0");
        assert_eq!(ObjectFormat::Name.render(&Kind::new("", "Pod"), "", &pod()), "pod/web-0");
        let Ok(OutputFormat::CustomColumns(columns)) = "custom-columns=NAME:.metadata.name,IP:.status.podIP".parse()
        else {
            panic!("columns")
        };
        let columns = ObjectFormat::CustomColumns(columns);
        assert_eq!(columns.heading().as_deref(), Some("NAME              IP"));
        assert_eq!(columns.render(&Kind::new("", "Pod"), "", &pod()), "web-0             <none>");
    }
}
