//! Registry of the served resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::builtin::{BUILTIN, Builtin, older_versions};
use super::collections::DEFINITIONS;
use super::definition::{defined_name, served_by};
use super::{GroupResource, ResourceDeclaration, ServedResource};

/// Served resources, by group and plural name.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    fixed: BTreeMap<GroupResource, Arc<ServedResource>>,
    defined: BTreeMap<GroupResource, DefinedResource>,
}

/// Resource that a definition defines, and the definition object from which the resource was parsed.
#[derive(Clone, Debug)]
struct DefinedResource {
    object: Arc<Value>,
    served: Arc<ServedResource>,
}

impl Registry {
    pub(crate) fn with_declared(declared: &[ResourceDeclaration]) -> Self {
        // Without the feature, definitions are rejected instead of being stored without effect.
        let is_served = |row: &&Builtin| cfg!(feature = "crd") || row.group != DEFINITIONS.group();
        let builtin = BUILTIN.iter().filter(is_served).map(|row| ServedResource {
            name: GroupResource::new(row.group, row.plural),
            versions: [row.version].iter().chain(older_versions(row)).map(|&version| version.to_owned()).collect(),
            kind: row.kind.to_owned(),
            list_kind: format!("{}List", row.kind),
            singular: row.kind.to_lowercase(),
            short_names: row.short_names.iter().map(|&name| name.to_owned()).collect(),
            categories: if row.is_in_all { vec!["all".to_owned()] } else { Vec::new() },
            namespaced: row.namespaced,
            status_subresource: row.has_status,
            counts_generation: row.counts_generation,
            is_custom: false,
            selectable_fields: row.selectable.iter().map(|&field| field.to_owned()).collect(),
            definition: None,
        });
        let fixed = builtin
            .chain(declared.iter().map(ServedResource::from))
            .map(|resource| (resource.name.clone(), Arc::new(resource)))
            .collect();
        Self { fixed, defined: BTreeMap::new() }
    }

    /// Replaces the resources of `CustomResourceDefinition`s. Runs under the lock of the store at each write of a
    /// definition. Only changed definitions are parsed again.
    pub(crate) fn define<'a>(&mut self, definitions: impl Iterator<Item = &'a Arc<Value>>) {
        // Definitions that are not passed again were deleted. Their resources are dropped with `before`.
        let mut before = std::mem::take(&mut self.defined);
        for definition in definitions {
            let Some(name) = defined_name(definition) else { continue };
            // An unchanged resource keeps its identity, so that values derived from it stay valid.
            let unchanged = before.remove(&name).filter(|unchanged| {
                Arc::ptr_eq(&unchanged.object, definition)
                    || match (&unchanged.served.definition, definition.get("spec")) {
                        (Some(unchanged), Some(spec)) => unchanged.was_parsed_from(spec),
                        _ => false,
                    }
            });
            let served = unchanged.map(|unchanged| unchanged.served).or_else(|| served_by(definition).map(Arc::new));
            let object = Arc::clone(definition);
            self.defined.extend(served.map(|served| (served.name.clone(), DefinedResource { object, served })));
        }
    }

    pub(crate) fn get(&self, name: &GroupResource) -> Option<&Arc<ServedResource>> {
        // Built-in resources take precedence over definitions with an equal name.
        self.fixed.get(name).or_else(|| self.defined.get(name).map(|defined| &defined.served))
    }

    pub(crate) fn find_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<ServedResource>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.all().find(|served| served.kind == kind && served.name.group() == group && served.serves(version))
    }

    /// Returns the built-in and declared resources, then the defined ones; both are ordered by group and name.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<ServedResource>> {
        self.fixed.values().chain(self.defined.values().map(|defined| &defined.served))
    }

    /// Returns the resources of a version of a group.
    pub(crate) fn in_version<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a Arc<ServedResource>> {
        self.all().filter(move |served| served.name.group() == group && served.serves(version))
    }

    /// Returns the groups with their versions, in order; the preferred version of a group first.
    pub(crate) fn groups(&self) -> BTreeMap<String, Vec<String>> {
        let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for served in self.all() {
            let versions = groups.entry(served.name.group().to_owned()).or_default();
            for version in &served.versions {
                if !versions.contains(version) {
                    versions.push(version.clone());
                }
            }
        }
        groups
    }
}
