//! What a rule has to send where it feeds a mirror: the fields that an entry of that kind of mirror has.

/// The kind of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldKind {
    Text,
    Number,
    Bool,
    /// Whatever there is.
    Any,
}

/// A field of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: FieldKind,
    /// Whether an entry without it is none.
    pub(crate) is_needed: bool,
}

/// The fields that entries of a kind of mirror have, in the order in which people are told of them.
pub(crate) type Shape = &'static [Field];

/// One that each entry has.
pub(crate) const fn needed(name: &'static str, kind: FieldKind) -> Field {
    Field { name, kind, is_needed: true }
}

/// One that an entry may do without.
pub(crate) const fn optional(name: &'static str, kind: FieldKind) -> Field {
    Field { name, kind, is_needed: false }
}

/// The key of an entry: the identity of its object by default.
pub(crate) const KEY: Field = optional("key", FieldKind::Text);

/// Whether it is in traffic.
pub(crate) const READY: Field = optional("ready", FieldKind::Bool);

/// What a balancer has: where each server is, and how much it is given.
pub(crate) const SERVER: Shape = &[
    KEY,
    needed("address", FieldKind::Text),
    needed("port", FieldKind::Number),
    optional("weight", FieldKind::Number),
    READY,
];

/// All names of a shape, as people say them.
pub(crate) fn names(shape: Shape) -> String {
    let names: Vec<&str> = shape.iter().map(|field| field.name).collect();
    names.join(", ")
}
