//! Types, as far as merging goes by them: which lists have keys, what is whole or nothing, what is always there.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

/// What a value may be. A type that says nothing may be all three.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Atom {
    pub(super) scalar: Option<Scalar>,
    pub(super) list: Option<List>,
    pub(super) map: Option<Fields>,
}

/// A type, or the name of one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Type {
    /// One of the table of built-in types.
    Named(&'static str),
    /// One of that table, as one value.
    Whole(&'static str),
    /// One that is written where it is used.
    Inline(Arc<Atom>),
    /// Nothing is known: objects are merged by their fields, lists are whole.
    Deduced,
    /// Nothing is known, and it is one value.
    Raw,
}

/// What a plain value may be.
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
    pub(super) merging: Merging,
}

/// How a list is merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Merging {
    /// Not at all.
    Atomic,
    /// As a set of plain values.
    Set,
    /// By the keys of its items, which are sorted.
    Keys(Vec<String>),
}

/// A struct, a map, or both.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Fields {
    pub(super) named: BTreeMap<String, Field>,
    /// The type of the fields that have no name here; `None` where there must be none.
    pub(super) others: Option<Type>,
    pub(super) atomic: bool,
}

/// A field of a struct.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub(super) of: Type,
    /// What an absent key of a list item represents.
    pub(super) default: Option<Value>,
    /// What is there though nobody wrote it: the typed structs of the real server always have it.
    pub(super) always: Option<Value>,
}

/// What a value is, by its type.
pub(super) enum Shape<'a> {
    Scalar(Scalar),
    List(&'a List),
    Map(&'a Fields),
    /// No value fits.
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
    /// What a value is taken for; an absent one, and one that does not fit, for the first that the type offers.
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
    /// The type of a field; `None` where there is no such field.
    pub(super) fn of(&self, name: &str) -> Option<&Type> {
        self.named.get(name).map(|field| &field.of).or(self.others.as_ref())
    }
}
