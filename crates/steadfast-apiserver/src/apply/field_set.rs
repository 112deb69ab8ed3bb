//! Sets of fields. The fields of each manager are stored as a set.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::path::PathElement;

/// A set of paths. The set can contain a path, its children, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet(BTreeMap<PathElement, FieldSetNode>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FieldSetNode {
    is_member: bool,
    children: FieldSet,
}

impl FieldSetNode {
    fn is_empty(&self) -> bool {
        !self.is_member && self.children.is_empty()
    }
}

impl FieldSet {
    /// Creates the set of `paths`. Each path is a list of field names.
    pub(super) fn from_names(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<PathElement> = path.iter().map(|name| PathElement::field(name)).collect();
            set.insert(&path);
        }
        set
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a path. The root itself is not tracked.
    pub(super) fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else { return };
        let node = match self.0.get_mut(first) {
            Some(node) => node,
            None => self.0.entry(first.clone()).or_default(),
        };
        if rest.is_empty() {
            node.is_member = true;
        } else {
            node.children.insert(rest);
        }
    }

    /// Returns whether the set contains the path that consists of `element` only.
    pub(super) fn contains_element(&self, element: &PathElement) -> bool {
        self.0.get(element).is_some_and(|node| node.is_member)
    }

    /// Returns the paths below an element, relative to the element.
    pub(super) fn below(&self, element: &PathElement) -> Option<&Self> {
        self.0.get(element).map(|node| &node.children).filter(|children| !children.is_empty())
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        let mut union = self.clone();
        union.extend(other);
        union
    }

    /// Adds the paths of another set.
    pub(super) fn extend(&mut self, other: &Self) {
        for (element, node) in &other.0 {
            match self.0.get_mut(element) {
                Some(own) => {
                    own.is_member |= node.is_member;
                    own.children.extend(&node.children);
                }
                None => drop(self.0.insert(element.clone(), node.clone())),
            }
        }
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |own, theirs| {
            theirs.map(|theirs| FieldSetNode {
                is_member: own.is_member && theirs.is_member,
                children: own.children.intersection(&theirs.children),
            })
        })
    }

    /// Returns the paths that are not in the other set. Paths below a removed path remain.
    pub(super) fn difference(&self, other: &Self) -> Self {
        self.combine(other, |own, theirs| {
            Some(match theirs {
                None => own.clone(),
                Some(theirs) => FieldSetNode {
                    is_member: own.is_member && !theirs.is_member,
                    children: own.children.difference(&theirs.children),
                },
            })
        })
    }

    /// Returns the paths that are neither in the other set nor below its paths.
    pub(super) fn recursive_difference(&self, other: &Self) -> Self {
        self.combine(other, |own, theirs| match theirs {
            None => Some(own.clone()),
            // A member covers the whole subtree here, unlike in `difference`.
            Some(theirs) if theirs.is_member => None,
            Some(theirs) => Some(FieldSetNode {
                is_member: own.is_member,
                children: own.children.recursive_difference(&theirs.children),
            }),
        })
    }

    fn combine(
        &self,
        other: &Self,
        combine_nodes: impl Fn(&FieldSetNode, Option<&FieldSetNode>) -> Option<FieldSetNode>,
    ) -> Self {
        let nodes = self.0.iter().filter_map(|(element, node)| {
            let combined = combine_nodes(node, other.0.get(element)).filter(|node| !node.is_empty())?;
            Some((element.clone(), combined))
        });
        Self(nodes.collect())
    }

    /// Returns the set with every element changed by `map_element`.
    ///
    /// `map_element` receives the element, its membership and the set below. It returns the new membership and the new
    /// set below.
    pub(super) fn map_elements(&self, map_element: &dyn Fn(&PathElement, bool, &Self) -> (bool, Self)) -> Self {
        let nodes = self.0.iter().map(|(element, node)| {
            let (is_member, children) = map_element(element, node.is_member, &node.children);
            (element.clone(), FieldSetNode { is_member, children })
        });
        Self(nodes.collect())
    }

    /// Returns all paths, each level before the levels below.
    pub(super) fn paths(&self) -> Vec<Vec<PathElement>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: &mut Vec<PathElement>, paths: &mut Vec<Vec<PathElement>>) {
        // Members of a level precede deeper paths, as in structured-merge-diff.
        for (element, _) in self.0.iter().filter(|(_, node)| node.is_member) {
            paths.push([prefix.as_slice(), std::slice::from_ref(element)].concat());
        }
        for (element, node) in &self.0 {
            prefix.push(element.clone());
            node.children.collect(prefix, paths);
            prefix.pop();
        }
    }

    /// Encodes the set as `FieldsV1`.
    pub(super) fn encode(&self) -> Value {
        Value::Object(self.encode_level(false))
    }

    fn encode_level(&self, is_member: bool) -> Map<String, Value> {
        let mut fields = Map::new();
        // `.` marks a member that also has children. Without children, an empty object suffices.
        if is_member && !self.is_empty() {
            fields.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for (element, node) in &self.0 {
            fields.insert(element.encode(), Value::Object(node.children.encode_level(node.is_member)));
        }
        fields
    }

    /// Parses `FieldsV1`. Returns `None` if the value is invalid.
    pub(super) fn decode(fields: &Value) -> Option<Self> {
        let mut set = Self::default();
        for (key, value) in fields.as_object()? {
            if key == "." {
                continue;
            }
            let below = value.as_object()?;
            let node =
                FieldSetNode { is_member: below.is_empty() || below.contains_key("."), children: Self::decode(value)? };
            set.0.insert(PathElement::decode(key)?, node);
        }
        Some(set)
    }
}
