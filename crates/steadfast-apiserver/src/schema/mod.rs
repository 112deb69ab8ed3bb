//! Schemas of custom resources: what a version's `openAPIV3Schema` says of the fields of its objects.
//!
//! | module | does |
//! |---|---|
//! | `parse` | reads a schema, within limits |
//! | `prune` | takes out of an object what its schema does not know |
//! | `defaults` | fills in what is missing |
//! | `validate`, `numbers` | find what is wrong, in the words of a real server; `correlate` finds the value that one was before |
//! | `findings`, `cause` | what was found, and a complaint about a field as a refusal holds it |
//! | `formats`, `pattern` | the texts that a format or a pattern allows |
//! | `embedded` | whether objects within objects say what they are |
//! | `lists` | duplicates in sets and maps |
//! | `rules` | rules in CEL |
//! | `structural` | whether the schema itself is one that a server takes |
//! | `go` | values in the words of Go's formatting, which the API's messages are made by |

mod cause;
mod correlate;
mod defaults;
mod embedded;
mod findings;
mod formats;
pub(crate) mod go;
mod lists;
mod numbers;
mod parse;
mod pattern;
mod prune;
mod rules;
mod structural;
mod validate;

use std::collections::BTreeMap;

use serde_json::{Number, Value};

pub(crate) use cause::Cause;
pub(crate) use pattern::Pattern;
pub(crate) use rules::{Rule, Verdict, is_blocking, unchecked, unsupported};
pub(crate) use structural::{complaints, no_label};

/// How deep schemas may be nested.
pub(crate) const DEPTH: usize = 64;
/// How many schemas one may consist of, itself included.
pub(crate) const NODES: usize = 50_000;
/// How many different patterns one may have; each takes up to 1 MiB.
pub(crate) const PATTERNS: usize = 256;

/// The JSON types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Array,
    Boolean,
    Integer,
    Number,
    Object,
    String,
}

impl Type {
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

/// `x-kubernetes-list-type`; a list without one is atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListType {
    Atomic,
    Map,
    Set,
}

/// `x-kubernetes-map-type`; an object without one is granular.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapType {
    Atomic,
    Granular,
}

/// What fields an object may have beside its `properties`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Additional {
    /// Any.
    Any,
    /// Those that a schema describes.
    Of(Box<Schema>),
}

/// A bound of a number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limit {
    pub(crate) value: f64,
    pub(crate) exclusive: bool,
}

/// What is said of a value, and of what is within it.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "the format's own flags")]
pub(crate) struct Schema {
    /// `None` where any is allowed, or an integer or a text; see `int_or_string`.
    pub(crate) kind: Option<Type>,
    pub(crate) description: String,
    /// Empty where there is none, or one that is not checked.
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
    /// The value, or a value within it, has rules.
    pub(crate) has_rules: bool,
}

impl Schema {
    /// What is said of a field: by its name, or of all others.
    pub(crate) fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(match &self.additional {
            Some(Additional::Of(schema)) => Some(schema),
            Some(Additional::Any) | None => None,
        })
    }

    /// Whether a field is known, be it that nothing is said of what is in it.
    fn knows(&self, name: &str) -> bool {
        self.properties.contains_key(name) || self.additional.is_some()
    }
}

/// Writes whole numbers without a fraction, as what a real server stores and reads again.
pub(crate) fn settle_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            // Above this a float need not be a whole number that fits.
            if float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0 {
                *number = Number::from(float as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(settle_numbers),
        Value::Object(fields) => fields.values_mut().for_each(settle_numbers),
        _ => {}
    }
}
