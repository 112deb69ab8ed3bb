//! Table of the built-in types and their fields.
//!
//! `conformance/types/generate` generates the table from a real server. A type is a line with its name, followed by one
//! line for each of its fields:
//!
//! ```text
//! core.v1.Container
//!  1 name string required default=""
//!  6 ports []core.v1.ContainerPort map=containerPort,protocol patch=merge key=containerPort
//!  24 restartPolicy ?string
//! core.v1.ConfigMapKeySelector object=atomic
//! ```
//!
//! The number is the protobuf number: a path (`2.5`) for fields of an embedded Go struct, `-` for fields without a
//! number. `[]` is a list, `{}` a map, `?` a pointer. An `atomic` type is merged as one value. A space within a value
//! of an `enum` is written `~`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

static TABLE: &str = include_str!("table.txt");

/// Handwritten types of responses, for which the documents of a real server have no schema.
static RESPONSES: &str = include_str!("responses.txt");

/// Types by name, parsed on first use.
static TYPES: LazyLock<BTreeMap<&'static str, StructType>> = LazyLock::new(|| {
    let mut types = BTreeMap::new();
    let mut name = "";
    for line in TABLE.lines().chain(RESPONSES.lines()).filter(|line| !line.starts_with('#')) {
        match line.strip_prefix(' ') {
            None => {
                let (type_name, traits) = line.split_once(' ').unwrap_or((line, ""));
                name = type_name;
                types.insert(name, StructType { is_atomic: traits == "object=atomic", ..StructType::default() });
            }
            Some(line) => {
                if let (Some(field), Some(struct_type)) = (Field::parse(line), types.get_mut(name)) {
                    struct_type.fields.push(field);
                }
            }
        }
    }
    for struct_type in types.values_mut() {
        // Fields of embedded structs have several numbers. The order of paths is the order on the wire.
        struct_type.number_order =
            (0..struct_type.fields.len()).filter(|&index| !struct_type.fields[index].numbers.is_empty()).collect();
        struct_type
            .number_order
            .sort_by(|&one, &other| struct_type.fields[one].numbers.cmp(&struct_type.fields[other].numbers));
    }
    types
});

/// Type with fields.
#[derive(Debug, Default)]
pub(crate) struct StructType {
    /// True if the type is merged as one value.
    pub(crate) is_atomic: bool,
    pub(crate) fields: Vec<Field>,
    /// Indexes of the fields with a protobuf number, ordered by number.
    number_order: Vec<usize>,
}

/// Field of a type.
#[derive(Debug)]
pub(crate) struct Field {
    /// Protobuf numbers on the path to the field; empty if protobuf does not contain it.
    pub(crate) numbers: Vec<u64>,
    pub(crate) name: &'static str,
    /// True if the zero value differs from an absent value.
    pub(crate) is_pointer: bool,
    pub(crate) shape: FieldShape,
    pub(crate) is_required: bool,
    /// Further traits, such as `map=name` and `enum=A,B`.
    traits: &'static str,
}

/// Content of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldShape {
    One(ValueType),
    List(ValueType),
    Map(ValueType),
    /// Map of lists.
    MapOfLists(ValueType),
}

/// Type of a single value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueType {
    Text,
    Bytes,
    Bool,
    Integer32,
    Integer64,
    Double,
    Any,
    Time,
    MicroTime,
    /// Duration as text.
    Duration,
    Quantity,
    IntOrString,
    /// Any JSON, with the name of its type.
    Json(&'static str),
    /// Another type of the table.
    Named(&'static str),
}

impl StructType {
    /// Returns the fields with a protobuf number, ordered by number.
    pub(crate) fn fields_by_number(&'static self) -> Vec<&'static Field> {
        self.number_order.iter().map(|&index| &self.fields[index]).collect()
    }
}

impl Field {
    fn parse(line: &'static str) -> Option<Self> {
        // The traits are the rest of the line and contain spaces.
        let mut words = line.splitn(4, ' ');
        let (numbers, name, shape) = (words.next()?, words.next()?, words.next()?);
        let traits = words.next().unwrap_or_default();
        let numbers = numbers.split('.').filter_map(|number| number.parse().ok()).collect();
        Some(Self {
            numbers,
            name,
            is_pointer: shape.starts_with('?'),
            shape: FieldShape::parse(shape.trim_start_matches('?')),
            is_required: traits.split(' ').any(|word| word == "required"),
            traits,
        })
    }

    /// Returns the values of a trait, such as `enum`, in order.
    pub(crate) fn trait_values(&self, name: &str) -> Option<impl Iterator<Item = &'static str>> {
        let mut traits = self.traits.split(' ').filter_map(|word| word.split_once('='));
        traits.find(|(key, _)| *key == name).map(|(_, values)| values.split(','))
    }

    /// Returns the first value of a trait.
    pub(crate) fn first_trait_value(&self, name: &str) -> Option<&'static str> {
        self.trait_values(name)?.next()
    }

    /// Returns the default of an absent field.
    pub(crate) fn default(&self) -> Option<Value> {
        self.first_trait_value("default").and_then(|default| serde_json::from_str(default).ok())
    }
}

