//! Printer columns of a custom resource, from its definition.

use serde_json::Value;

use super::phrases::{at, text};

/// Printer column with a simple path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    /// Heading of the column.
    pub(crate) name: String,
    /// Path of the value: names of fields, separated by slashes.
    pub(crate) pattern: String,
}

impl Column {
    /// Returns the columns of `version` in a `CustomResourceDefinition`. Columns with filters or lists are left out.
    pub(crate) fn of(definition: &Value, version: &str) -> Vec<Self> {
        let versions = definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
        let served = versions.filter(|served| served.get("name").and_then(Value::as_str) == Some(version));
        let columns = served.filter_map(|served| served.get("additionalPrinterColumns")?.as_array()).flatten();
        columns.filter_map(Self::parse).collect()
    }

    fn parse(column: &Value) -> Option<Self> {
        let path = column.get("jsonPath")?.as_str()?;
        let fields: Vec<&str> = path.strip_prefix('.')?.split('.').collect();
        let is_name = |name: &&str| {
            !name.is_empty()
                && name.chars().all(|character| character.is_ascii_alphanumeric() || "_-".contains(character))
        };
        // The age is not part of the object's state.
        let is_simple = fields.iter().all(is_name) && fields[0] != "metadata";
        is_simple.then(|| Self { name: text(column, "name").to_owned(), pattern: fields.join("/") })
    }

    /// Returns the column's value in `object`.
    pub(crate) fn value<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        at(object, &self.pattern)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn simple_columns_are_read() {
        let column = |name: &str, path: &str| json!({"name": name, "jsonPath": path, "type": "string"});
        let columns = json!([
            column("Phase", ".status.phase"),
            column("Age", ".metadata.creationTimestamp"),
            column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
        ]);
        let version = json!({"name": "v1", "additionalPrinterColumns": columns});
        let definition = json!({"spec": {"versions": [{"name": "v0"}, version]}});
        let columns = Column::of(&definition, "v1");
        assert_eq!(columns, [Column { name: "Phase".to_owned(), pattern: "status/phase".to_owned() }]);
        assert_eq!(columns[0].value(&json!({"status": {"phase": "Live"}})), Some(&json!("Live")));
        assert_eq!(Column::of(&definition, "v0"), []);
    }
}
