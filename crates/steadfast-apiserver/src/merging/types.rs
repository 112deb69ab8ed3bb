//! Types for merging: keys of lists, atomic values, and fields that are always present.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

/// Name of the type of object metadata.
pub(crate) const OBJECT_META: &str = "meta.v1.ObjectMeta";

/// Possible values of a type; an atom in the terms of structured-merge-diff. A type without any restriction allows
/// scalars, lists and maps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Atom {
    pub(crate) scalar: Option<ScalarAtom>,
    pub(crate) list: Option<ListAtom>,
    pub(crate) map: Option<MapAtom>,
}

/// A type, or the name of a type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TypeRef {
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
pub(crate) enum ScalarAtom {
    Text,
    Number,
    Bool,
    Any,
}

/// A list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ListAtom {
    pub(crate) item: TypeRef,
    pub(crate) strategy: MergeStrategy,
}

/// Merge strategy of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MergeStrategy {
    /// The list is atomic.
    Atomic,
    /// A set of plain values.
    Set,
    /// The list is a map: these fields of an item form its key. The names of the fields are sorted.
    Keys(Vec<String>),
}

/// A struct, a map, or both.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MapAtom {
    pub(crate) declared_fields: BTreeMap<String, StructField>,
    /// Type of fields that have no entry here; `None` if no such fields are allowed.
    pub(crate) other_fields: Option<TypeRef>,
    pub(crate) is_atomic: bool,
}

/// A field of a struct.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StructField {
    pub(crate) type_ref: TypeRef,
    /// Default of an absent key of a list item.
    pub(crate) default: Option<Value>,
    /// Value that stands for an absent field, if the real server's typed structs always contain the field.
    pub(crate) absent_value: Option<Value>,
}

/// Form of a value in its type.
pub(crate) enum Shape<'a> {
    Scalar(ScalarAtom),
    List(&'a ListAtom),
    Map(&'a MapAtom),
    /// No value is valid.
    NoValue,
}

impl Shape<'_> {
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        matches!(
            (self, other),
            (Shape::Scalar(_), Shape::Scalar(_))
                | (Shape::List(_), Shape::List(_))
                | (Shape::Map(_), Shape::Map(_))
                | (Shape::NoValue, Shape::NoValue)
        )
    }
}

impl Atom {
    /// Returns the form of a value. An absent or invalid value has the first form that the type allows.
    pub(crate) fn shape(&self, value: Option<&Value>) -> Shape<'_> {
        match (value, self) {
            (Some(Value::String(_) | Value::Number(_) | Value::Bool(_)), Self { scalar: Some(scalar), .. }) => {
                Shape::Scalar(*scalar)
            }
            (Some(Value::Array(_)), Self { list: Some(list), .. }) => Shape::List(list),
            (_, Self { map: Some(map), .. }) => Shape::Map(map),
            (_, Self { scalar: Some(scalar), .. }) => Shape::Scalar(*scalar),
            (_, Self { list: Some(list), .. }) => Shape::List(list),
            _ => Shape::NoValue,
        }
    }
}

impl MapAtom {
    /// Returns the type of a field; `None` if the field does not exist.
    pub(crate) fn field_type(&self, name: &str) -> Option<&TypeRef> {
        self.declared_fields.get(name).map(|field| &field.type_ref).or(self.other_fields.as_ref())
    }
}
