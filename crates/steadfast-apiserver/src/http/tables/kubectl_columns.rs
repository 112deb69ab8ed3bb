//! Columns of `kubectl get` for programs that show objects themselves.

use jiff::Timestamp;
use serde_json::Value;

use super::column::Column;
use super::columns;
use super::defined;
use crate::clock::Clock;
use crate::resources::{Definition, PrinterColumn};

/// Columns that `kubectl get` prints for the objects of one kind.
///
/// ```
/// # use steadfast_apiserver::KubectlColumns;
/// let columns = KubectlColumns::for_kind("", "ConfigMap");
/// let names: Vec<String> = columns.columns().into_iter().map(|column| column.name).collect();
/// assert_eq!(names, ["Name", "Data", "Age"]);
/// ```
#[derive(Clone, Debug)]
pub struct KubectlColumns(ColumnSource);

#[derive(Clone, Debug)]
enum ColumnSource {
    Static(&'static [Column]),
    Declared(Vec<PrinterColumn>),
}

/// A column of [`KubectlColumns`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KubectlColumn {
    /// Heading of the column.
    pub name: String,
    /// True if the cells are ages or times.
    pub is_time: bool,
    /// True if the column is only part of `-o wide`.
    pub is_wide: bool,
}

impl KubectlColumns {
    /// Returns the columns of a built-in kind. Kinds without columns of their own have a name and a time.
    pub fn for_kind(group: &str, kind: &str) -> Self {
        Self(ColumnSource::Static(columns::for_kind(group, kind)))
    }

    /// Returns the columns of `version` in a `CustomResourceDefinition`: the declared ones, or else name and age.
    pub fn of_definition(definition: &Value, version: &str) -> Self {
        let definition = Definition::parse(definition.get("spec").unwrap_or(&Value::Null));
        let declared = definition.version(version).and_then(|version| version.columns.clone());
        Self(declared.map_or(ColumnSource::Static(columns::CUSTOM), ColumnSource::Declared))
    }

    /// Returns the columns in their order.
    pub fn columns(&self) -> Vec<KubectlColumn> {
        let is_time = |name: &str, kind: &str| {
            kind == "date" || matches!(name, "Age" | "Created At" | "Last Seen" | "First Seen")
        };
        match &self.0 {
            ColumnSource::Static(columns) => {
                let column = |column: &Column| KubectlColumn {
                    name: column.name.to_owned(),
                    is_time: is_time(column.name, column.kind),
                    is_wide: column.is_wide,
                };
                columns.iter().map(column).collect()
            }
            ColumnSource::Declared(columns) => {
                let name = KubectlColumn { name: "Name".to_owned(), is_time: false, is_wide: false };
                let column = |column: &PrinterColumn| KubectlColumn {
                    name: column.name.clone(),
                    is_time: is_time(&column.name, &column.kind),
                    is_wide: column.priority > 0,
                };
                [name].into_iter().chain(columns.iter().map(column)).collect()
            }
        }
    }

    /// Returns the cells of `object`, one for each column, with ages at the time `now`. The cells are not escaped.
    pub fn cells(&self, object: &Value, now: Timestamp) -> Vec<String> {
        let clock = Clock::starting_at(now);
        let cells = match &self.0 {
            ColumnSource::Static(columns) => columns.iter().map(|column| column.cell(object, &clock)).collect(),
            ColumnSource::Declared(columns) => defined::row(columns, object, &clock),
        };
        let text = |cell| match cell {
            Value::String(text) => text,
            Value::Null => String::new(),
            other => other.to_string(),
        };
        cells.into_iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn builtin_and_declared_columns_have_cells() {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().expect("a time");
        let metadata = json!({"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"});
        let claim = json!({"metadata": metadata, "data": {"x": "1"}, "spec": {"size": 3}});
        let builtin = KubectlColumns::for_kind("", "ConfigMap");
        assert_eq!(builtin.cells(&claim, now), ["a", "1", "60m"]);
        let column = json!({"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1});
        let definition =
            json!({"spec": {"group": "g", "versions": [{"name": "v1", "additionalPrinterColumns": [column]}]}});
        let declared = KubectlColumns::of_definition(&definition, "v1");
        assert_eq!(declared.cells(&claim, now), ["a", "3"]);
        assert!(declared.columns()[1].is_wide);
        assert_eq!(KubectlColumns::of_definition(&definition, "v2").cells(&claim, now), ["a", "60m"]);
    }
}
