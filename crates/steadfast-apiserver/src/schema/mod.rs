//! Schemas of custom resources: parsing and use of a version's `openAPIV3Schema`.
//!
//! | module | content |
//! |---|---|
//! | `parse` | parser of schemas, with limits |
//! | `prune` | removal of unknown fields |
//! | `defaults` | defaults of absent fields |
//! | `validate`, `numbers` | violations, with the messages of a real server; `correlate` finds the value before an update |
//! | `findings` | findings of a validation |
//! | `formats`, `pattern` | strings with a format or a pattern |
//! | `embedded` | identity of embedded objects |
//! | `lists` | duplicates in sets and maps |
//! | `rules` | rules in CEL |
//! | `structural` | validation of the schema itself |

mod correlate;
mod defaults;
mod embedded;
mod findings;
mod formats;
mod lists;
#[cfg(not(feature = "cel"))]
mod no_rules;
mod numbers;
mod parse;
mod pattern;
mod prune;
#[cfg(feature = "cel")]
mod rules;
mod structural;
mod validate;

use std::collections::BTreeMap;

use serde_json::Value;

#[cfg(not(feature = "cel"))]
use no_rules as rules;
pub(crate) use pattern::Pattern;
pub(crate) use rules::{Rule, Verdict, is_blocking, skipped_rules_cause, unsupported};
pub(crate) use structural::{label_error, violations};

/// Maximum nesting of schemas.
pub(crate) const MAX_SCHEMA_DEPTH: usize = 64;
/// Maximum number of schemas in a schema, including itself.
pub(crate) const MAX_SCHEMAS: usize = 50_000;
/// Maximum number of different patterns in a schema; each takes up to 1 MiB.
pub(crate) const MAX_PATTERNS: usize = 256;

/// JSON type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonType {
    Array,
    Boolean,
    Integer,
    Number,
    Object,
    String,
}

impl JsonType {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Array => "array",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Object => "object",
            Self::String => "string",
        }
    }
}

/// `x-kubernetes-list-type`; a list without this field is atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListType {
    Atomic,
    Map,
    Set,
}

/// `x-kubernetes-map-type`; an object without this field is granular.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapType {
    Atomic,
    Granular,
}

/// Fields of an object in addition to its `properties`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Additional {
    /// Any fields.
    Any,
    /// Fields with this schema.
    Schema(Box<Schema>),
}

/// Bound of a number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limit {
    pub(crate) value: f64,
    pub(crate) is_exclusive: bool,
}

/// Schema of a value and of its content.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "the format's own flags")]
pub(crate) struct Schema {
    /// Type; `None` for any type, or for an integer or a string (see `int_or_string`).
    pub(crate) kind: Option<JsonType>,
    pub(crate) description: String,
    /// Format; empty if absent or not checked.
    pub(crate) format: String,
    pub(crate) nullable: bool,
    pub(crate) default: Option<Value>,
    pub(crate) enumeration: Vec<Value>,
    pub(crate) minimum: Option<Limit>,
    pub(crate) maximum: Option<Limit>,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) min_length: Option<i64>,
    pub(crate) max_length: Option<i64>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) min_items: Option<i64>,
    pub(crate) max_items: Option<i64>,
    pub(crate) min_properties: Option<i64>,
    pub(crate) max_properties: Option<i64>,
    pub(crate) required: Vec<String>,
    pub(crate) properties: BTreeMap<String, Schema>,
    pub(crate) additional: Option<Additional>,
    pub(crate) items: Option<Box<Schema>>,
    pub(crate) all_of: Vec<Schema>,
    pub(crate) any_of: Vec<Schema>,
    pub(crate) one_of: Vec<Schema>,
    pub(crate) not: Option<Box<Schema>>,
    pub(crate) preserve_unknown_fields: bool,
    pub(crate) int_or_string: bool,
    pub(crate) embedded_resource: bool,
    pub(crate) list_type: Option<ListType>,
    pub(crate) list_map_keys: Vec<String>,
    pub(crate) map_type: Option<MapType>,
    /// Rules of the value itself.
    pub(crate) rules: Vec<Rule>,
    /// True if the value or its content has rules.
    pub(crate) has_rules: bool,
}

impl Schema {
    /// Returns the schema of a field: by name, or the schema of additional fields.
    pub(crate) fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(match &self.additional {
            Some(Additional::Schema(schema)) => Some(schema),
            Some(Additional::Any) | None => None,
        })
    }

    /// Returns whether a field is known, with or without a schema.
    fn knows(&self, name: &str) -> bool {
        self.properties.contains_key(name) || self.additional.is_some()
    }
}
