//! Properties that a definition declares for its objects, by version.

use std::cmp::Ordering;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use serde_json::{Value, json};

use super::{ScalePaths, version_of};
use crate::go;
use crate::jsonpath::JsonPath;
use crate::merging::TypeRef;
use crate::schema::Schema;

/// Versions of a defined resource.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Definition {
    /// Parsed `spec`. Definitions with equal specs are equal.
    spec: Value,
    /// Hash of the `spec`.
    fingerprint: u64,
    group: String,
    /// Version in which objects are stored.
    storage: String,
    /// All versions, served or not, the preferred one first.
    pub(super) versions: Vec<DefinedVersion>,
}

/// One version of a defined resource.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DefinedVersion {
    pub(crate) name: String,
    pub(crate) is_served: bool,
    pub(crate) schema: Schema,
    /// Type for comparing and merging objects.
    pub(crate) merge_type: TypeRef,
    /// True if `status` is a subresource.
    pub(crate) has_status: bool,
    /// Paths of the `scale` subresource, if the version has one.
    pub(crate) scale: Option<ScalePaths>,
    /// Columns of the table; `None` if the version declares none. As on a real server, the columns end before the first
    /// invalid path.
    pub(crate) columns: Option<Vec<PrinterColumn>>,
    /// Deprecation warning of the version.
    pub(crate) deprecation: Option<String>,
}

/// Column of the table in `kubectl get`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PrinterColumn {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) format: String,
    pub(crate) description: String,
    /// Priority. A column above 0 is only part of `-o wide`.
    pub(crate) priority: i64,
    /// Path as written in the definition.
    pub(crate) path: String,
    pub(crate) parsed: JsonPath,
}

impl Definition {
    /// Parses the `spec` of a `CustomResourceDefinition`. An invalid schema restricts no field.
    pub(crate) fn parse(spec: &Value) -> Self {
        let group = spec.get("group").and_then(Value::as_str).unwrap_or_default();
        let all = || spec.get("versions").and_then(Value::as_array).into_iter().flatten();
        let storage = all().find(|version| flag(version, "storage")).map(|version| text(version, "name"));
        let mut versions: Vec<DefinedVersion> = all().map(|version| DefinedVersion::parse(spec, version)).collect();
        // The preferred version comes first.
        versions.sort_by(|one, other| by_priority(&one.name, &other.name));
        let mut hasher = DefaultHasher::new();
        spec.to_string().hash(&mut hasher);
        Self {
            spec: spec.clone(),
            fingerprint: hasher.finish(),
            group: group.to_owned(),
            storage: storage.unwrap_or_default(),
            versions,
        }
    }

    /// Returns the version in which objects are stored.
    pub(crate) fn storage(&self) -> &str {
        &self.storage
    }

    /// Returns the hash of the `spec`.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Returns the names of all versions, served or not.
    pub(crate) fn version_names(&self) -> impl Iterator<Item = &str> {
        self.versions.iter().map(|version| version.name.as_str())
    }

    /// Returns whether `status` is a subresource in a version.
    pub(super) fn has_status(&self, version: &str) -> bool {
        self.version(version).is_some_and(|version| version.has_status)
    }

    /// Returns the deprecation warning of a version.
    pub(super) fn deprecation(&self, version: &str) -> Option<String> {
        self.version(version)?.deprecation.clone()
    }

    /// Returns the paths of `scale`, if it is a subresource in a version.
    pub(super) fn scale(&self, version: &str) -> Option<ScalePaths> {
        self.version(version)?.scale.clone()
    }

    /// Returns the type for comparing and merging objects of a version.
    pub(super) fn merge_type(&self, version: &str) -> TypeRef {
        self.version(version).map_or(TypeRef::Deduced, |version| version.merge_type.clone())
    }

    /// Returns whether the definition was parsed from this `spec`.
    pub(crate) fn was_parsed_from(&self, spec: &Value) -> bool {
        self.spec == *spec
    }

