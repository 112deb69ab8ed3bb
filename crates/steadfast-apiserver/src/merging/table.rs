//! Types of the built-in kinds, derived from the table of their fields.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::types::{Atom, ListAtom, MapAtom, MergeStrategy, ScalarAtom, StructField, TypeRef};
use crate::types::{self, FieldShape, ValueType};

static NOTHING: Atom = Atom { scalar: None, list: None, map: None };
static DEDUCED: LazyLock<Atom> = LazyLock::new(|| Atom {
    scalar: Some(ScalarAtom::Any),
    list: Some(ListAtom { item: TypeRef::Raw, strategy: MergeStrategy::Atomic }),
    map: Some(MapAtom { named: BTreeMap::new(), others: Some(TypeRef::Deduced), atomic: false }),
});
static RAW: LazyLock<Atom> = LazyLock::new(|| Atom {
    scalar: Some(ScalarAtom::Any),
    list: Some(ListAtom { item: TypeRef::Raw, strategy: MergeStrategy::Atomic }),
    map: Some(MapAtom { named: BTreeMap::new(), others: Some(TypeRef::Raw), atomic: true }),
});

static TYPES: LazyLock<MergeTypes> = LazyLock::new(MergeTypes::read);

/// Types by name. The maps are only used for lookups, never iterated.
#[derive(Debug, Default)]
struct MergeTypes {
    types: HashMap<&'static str, Atom>,
    /// Types by name, each as one atomic value.
    whole: HashMap<&'static str, Atom>,
}

impl MergeTypes {
    fn atom(&self, name: &str) -> Option<&Atom> {
        self.types.get(name)
    }

    fn whole(&self, name: &str) -> Option<&Atom> {
        self.whole.get(name)
    }

    fn read() -> Self {
        let mut table = Self::default();
        for (name, of) in types::all() {
            let named = of.fields.iter().map(|field| (field.name.to_owned(), read(field))).collect();
            // The content of a type without fields is unknown.
            let others = of.fields.is_empty().then_some(TypeRef::Deduced);
            let map = MapAtom { named, others, atomic: of.is_atomic };
            let whole = MapAtom { atomic: true, ..map.clone() };
            table.types.insert(name, Atom { map: Some(map), ..Atom::default() });
            table.whole.insert(name, Atom { map: Some(whole), ..Atom::default() });
        }
        table
    }
}

impl TypeRef {
    /// Returns the possible values of this type.
    pub(crate) fn atom(&self) -> &Atom {
        match self {
            Self::Named(name) => TYPES.atom(name).unwrap_or(&NOTHING),
            Self::Whole(name) => TYPES.whole(name).unwrap_or(&NOTHING),
            Self::Inline(atom) => atom,
            Self::Deduced => &DEDUCED,
            Self::Raw => &RAW,
        }
    }

    /// Returns the type of a built-in kind; a deduced type for other kinds.
    pub(crate) fn of_builtin(api_version: &str, kind: &str) -> Self {
        types::of_kind(api_version, kind).map_or(Self::Deduced, Self::Named)
    }
}

fn read(field: &types::Field) -> StructField {
    let atomic = field.first_of_trait("object") == Some("atomic");
    let of = match field.shape {
        FieldShape::One(ValueType::Named(name)) if atomic => TypeRef::Whole(name),
        FieldShape::One(kind) => single(kind),
        FieldShape::List(kind) => list(single(kind), merge_strategy(field)),
        FieldShape::Map(kind) => map(single(kind), atomic),
        FieldShape::MapOfLists(kind) => map(list(single(kind), MergeStrategy::Atomic), atomic),
    };
    let has_fields = matches!(field.shape, FieldShape::One(ValueType::Named(name)) if types::fields(name).is_some_and(|of| !of.is_empty()));
    let (default, always) = match field.default() {
        Some(Value::Object(_)) => (None, has_fields.then(|| json!({}))),
        Some(default) => {
            let zero = [json!(""), json!(0), json!(false)].contains(&default);
            (Some(default.clone()), zero.then_some(default))
        }
        // Absent required lists, maps and pointers to structs are written as null.
        None if field.required && (has_fields || !matches!(field.shape, FieldShape::One(_))) => {
            (None, Some(Value::Null))
        }
        None => (None, None),
    };
    StructField { of, default, always }
}

fn single(kind: ValueType) -> TypeRef {
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

fn list(item: TypeRef, strategy: MergeStrategy) -> TypeRef {
    TypeRef::Inline(Arc::new(Atom { list: Some(ListAtom { item, strategy }), ..Atom::default() }))
}

fn map(of: TypeRef, atomic: bool) -> TypeRef {
    let map = MapAtom { others: Some(of), atomic, ..MapAtom::default() };
    TypeRef::Inline(Arc::new(Atom { map: Some(map), ..Atom::default() }))
}

/// Returns the merge strategy of a list. The markers of strategic patches (`patch` and `key`) apply only if the newer
/// markers (`map` and `list`) are missing.
fn merge_strategy(field: &types::Field) -> MergeStrategy {
    if let Some(keys) = field.of_trait("map") {
        let mut keys: Vec<String> = keys.map(str::to_owned).collect();
        keys.sort_unstable();
        return MergeStrategy::Keys(keys);
    }
    let is_merged = || field.of_trait("patch").is_some_and(|mut strategies| strategies.any(|one| one == "merge"));
    match (field.first_of_trait("list"), field.first_of_trait("key")) {
        (Some("set"), _) => MergeStrategy::Set,
        (None, Some(key)) if is_merged() => MergeStrategy::Keys(vec![key.to_owned()]),
        (None, None) if is_merged() => MergeStrategy::Set,
        _ => MergeStrategy::Atomic,
    }
}
