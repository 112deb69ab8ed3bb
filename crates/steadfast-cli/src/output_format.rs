//! Output formats: of `watch`, `-o text|wide|json|yaml|name|jsonpath=…|custom-columns=…`, and of the other commands.

use std::str::FromStr;
use std::sync::Arc;

use clap::ValueEnum;
use steadfast_apiserver::JsonPath;

/// Output formats of the other commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Text for people.
    Text,
    /// JSON for programs.
    Json,
}

/// Output format of events.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OutputFormat {
    /// Description of the change, for people.
    Text,
    /// Description of the change, with the current state of the object.
    Wide,
    /// One JSON object per line.
    Json,
    /// The whole object after each event.
    Yaml,
    /// Resource and name, as other commands take them.
    Name,
    /// A template for each event.
    JsonPath(Arc<JsonPath>),
    /// One row for each event.
    CustomColumns(Arc<[CustomColumn]>),
}

/// Column of `custom-columns`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CustomColumn {
    pub(crate) heading: String,
    pub(crate) path: JsonPath,
}

impl FromStr for OutputFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        match (name, value) {
            ("text", None) => Ok(Self::Text),
            ("wide", None) => Ok(Self::Wide),
            ("json", None) => Ok(Self::Json),
            ("yaml", None) => Ok(Self::Yaml),
            ("name", None) => Ok(Self::Name),
            ("jsonpath", Some(template)) => {
                let template = JsonPath::parse_template(&with_braces(template));
                template
                    .map(|path| Self::JsonPath(Arc::new(path)))
                    .map_err(|reason| format!("invalid template: {reason}"))
            }
            ("custom-columns", Some(columns)) => {
                let columns: Result<Vec<_>, _> = columns.split(',').map(column).collect();
                Ok(Self::CustomColumns(columns?.into()))
            }
            ("jsonpath", None) => Err("the template is missing; write it as in jsonpath='{.status.phase}'".to_owned()),
            ("custom-columns", None) => {
                Err("the columns are missing; write them as in custom-columns=NAME:.metadata.name".to_owned())
            }
            _ => Err("formats are text, wide, json, yaml, name, jsonpath=… and custom-columns=…".to_owned()),
        }
    }
}

/// Returns the template, with braces added to a path without braces, as in kubectl.
fn with_braces(template: &str) -> String {
    if template.contains('{') { template.to_owned() } else { format!("{{{template}}}") }
}

fn column(text: &str) -> Result<CustomColumn, String> {
    let (heading, path) = text
        .split_once(':')
        .filter(|(heading, path)| !heading.is_empty() && !path.is_empty())
        .ok_or_else(|| format!("the column {text:?} is not HEADING:PATH, as in NAME:.metadata.name"))?;
    // The leading dot is optional in kubectl.
    let path = if path.starts_with(['.', '{', '[']) { path.to_owned() } else { format!(".{path}") };
    let path =
        JsonPath::parse_template(&with_braces(&path)).map_err(|reason| format!("the column {heading}: {reason}"))?;
    Ok(CustomColumn { heading: heading.to_owned(), path })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn formats_parse_as_in_kubectl() {
        let object = json!({"metadata": {"name": "web"}, "status": {"phase": "Running"}});
        for (text, rendered) in [
            ("jsonpath={.status.phase}", "Running"),
            ("jsonpath=.status.phase", "Running"),
            ("jsonpath={.metadata.name}={.status.phase}", "web=Running"),
        ] {
            let Ok(OutputFormat::JsonPath(path)) = text.parse() else { panic!("{text}") };
            assert_eq!(path.render(&object).as_deref(), Ok(rendered), "{text}");
        }
        let Ok(OutputFormat::CustomColumns(columns)) = "custom-columns=NAME:.metadata.name,PHASE:status.phase".parse()
        else {
            panic!("columns")
        };
        let cells: Vec<_> = columns.iter().map(|column| column.path.render(&object)).collect();
        assert_eq!(cells, [Ok("web".to_owned()), Ok("Running".to_owned())]);
        assert_eq!("wide".parse(), Ok(OutputFormat::Wide));
    }

    #[test]
    fn invalid_formats_are_rejected_with_remedy() {
        for (text, reason) in [
            ("xml", "formats are text"),
            ("json=1", "formats are text"),
            ("jsonpath", "the template is missing"),
            ("jsonpath={.a", "unclosed action"),
            ("custom-columns=NAME", "is not HEADING:PATH"),
        ] {
            let error = text.parse::<OutputFormat>().expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