    /// Returns the schema of a version as written, if it has one.
    pub(crate) fn raw_schema(&self, version: &str) -> Option<&Value> {
        let versions = self.spec.get("versions").and_then(Value::as_array)?;
        let found = versions.iter().find(|found| found.get("name").and_then(Value::as_str) == Some(version))?;
        found.pointer("/schema/openAPIV3Schema")
    }

    pub(crate) fn version(&self, name: &str) -> Option<&DefinedVersion> {
        self.versions.iter().find(|version| version.name == name)
    }

    fn schema_of(&self, version: &str) -> Option<&Schema> {
        self.version(version).or_else(|| self.version(&self.storage)).map(|version| &version.schema)
    }

    /// Converts a stored object to a version. Defaults come from the stored version.
    pub(super) fn read(&self, object: &mut Value, version: &str) {
        let stored = version_of(object).to_owned();
        // A stored object may predate the schema, so unknown fields are removed on each read.
        if let Some(schema) = self.schema_of(&stored) {
            schema.prune(object);
            schema.prune_nulls(object);
            schema.fill_defaults(object);
        }
        // Defaults are part of the stored version's schema, so they precede the conversion.
        if stored != version {
            self.convert(object, version);
        }
    }

    /// Converts an object to the stored version.
    pub(super) fn to_store(&self, object: &mut Value) {
        self.convert(object, &self.storage);
        // Go's JSON encoder writes whole floats without a fraction.
        go::normalize_numbers(object);
    }

    /// Converts an object to another version: sets its `apiVersion`, and removes the fields that the version does not
    /// know.
    fn convert(&self, object: &mut Value, version: &str) {
        object["apiVersion"] = format!("{}/{version}", self.group).into();
        if let Some(schema) = self.schema_of(version) {
            schema.prune(object);
            schema.prune_nulls(object);
        }
    }
}

impl DefinedVersion {
    fn parse(spec: &Value, version: &Value) -> Self {
        let raw = version.pointer("/schema/openAPIV3Schema");
        let schema = raw.map(Schema::parse);
        // An invalid schema defines no types, so objects are merged by their own structure.
        let merge_type = schema.as_ref().is_some_and(Result::is_ok).then(|| TypeRef::from_schema(raw));
        let scale = version.pointer("/subresources/scale").map(|scale| ScalePaths {
            spec_replicas: text(scale, "specReplicasPath"),
            status_replicas: text(scale, "statusReplicasPath"),
            selector: text(scale, "labelSelectorPath"),
        });
        // As on the real server, tables end before the first column with an invalid path.
        let columns = version.get("additionalPrinterColumns").and_then(Value::as_array);
        let columns = columns.filter(|columns| !columns.is_empty());
        Self {
            name: text(version, "name"),
            is_served: flag(version, "served"),
            schema: schema.and_then(Result::ok).unwrap_or_else(Schema::accepting_anything),
            merge_type: merge_type.unwrap_or(TypeRef::Deduced),
            has_status: version.pointer("/subresources/status").is_some(),
            scale,
            columns: columns.map(|columns| columns.iter().map_while(PrinterColumn::parse).collect()),
            deprecation: flag(version, "deprecated").then(|| deprecation(spec, version)),
        }
    }
}

impl PrinterColumn {
    /// Parses a column of a definition; `None` if its path is invalid.
    fn parse(column: &Value) -> Option<Self> {
        let path = text(column, "jsonPath");
        Some(Self {
            parsed: JsonPath::parse(&path).ok()?,
            name: text(column, "name"),
            kind: text(column, "type"),
            format: text(column, "format"),
            description: text(column, "description"),
            priority: column.get("priority").and_then(Value::as_i64).unwrap_or_default(),
            path,
        })
    }
}