impl FieldShape {
    fn parse(text: &'static str) -> Self {
        match (text.strip_prefix("[]"), text.strip_prefix("{}")) {
            (Some(item), _) => Self::List(ValueType::parse(item)),
            (_, Some(value)) => match value.strip_prefix("[]") {
                Some(item) => Self::MapOfLists(ValueType::parse(item)),
                None => Self::Map(ValueType::parse(value)),
            },
            _ => Self::One(ValueType::parse(text)),
        }
    }
}

impl ValueType {
    fn parse(text: &'static str) -> Self {
        match text {
            "string" => Self::Text,
            "bytes" => Self::Bytes,
            "bool" => Self::Bool,
            "int32" => Self::Integer32,
            "int64" => Self::Integer64,
            "double" => Self::Double,
            "any" => Self::Any,
            "Time" => Self::Time,
            "MicroTime" => Self::MicroTime,
            "Duration" => Self::Duration,
            "Quantity" => Self::Quantity,
            "IntOrString" => Self::IntOrString,
            named if named.contains('.') => Self::Named(named),
            json => Self::Json(json),
        }
    }
}

/// Returns a type of the table by its name.
pub(crate) fn type_named(name: &str) -> Option<&'static StructType> {
    TYPES.get(name)
}

/// Returns the fields of a type.
pub(crate) fn fields(name: &str) -> Option<&'static [Field]> {
    type_named(name).map(|struct_type| struct_type.fields.as_slice())
}

/// Returns all types by name.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static StructType)> {
    TYPES.iter().map(|(name, struct_type)| (*name, struct_type))
}

/// Returns the name of the type for a kind, if the table contains the type.
pub(crate) fn type_for_kind(api_version: &str, kind: &str) -> Option<&'static str> {
    let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
    let name = match group {
        // Every group contains these kinds.
        _ if matches!(kind, "DeleteOptions" | "Status") => format!("meta.v1.{kind}"),
        "apiextensions.k8s.io" => format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}.{kind}"),
        "apiregistration.k8s.io" => format!("io.k8s.kube-aggregator.pkg.apis.apiregistration.{version}.{kind}"),
        other => format!("{}.{version}.{kind}", other.split('.').next().unwrap_or_default()),
    };
    TYPES.get_key_value(name.as_str()).map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::{FieldShape, TYPES, ValueType, fields, type_for_kind};

    #[test]
    fn every_referenced_type_is_in_the_table() {
        let mut count = 0;
        for (name, struct_type) in TYPES.iter() {
            for field in &struct_type.fields {
                count += 1;
                assert_eq!(
                    field.default().is_some(),
                    field.first_trait_value("default").is_some(),
                    "{name}.{}",
                    field.name
                );
                let (FieldShape::One(kind)
                | FieldShape::List(kind)
                | FieldShape::Map(kind)
                | FieldShape::MapOfLists(kind)) = field.shape;
                if let ValueType::Named(referenced) = kind {
                    assert!(TYPES.contains_key(referenced), "{referenced}, of {name}");
                }
            }
        }
        assert!(count > 1500, "{count} fields are few");
    }

    #[test]
    fn kinds_are_found_by_their_group() {
        for (api_version, kind, name) in [
            ("v1", "Pod", "core.v1.Pod"),
            ("apps/v1", "Deployment", "apps.v1.Deployment"),
            ("rbac.authorization.k8s.io/v1", "Role", "rbac.v1.Role"),
            ("policy/v1", "DeleteOptions", "meta.v1.DeleteOptions"),
        ] {
            assert_eq!(type_for_kind(api_version, kind), Some(name));
        }
        assert_eq!(type_for_kind("example.com/v1", "Pod"), None);
    }

    #[test]
    fn field_is_parsed_with_its_traits() {
        let container = fields("core.v1.Container").unwrap();
        let ports = container.iter().find(|field| field.name == "ports").unwrap();
        assert_eq!(
            (ports.shape, ports.is_pointer),
            (FieldShape::List(ValueType::Named("core.v1.ContainerPort")), false)
        );
        assert_eq!(ports.trait_values("map").unwrap().collect::<Vec<_>>(), ["containerPort", "protocol"]);
        let port = fields("core.v1.ContainerPort").unwrap();
        let protocol = port.iter().find(|field| field.name == "protocol").unwrap();
        assert_eq!((protocol.default(), ports.default()), (Some("TCP".into()), None));
        assert!(TYPES["core.v1.ConfigMapKeySelector"].is_atomic && !TYPES["core.v1.Container"].is_atomic);
        let volume = fields("core.v1.Volume").unwrap();
        let secret = volume.iter().find(|field| field.name == "secret").unwrap();
        assert_eq!((secret.numbers.as_slice(), secret.is_pointer), (&[2, 6][..], true));
    }
}
