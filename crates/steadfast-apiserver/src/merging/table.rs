//! Types of the built-in kinds, derived from the table of their fields.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::types::{Atom, Field, Fields, List, MergeStrategy, Scalar, Type};
use crate::types::{self, Holds, Kind};

static NOTHING: Atom = Atom { scalar: None, list: None, map: None };
static DEDUCED: LazyLock<Atom> = LazyLock::new(|| Atom {
    scalar: Some(Scalar::Any),
    list: Some(List { item: Type::Raw, strategy: MergeStrategy::Atomic }),
    map: Some(Fields { named: BTreeMap::new(), others: Some(Type::Deduced), atomic: false }),
});
static RAW: LazyLock<Atom> = LazyLock::new(|| Atom {
    scalar: Some(Scalar::Any),
    list: Some(List { item: Type::Raw, strategy: MergeStrategy::Atomic }),
    map: Some(Fields { named: BTreeMap::new(), others: Some(Type::Raw), atomic: true }),
});

static TYPES: LazyLock<Table> = LazyLock::new(Table::read);

/// Types by name. The maps are only used for lookups, never iterated.
#[derive(Debug, Default)]
struct Table {
    types: HashMap<&'static str, Atom>,
    /// Types by name, each as one atomic value.
    whole: HashMap<&'static str, Atom>,
}

impl Table {
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
            let others = of.fields.is_empty().then_some(Type::Deduced);
            let map = Fields { named, others, atomic: of.is_atomic };
            let whole = Fields { atomic: true, ..map.clone() };
            table.types.insert(name, Atom { map: Some(map), ..Atom::default() });
            table.whole.insert(name, Atom { map: Some(whole), ..Atom::default() });
        }
        table
    }
}

impl Type {
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

fn read(field: &types::Field) -> Field {
    let atomic = field.first_of_trait("object") == Some("atomic");
    let of = match field.holds {
        Holds::One(Kind::Named(name)) if atomic => Type::Whole(name),
        Holds::One(kind) => single(kind),
        Holds::List(kind) => list(single(kind), merge_strategy(field)),
        Holds::Map(kind) => map(single(kind), atomic),
        Holds::MapOfLists(kind) => map(list(single(kind), MergeStrategy::Atomic), atomic),
    };
    let has_fields =
        matches!(field.holds, Holds::One(Kind::Named(name)) if types::fields(name).is_some_and(|of| !of.is_empty()));
    let (default, always) = match field.default() {
        Some(Value::Object(_)) => (None, has_fields.then(|| json!({}))),
        Some(default) => {
            let zero = [json!(""), json!(0), json!(false)].contains(&default);
            (Some(default.clone()), zero.then_some(default))
        }
        // Absent required lists, maps and pointers to structs are written as null.
        None if field.required && (has_fields || !matches!(field.holds, Holds::One(_))) => (None, Some(Value::Null)),
        None => (None, None),
    };
    Field { of, default, always }
}

fn single(kind: Kind) -> Type {
    let scalar = match kind {
        Kind::Text | Kind::Bytes | Kind::Duration => Scalar::Text,
        Kind::Integer32 | Kind::Integer64 | Kind::Double => Scalar::Number,
        Kind::Bool => Scalar::Bool,
        Kind::Time | Kind::MicroTime | Kind::Quantity | Kind::IntOrString => Scalar::Any,
        Kind::Json("RawExtension") => return Type::Raw,
        Kind::Any | Kind::Json(_) => return Type::Deduced,
        Kind::Named(name) => return Type::Named(name),
    };
    Type::Inline(Arc::new(Atom { scalar: Some(scalar), ..Atom::default() }))
}

fn list(item: Type, strategy: MergeStrategy) -> Type {
    Type::Inline(Arc::new(Atom { list: Some(List { item, strategy }), ..Atom::default() }))
}

fn map(of: Type, atomic: bool) -> Type {
    let map = Fields { others: Some(of), atomic, ..Fields::default() };
    Type::Inline(Arc::new(Atom { map: Some(map), ..Atom::default() }))
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
