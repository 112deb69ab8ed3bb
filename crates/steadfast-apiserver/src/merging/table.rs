//! Types of the built-in kinds, derived from the table of their fields.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::types::{Atom, ListAtom, MapAtom, MergeStrategy, ScalarAtom, StructField, TypeRef};
use crate::types::{self, FieldShape, ValueType};

static NO_VALUE_ATOM: Atom = Atom { scalar: None, list: None, map: None };
static DEDUCED_ATOM: LazyLock<Atom> = LazyLock::new(|| Atom {
    scalar: Some(ScalarAtom::Any),
    list: Some(ListAtom { item: TypeRef::Raw, strategy: MergeStrategy::Atomic }),
    map: Some(MapAtom { declared_fields: BTreeMap::new(), other_fields: Some(TypeRef::Deduced), is_atomic: false }),
});
static RAW_ATOM: LazyLock<Atom> = LazyLock::new(|| Atom {
    scalar: Some(ScalarAtom::Any),
    list: Some(ListAtom { item: TypeRef::Raw, strategy: MergeStrategy::Atomic }),
    map: Some(MapAtom { declared_fields: BTreeMap::new(), other_fields: Some(TypeRef::Raw), is_atomic: true }),
});

static MERGE_TYPES: LazyLock<MergeTypes> = LazyLock::new(MergeTypes::load);

/// Types by name. The maps are only used for lookups, never iterated.
#[derive(Debug, Default)]
struct MergeTypes {
    types: HashMap<&'static str, Atom>,
    /// Types by name, each as one atomic value.
    atomic_types: HashMap<&'static str, Atom>,
}

impl MergeTypes {
    fn atom(&self, name: &str) -> Option<&Atom> {
        self.types.get(name)
    }

    fn atomic_atom(&self, name: &str) -> Option<&Atom> {
        self.atomic_types.get(name)
    }

    fn load() -> Self {
        let mut table = Self::default();
        for (name, definition) in types::all() {
            let declared_fields =
                definition.fields.iter().map(|field| (field.name.to_owned(), struct_field(field))).collect();
            // The content of a type without fields is unknown.
            let other_fields = definition.fields.is_empty().then_some(TypeRef::Deduced);
            let map = MapAtom { declared_fields, other_fields, is_atomic: definition.is_atomic };
            let atomic_map = MapAtom { is_atomic: true, ..map.clone() };
            table.types.insert(name, Atom { map: Some(map), ..Atom::default() });
            table.atomic_types.insert(name, Atom { map: Some(atomic_map), ..Atom::default() });
        }
        table
    }
}

impl TypeRef {
    /// Returns the possible values of this type.
    pub(crate) fn atom(&self) -> &Atom {
        match self {
            Self::Named(name) => MERGE_TYPES.atom(name).unwrap_or(&NO_VALUE_ATOM),
            Self::Whole(name) => MERGE_TYPES.atomic_atom(name).unwrap_or(&NO_VALUE_ATOM),
            Self::Inline(atom) => atom,
            Self::Deduced => &DEDUCED_ATOM,
            Self::Raw => &RAW_ATOM,
        }
    }

    /// Returns the type of a built-in kind; a deduced type for other kinds.
    pub(crate) fn for_builtin(api_version: &str, kind: &str) -> Self {
        types::type_for_kind(api_version, kind).map_or(Self::Deduced, Self::Named)
    }
}

fn struct_field(field: &types::Field) -> StructField {
    let is_atomic = field.first_trait_value("object") == Some("atomic");
    let type_ref = match field.shape {
        FieldShape::One(ValueType::Named(name)) if is_atomic => TypeRef::Whole(name),
        FieldShape::One(kind) => single_value_type(kind),
        FieldShape::List(kind) => list_type(single_value_type(kind), merge_strategy(field)),
        FieldShape::Map(kind) => map_type(single_value_type(kind), is_atomic),
        FieldShape::MapOfLists(kind) => map_type(list_type(single_value_type(kind), MergeStrategy::Atomic), is_atomic),
    };
    let has_fields = matches!(field.shape, FieldShape::One(ValueType::Named(name)) if types::fields(name).is_some_and(|fields| !fields.is_empty()));
    let (default, absent_value) = match field.default() {
        Some(Value::Object(_)) => (None, has_fields.then(|| json!({}))),
        Some(default) => {
            let zero = [json!(""), json!(0), json!(false)].contains(&default);
            (Some(default.clone()), zero.then_some(default))
        }
        // Absent required lists, maps and pointers to structs are written as null.
        None if field.is_required && (has_fields || !matches!(field.shape, FieldShape::One(_))) => {
            (None, Some(Value::Null))
        }
        None => (None, None),
    };
    StructField { type_ref, default, absent_value }
}

fn single_value_type(kind: ValueType) -> TypeRef {
    let scalar = match kind {
        ValueType::Text | ValueType::Bytes | ValueType::Duration => ScalarAtom::Text,
        ValueType::Integer32 | ValueType::Integer64 | ValueType::Double => ScalarAtom::Number,
        ValueType::Bool => ScalarAtom::Bool,
        ValueType::Time | ValueType::MicroTime | ValueType::Quantity | ValueType::IntOrString => ScalarAtom::Any,
        ValueType::Json("RawExtension") => return TypeRef::Raw,
        ValueType::Any | ValueType::Json(_) => return TypeRef::Deduced,
        ValueType::Named(name) => return TypeRef::Named(name),
    };
    TypeRef::Inline(Arc::new(Atom { scalar: Some(scalar), ..Atom::default() }))
}

fn list_type(item: TypeRef, strategy: MergeStrategy) -> TypeRef {
    TypeRef::Inline(Arc::new(Atom { list: Some(ListAtom { item, strategy }), ..Atom::default() }))
}

fn map_type(type_ref: TypeRef, is_atomic: bool) -> TypeRef {
    let map = MapAtom { other_fields: Some(type_ref), is_atomic, ..MapAtom::default() };
    TypeRef::Inline(Arc::new(Atom { map: Some(map), ..Atom::default() }))
}

/// Returns the merge strategy of a list. The markers of strategic patches (`patch` and `key`) apply only if the newer
/// markers (`map` and `list`) are missing.
fn merge_strategy(field: &types::Field) -> MergeStrategy {
    if let Some(keys) = field.trait_values("map") {
        let mut keys: Vec<String> = keys.map(str::to_owned).collect();
        keys.sort_unstable();
        return MergeStrategy::Keys(keys);
    }
    let is_merged = || field.trait_values("patch").is_some_and(|mut strategies| strategies.any(|one| one == "merge"));
    match (field.first_trait_value("list"), field.first_trait_value("key")) {
        (Some("set"), _) => MergeStrategy::Set,
        (None, Some(key)) if is_merged() => MergeStrategy::Keys(vec![key.to_owned()]),
        (None, None) if is_merged() => MergeStrategy::Set,
        _ => MergeStrategy::Atomic,
    }
}
