//! Decoded form of an object of any kind: a tree whose parts are shared, so that a view of a part copies nothing.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use kube::Resource;
use kube::api::ObjectMeta;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// Value of a field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Null,
    Bool(bool),
    Int(i64),
    Unsigned(u64),
    Float(f64),
    Text(Arc<str>),
    List(Arc<[Node]>),
    Map(Map),
}

/// Members of an object in the server's order.
///
/// Objects of Kubernetes have few members at each level, so a lookup compares names one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Map(Arc<[(Arc<str>, Node)]>);

impl Map {
    pub(crate) fn new(members: Vec<(Arc<str>, Node)>) -> Self {
        Self(members.into())
    }

    /// Returns the value of a member; for duplicate names the last one, as other decoders do.
    pub(crate) fn get(&self, name: &str) -> Option<&Node> {
        self.0.iter().rev().find(|(member, _)| **member == *name).map(|(_, value)| value)
    }

    pub(crate) fn members(&self) -> &[(Arc<str>, Node)] {
        &self.0
    }
}

/// Equality of members in any order, as for a `dict`.
impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || self.0.len() == other.0.len() && self.0.iter().all(|(name, value)| other.get(name) == Some(value))
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Int(value))
    }

    // A number has one variant, so that equal numbers are equal nodes.
    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(i64::try_from(value).map_or(Node::Unsigned(value), Node::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Node, A::Error> {
        let mut list = Vec::with_capacity(elements.size_hint().unwrap_or(0).min(64));
        while let Some(element) = elements.next_element()? {
            list.push(element);
        }
        Ok(Node::List(list.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(Name(name)) = members.next_key()? {
            map.push((name, members.next_value()?));
        }
        Ok(Node::Map(Map::new(map)))
    }
}

/// Name of a member, without an intermediate `String`.
struct Name(Arc<str>);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_identifier(NameVisitor)
    }
}

struct NameVisitor;

impl Visitor<'_> for NameVisitor {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Name, E> {
        Ok(Name(name.into()))
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Int(value) => serializer.serialize_i64(*value),
            Self::Unsigned(value) => serializer.serialize_u64(*value),
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Text(value) => serializer.serialize_str(value),
            Self::List(elements) => serializer.collect_seq(elements.iter()),
            Self::Map(map) => map.serialize(serializer),
        }
    }
}

impl Serialize for Map {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &*self.0 {
            members.serialize_entry(&**name, value)?;
        }
        members.end()
    }
}

/// Whole object.
#[derive(Debug)]
pub(crate) struct JsonTree {
    pub(crate) root: Map,
    /// Metadata as kube's type, decoded when they are requested first.
    meta: OnceLock<ObjectMeta>,
}

impl JsonTree {
    /// Decodes the metadata. Fields that do not fit kube's type leave the metadata empty: the library reads the identity
    /// from the bytes and not from here.
    fn decoded_meta(root: &Map) -> ObjectMeta {
        let meta = root.get("metadata").and_then(|meta| serde_json::to_value(meta).ok());
        meta.and_then(|meta| serde_json::from_value(meta).ok()).unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for JsonTree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Node::deserialize(deserializer)? {
            Node::Map(root) => {
                // Every API object has these forms. Another form would fail later, at an arbitrary read.
                if !matches!(root.get("metadata"), Some(Node::Map(_))) {
                    return Err(serde::de::Error::custom("metadata is not an object"));
                }
                Ok(Self { root, meta: OnceLock::new() })
            }
            _ => Err(serde::de::Error::custom("the value is not an object")),
        }
    }
}

impl Resource for JsonTree {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(kind: &ApiResource) -> Cow<'_, str> {
        kind.kind.as_str().into()
    }

    fn group(kind: &ApiResource) -> Cow<'_, str> {
        kind.group.as_str().into()
    }

    fn version(kind: &ApiResource) -> Cow<'_, str> {
        kind.version.as_str().into()
    }

    fn api_version(kind: &ApiResource) -> Cow<'_, str> {
        kind.api_version.as_str().into()
    }

    fn plural(kind: &ApiResource) -> Cow<'_, str> {
        kind.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        self.meta.get_or_init(|| Self::decoded_meta(&self.root))
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        let root = &self.root;
        self.meta.get_or_init(|| Self::decoded_meta(root));
        self.meta.get_mut().expect("initialized in the line above")
    }
}
