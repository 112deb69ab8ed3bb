//! Fields of the entries of each kind of mirror.

/// Type of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldKind {
    Text,
    Number,
    Bool,
    /// Any value.
    Any,
}

/// Field of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: FieldKind,
    /// True for a required field.
    pub(crate) is_required: bool,
}

/// Fields of the entries of a kind of mirror, in the order in which error messages list them.
pub(crate) type EntryFields = &'static [Field];

/// Creates a required field.
pub(crate) const fn required(name: &'static str, kind: FieldKind) -> Field {
    Field { name, kind, is_required: true }
}

/// Creates an optional field.
pub(crate) const fn optional(name: &'static str, kind: FieldKind) -> Field {
    Field { name, kind, is_required: false }
}

/// Key of an entry. Defaults to the identity of the object.
pub(crate) const KEY: Field = optional("key", FieldKind::Text);

/// Readiness: true if the entry should receive traffic.
pub(crate) const READY: Field = optional("ready", FieldKind::Bool);

/// Fields of a balancer's server: address and weight.
pub(crate) const SERVER: EntryFields = &[
    KEY,
    required("address", FieldKind::Text),
    required("port", FieldKind::Number),
    optional("weight", FieldKind::Number),
    READY,
];

/// Returns all field names of an entry, separated by commas.
pub(crate) fn names(fields: EntryFields) -> String {
    let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
    names.join(", ")
}
