//! Types for merging: keys of lists, atomic values, and fields that are always present.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

/// Possible values of a type, an atom in the terms of structured-merge-diff. A type without any restriction allows scalars, lists and maps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Atom {
    pub(super) scalar: Option<Scalar>,
    pub(super) list: Option<List>,
    pub(super) map: Option<Fields>,
}

/// A type, or the name of a type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Type {
    /// A type of the built-in table.
    Named(&'static str),
    /// A type of the built-in table, as one atomic value.
    Whole(&'static str),
    /// A type defined at its place of use.
    Inline(Arc<Atom>),
    /// Unknown type: objects are merged by their fields, lists are atomic.
    Deduced,
    /// Unknown type as one atomic value.
    Raw,
}

/// Possible plain values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Text,
    Number,
    Bool,
    Any,
}

/// A list.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct List {
    pub(super) item: Type,
    pub(super) strategy: MergeStrategy,
}

/// Merge strategy of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MergeStrategy {
    /// The list is atomic.
    Atomic,
    /// A set of plain values.
    Set,
    /// A map with these keys of its items. The keys are sorted.
    Keys(Vec<String>),
}

/// A struct, a map, or both.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Fields {
    pub(super) named: BTreeMap<String, Field>,
    /// Type of fields that have no entry here; `None` if no such fields are allowed.
    pub(super) others: Option<Type>,
    pub(super) atomic: bool,
}

/// A field of a struct.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub(super) of: Type,
    /// Default of an absent key of a list item.
    pub(super) default: Option<Value>,
    /// Value that stands for an absent field, if the real server's typed structs always contain the field.
    pub(super) always: Option<Value>,
}

/// Form of a value in its type.
pub(super) enum Shape<'a> {
    Scalar(Scalar),
    List(&'a List),
    Map(&'a Fields),
    /// No value is valid.
    Nothing,
}

impl Shape<'_> {
    pub(super) fn is_same(&self, other: &Self) -> bool {
        matches!(
            (self, other),
            (Shape::Scalar(_), Shape::Scalar(_))
                | (Shape::List(_), Shape::List(_))
                | (Shape::Map(_), Shape::Map(_))
                | (Shape::Nothing, Shape::Nothing)
        )
    }
}

impl Atom {
    /// Returns the form of a value. An absent or invalid value has the first form that the type allows.
    pub(super) fn shape(&self, value: Option<&Value>) -> Shape<'_> {
        match (value, self) {
            (Some(Value::String(_) | Value::Number(_) | Value::Bool(_)), Self { scalar: Some(scalar), .. }) => {
                Shape::Scalar(*scalar)
            }
            (Some(Value::Array(_)), Self { list: Some(list), .. }) => Shape::List(list),
            (_, Self { map: Some(map), .. }) => Shape::Map(map),
            (_, Self { scalar: Some(scalar), .. }) => Shape::Scalar(*scalar),
            (_, Self { list: Some(list), .. }) => Shape::List(list),
            _ => Shape::Nothing,
        }
    }
}

impl Fields {
    /// Returns the type of a field; `None` if the field does not exist.
    pub(super) fn of(&self, name: &str) -> Option<&Type> {
        self.named.get(name).map(|field| &field.of).or(self.others.as_ref())
    }
}