/// Returns the definition's deprecation warning, or the default one.
fn deprecation(spec: &Value, version: &Value) -> String {
    let declared_warning = text(version, "deprecationWarning");
    if !declared_warning.is_empty() {
        return declared_warning;
    }
    let (group, name) = (text(spec, "group"), text(version, "name"));
    let kind = spec.pointer("/names/kind").and_then(Value::as_str).unwrap_or_default();
    let other_versions = spec.get("versions").and_then(Value::as_array).into_iter().flatten();
    let mut newer: Vec<String> = other_versions
        .filter(|other| flag(other, "served") && !flag(other, "deprecated"))
        .map(|other| text(other, "name"))
        .filter(|other| by_priority(other, &name).is_lt())
        .collect();
    // The warning recommends the newest version that is not deprecated.
    newer.sort_by(|one, other| by_priority(one, other));
    let successor_hint = newer.first().map(|newest| format!("; use {group}/{newest} {kind}")).unwrap_or_default();
    format!("{group}/{name} {kind} is deprecated{successor_hint}")
}

/// Orders versions by client preference: `v2`, `v1`, `v2beta1`, `v1beta1`, `v1alpha1`, then all others.
pub(crate) fn by_priority(one: &str, other: &str) -> Ordering {
    // Order of Kubernetes: stable versions, then beta, then alpha, each from the highest number;
    // other names last.
    match (stability(one), stability(other)) {
        (Some(one), Some(other)) => other.cmp(&one),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => one.cmp(other),
    }
}

/// Returns the stability of a version, its number, and the number of its alpha or beta.
fn stability(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let end = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
    let (major, rest) = rest.split_at(end);
    let major = number_without_leading_zero(major)?;
    if rest.is_empty() {
        return Some((2, major, 0));
    }
    let (stage, minor) = rest
        .strip_prefix("beta")
        .map(|minor| (1, minor))
        .or_else(|| rest.strip_prefix("alpha").map(|minor| (0, minor)))?;
    Some((stage, major, number_without_leading_zero(minor)?))
}

fn number_without_leading_zero(digits: &str) -> Option<u64> {
    // Kubernetes versions have no leading zero.
    (!digits.starts_with('0')).then(|| digits.parse().ok()).flatten()
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn flag(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool).unwrap_or_default()
}

impl Schema {
    /// Creates a schema that restricts nothing and preserves all fields.
    fn accepting_anything() -> Self {
        Self::parse(&json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Definition, by_priority};

    #[test]
    fn stable_versions_are_preferred() {
        let mut versions = ["v1alpha1", "foo1", "v10", "v1", "v2beta1", "v11beta2", "v3", "v1beta1"];
        versions.sort_by(|one, other| by_priority(one, other));
        assert_eq!(versions, ["v10", "v3", "v1", "v11beta2", "v2beta1", "v1beta1", "v1alpha1", "foo1"]);
    }

    #[test]
    fn stored_object_has_defaults_of_its_version() {
        let version_with_default = |default: &str| {
            json!({"openAPIV3Schema": {"type": "object", "properties": {
                "a": {"type": "string", "default": default}, "b": {"type": "string", "default": "b"},
            }}})
        };
        let mut newer = version_with_default("new");
        newer["openAPIV3Schema"]["properties"].as_object_mut().expect("fields").remove("b");
        let definition = Definition::parse(&json!({"group": "g", "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": version_with_default("old")},
            {"name": "v2", "served": true, "schema": newer},
        ]}));
        assert_eq!((definition.storage(), definition.versions[0].name.as_str()), ("v1", "v2"));
        let mut object = json!({"apiVersion": "g/v1"});
        definition.read(&mut object, "v2");
        assert_eq!(object, json!({"apiVersion": "g/v2", "a": "old"}));
    }

    #[test]
    fn deprecated_version_warns_of_its_successor() {
        let definition = Definition::parse(&json!({"group": "g.io", "names": {"kind": "K"}, "versions": [
            {"name": "v1beta1", "served": true, "deprecated": true}, {"name": "v1", "served": true, "storage": true},
        ]}));
        let warning = definition.version("v1beta1").and_then(|version| version.deprecation.as_deref());
        assert_eq!(warning, Some("g.io/v1beta1 K is deprecated; use g.io/v1 K"));
    }
}
