//! Sets of fields: who manages what is kept as these.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::path::Step;

/// A set of paths. A path may be in it, its children may be, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Set(BTreeMap<Step, Node>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    member: bool,
    children: Set,
}

impl Node {
    fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

impl Set {
    /// The set of paths that are written as field names.
    pub(super) fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<Step> = path.iter().map(|name| Step::field(name)).collect();
            set.insert(&path);
        }
        set
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a path; the root itself is not tracked.
    pub(super) fn insert(&mut self, path: &[Step]) {
        let Some((first, rest)) = path.split_first() else { return };
        let node = match self.0.get_mut(first) {
            Some(node) => node,
            None => self.0.entry(first.clone()).or_default(),
        };
        if rest.is_empty() {
            node.member = true;
        } else {
            node.children.insert(rest);
        }
    }

    /// Whether a path of one step is in the set.
    pub(super) fn has(&self, step: &Step) -> bool {
        self.0.get(step).is_some_and(|node| node.member)
    }

    /// What lies below a step.
    pub(super) fn below(&self, step: &Step) -> Option<&Self> {
        self.0.get(step).map(|node| &node.children).filter(|children| !children.is_empty())
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        let mut union = self.clone();
        union.extend(other);
        union
    }

    /// Adds what another set has.
    pub(super) fn extend(&mut self, other: &Self) {
        for (step, node) in &other.0 {
            match self.0.get_mut(step) {
                Some(own) => {
                    own.member |= node.member;
                    own.children.extend(&node.children);
                }
                None => drop(self.0.insert(step.clone(), node.clone())),
            }
        }
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |own, theirs| {
            theirs.map(|theirs| Node {
                member: own.member && theirs.member,
                children: own.children.intersection(&theirs.children),
            })
        })
    }

    /// What is not in the other set; what lies below a path that goes stays.
    pub(super) fn difference(&self, other: &Self) -> Self {
        self.combine(other, |own, theirs| {
            Some(match theirs {
                None => own.clone(),
                Some(theirs) => {
                    Node { member: own.member && !theirs.member, children: own.children.difference(&theirs.children) }
                }
            })
        })
    }

    /// What is not in the other set, nor below anything that is in it.
    pub(super) fn recursive_difference(&self, other: &Self) -> Self {
        self.combine(other, |own, theirs| match theirs {
            None => Some(own.clone()),
            Some(theirs) if theirs.member => None,
            Some(theirs) => {
                Some(Node { member: own.member, children: own.children.recursive_difference(&theirs.children) })
            }
        })
    }

    fn combine(&self, other: &Self, with: impl Fn(&Node, Option<&Node>) -> Option<Node>) -> Self {
        let nodes = self.0.iter().filter_map(|(step, node)| {
            let combined = with(node, other.0.get(step)).filter(|node| !node.is_empty())?;
            Some((step.clone(), combined))
        });
        Self(nodes.collect())
    }

    /// The set with every step changed by `deepen`: given the step, whether it is a member and what lies below, it returns
    /// whether it shall be one, and the set below.
    pub(super) fn rebuilt(&self, deepen: &dyn Fn(&Step, bool, &Self) -> (bool, Self)) -> Self {
        let nodes = self.0.iter().map(|(step, node)| {
            let (member, children) = deepen(step, node.member, &node.children);
            (step.clone(), Node { member, children })
        });
        Self(nodes.collect())
    }

    /// All paths; those of a level before those below it.
    pub(super) fn paths(&self) -> Vec<Vec<Step>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: &mut Vec<Step>, paths: &mut Vec<Vec<Step>>) {
        for (step, _) in self.0.iter().filter(|(_, node)| node.member) {
            paths.push([prefix.as_slice(), std::slice::from_ref(step)].concat());
        }
        for (step, node) in &self.0 {
            prefix.push(step.clone());
            node.children.collect(prefix, paths);
            prefix.pop();
        }
    }

    /// `FieldsV1`.
    pub(super) fn encode(&self) -> Value {
        Value::Object(self.encoded(false))
    }

    fn encoded(&self, member: bool) -> Map<String, Value> {
        let mut fields = Map::new();
        if member && !self.is_empty() {
            fields.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for (step, node) in &self.0 {
            fields.insert(step.encode(), Value::Object(node.children.encoded(node.member)));
        }
        fields
    }

    /// Reads `FieldsV1`; `None` where it is none.
    pub(super) fn decode(fields: &Value) -> Option<Self> {
        let mut set = Self::default();
        for (key, value) in fields.as_object()? {
            if key == "." {
                continue;
            }
            let below = value.as_object()?;
            let node = Node { member: below.is_empty() || below.contains_key("."), children: Self::decode(value)? };
            set.0.insert(Step::decode(key)?, node);
        }
        Some(set)
    }
}
