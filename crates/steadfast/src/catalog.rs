//! The resources that a server serves, and the lookup of a resource by name.

use std::fmt;

use futures::future::{join_all, try_join};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResourceList};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Error};

/// One resource in one version, from the discovery documents of the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct CatalogEntry {
    /// API group, empty for the core group.
    pub(crate) group: String,
    /// API version, without the group.
    pub(crate) version: String,
    /// Kind of the objects.
    pub(crate) kind: String,
    /// Plural name, as in request paths.
    pub(crate) plural: String,
    /// Singular name; empty if the server provides none.
    pub(crate) singular: String,
    /// Abbreviations.
    pub(crate) short_names: Vec<String>,
    /// True if the objects belong to namespaces.
    pub(crate) namespaced: bool,
    /// Supported verbs, such as `watch`.
    pub(crate) verbs: Vec<String>,
}

/// All resources of a server. The core group is first, then the other groups in the server's order; in each group, the
/// preferred version is first.
#[derive(Debug, Default)]
pub struct Catalog {
    /// Resources, each once per version.
    pub(crate) entries: Vec<CatalogEntry>,
    /// The API groups whose discovery request failed.
    pub unavailable_groups: Vec<String>,
}

/// A resource that the server serves and that can be watched.
#[derive(Clone, Debug, PartialEq)]
pub struct ServedResource {
    /// Description of the resource for [`kube`].
    pub api_resource: ApiResource,
    /// True if the objects belong to namespaces.
    pub namespaced: bool,
}

impl fmt::Display for ServedResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&full_name(&self.api_resource.plural, &self.api_resource.group))
    }
}

/// Reasons why a name does not resolve to a resource that can be watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// No resource has this name at present; the text lists similar names.
    Unknown(String),
    /// The resource exists, but does not support the verb `watch`.
    Unwatchable(String),
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(reason) | Self::Unwatchable(reason) => f.write_str(reason),
        }
    }
}

/// Maximum number of similar names in an error message.
const MAX_SIMILAR_NAMES: usize = 3;

fn full_name(plural: &str, group: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

impl CatalogEntry {
    fn has_name(&self, word: &str) -> bool {
        self.plural == word || self.singular == word || self.kind.to_lowercase() == word
    }

    fn has_short_name(&self, word: &str) -> bool {
        self.short_names.iter().any(|short| short == word)
    }

    fn full_name(&self) -> String {
        full_name(&self.plural, &self.group)
    }
}

impl Catalog {
    /// Returns the resource for `name`: `pods`, `po`, `Pod`, `deployments.apps`, `deployments.v1.apps`.
    ///
    /// # Errors
    ///
    /// Returns an error with similar names if no such resource exists, or an error if the resource cannot be watched.
    pub fn find(&self, name: &str) -> Result<ServedResource, NotFound> {
        let lower = name.to_lowercase();
        // The comparison ignores case, so the kind `Pod` matches, too. The suffix is `GROUP` or `VERSION.GROUP`, as in
        // kubectl.
        let (word, qualifier) = lower.split_once('.').unwrap_or((&lower, ""));
        let entry = self.search(word, qualifier).ok_or_else(|| NotFound::Unknown(self.unknown(name, word)))?;
        if !entry.verbs.iter().any(|verb| verb == "watch") {
            let (name, verbs) = (entry.full_name(), entry.verbs.join(", "));
            let reason = format!("{name} cannot be watched; the server offers {verbs} for it");
            return Err(NotFound::Unwatchable(reason));
        }
        let kind = GroupVersionKind::gvk(&entry.group, &entry.version, &entry.kind);
        let api_resource = ApiResource::from_gvk_with_plural(&kind, &entry.plural);
        Ok(ServedResource { api_resource, namespaced: entry.namespaced })
    }

    fn search(&self, word: &str, qualifier: &str) -> Option<&CatalogEntry> {
        if qualifier.is_empty() {
            return self.find_named(word, |_| true);
        }
        // The core group has an empty name, so kubectl writes `pods.v1.` for it.
        let qualifier = qualifier.trim_end_matches('.');
        let (version, group) = qualifier.split_once('.').unwrap_or((qualifier, ""));
        // A group may look like a version with a group (`v1.example.com`), so an exact group takes precedence. A prefix
        // of a group is the last resort.
        self.find_named(word, |entry| entry.group == qualifier)
            .or_else(|| self.find_named(word, |entry| entry.version == version && entry.group == group))
            .or_else(|| self.find_named(word, |entry| entry.group.starts_with(qualifier)))
    }

    /// Returns the first entry of that name that `predicate` accepts. Full names take precedence over short names.
    fn find_named(&self, word: &str, predicate: impl Fn(&CatalogEntry) -> bool) -> Option<&CatalogEntry> {
        let mut entries = self.entries.iter().filter(|entry| predicate(entry));
        let short = entries.clone().find(|entry| entry.has_short_name(word));
        entries.find(|entry| entry.has_name(word)).or(short)
    }

    fn unknown(&self, name: &str, word: &str) -> String {
        let advice = match (self.find_named(word, |_| true), self.closest(word).as_slice()) {
            (Some(elsewhere), _) => format!("similar resource: {}", elsewhere.full_name()),
            (None, []) => format!("none of its {} resources has a similar name", self.entries.len()),
            (None, [names @ .., last]) if !names.is_empty() => {
                format!("did you mean {} or {last}?", names.join(", "))
            }
            (None, [close, ..]) => format!("did you mean {close}?"),
        };
        let unavailable_groups = match self.unavailable_groups.as_slice() {
            [] => String::new(),
            groups => format!(" ({} did not respond)", groups.join(", ")),
        };
        format!("the server has no resource {name:?}: {advice}{unavailable_groups}")
    }

    /// Returns up to three resources with similar names, the most similar first.
    fn closest(&self, word: &str) -> Vec<String> {
        let mut near: Vec<(usize, String)> = Vec::new();
        for entry in &self.entries {
            let names = [&entry.plural, &entry.singular].into_iter().filter(|name| !name.is_empty());
            let Some(difference) = names.map(|name| edits(word, name)).min() else { continue };
            let name = entry.full_name();
            // Longer words may contain more typing errors. All versions of a resource share one full name, listed once.
            if difference <= 1 + word.chars().count() / 4 && !near.iter().any(|(_, known)| *known == name) {
                near.push((difference, name));
            }
        }
        // The sort is stable: equally similar names keep the server's order.
        near.sort_by_key(|(difference, _)| *difference);
        near.truncate(MAX_SIMILAR_NAMES);
        near.into_iter().map(|(_, name)| name).collect()
    }
}

/// Returns the edit distance: the number of characters to insert, delete or replace.
fn edits(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    // Levenshtein distance in one row: entries up to `j` belong to the current character, later entries to the previous
    // character. `diagonal` saves the overwritten neighbour.
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, character) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, &against) in other.iter().enumerate() {
            let exchanged = diagonal + usize::from(character != against);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

/// Requests the resources of the server once.
///
/// # Errors
///
/// Returns an error if a request fails. An API group that responds with an error status is only listed as unavailable.
pub async fn fetch_catalog(client: &Client) -> Result<Catalog, Error> {
    // The core group has an endpoint of its own, `/api`; all other groups are at `/apis`.
    let (core, groups) = try_join(client.list_core_api_versions(), client.list_api_groups()).await?;
    let mut catalog = Catalog::default();
    for version in &core.versions {
        let list = client.list_core_api_resources(version).await?;
        catalog.entries.extend(entries("", version, list));
    }
    let places: Vec<(&str, &str)> = groups.groups.iter().flat_map(versions).collect();
    let requests = places
        .iter()
        .map(|(group, version)| async move { client.list_api_group_resources(&format!("{group}/{version}")).await });
    for ((group, version), result) in places.iter().zip(join_all(requests).await) {
        match result {
            Ok(list) => catalog.entries.extend(entries(group, version, list)),
            // An aggregated API server may be down while the others are available.
            Err(Error::Api(_)) => catalog.unavailable_groups.push((*group).to_owned()),
            Err(error) => return Err(error),
        }
    }
    // Several versions of one group may fail. They are adjacent in the list.
    catalog.unavailable_groups.dedup();
    Ok(catalog)
}

/// Returns the versions of a group, the preferred one first.
fn versions(group: &APIGroup) -> Vec<(&str, &str)> {
    let preferred = group.preferred_version.as_ref().map(|preferred| preferred.version.as_str());
    let mut versions: Vec<&str> = group.versions.iter().map(|version| version.version.as_str()).collect();
    // The sort is stable: the other versions keep the server's order of preference.
    versions.sort_by_key(|version| Some(*version) != preferred);
    versions.into_iter().map(|version| (group.name.as_str(), version)).collect()
}

fn entries(group: &str, version: &str, list: APIResourceList) -> impl Iterator<Item = CatalogEntry> {
    let (group, version) = (group.to_owned(), version.to_owned());
    // Subresources such as `pods/status` are listed too, and cannot be watched.
    list.resources.into_iter().filter(|resource| !resource.name.contains('/')).map(move |resource| CatalogEntry {
        group: group.clone(),
        version: version.clone(),
        kind: resource.kind,
        plural: resource.name,
        singular: resource.singular_name,
        short_names: resource.short_names.unwrap_or_default(),
        namespaced: resource.namespaced,
        verbs: resource.verbs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(group: &str, version: &str, kind: &str, plural: &str, short_names: &[&str]) -> CatalogEntry {
        CatalogEntry {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            short_names: short_names.iter().map(|&name| name.to_owned()).collect(),
            namespaced: true,
            verbs: ["list", "watch"].map(str::to_owned).to_vec(),
        }
    }

    fn catalog() -> Catalog {
        let mut binding = entry("", "v1", "Binding", "bindings", &[]);
        binding.verbs = vec!["create".to_owned()];
        let entries = vec![
            entry("", "v1", "Pod", "pods", &["po"]),
            entry("", "v1", "Event", "events", &["ev"]),
            binding,
            entry("apps", "v1", "Deployment", "deployments", &["deploy"]),
            entry("apps", "v1beta1", "Deployment", "deployments", &["deploy"]),
            entry("events.k8s.io", "v1", "Event", "events", &["ev"]),
            entry("example.com", "v1", "Po", "poes", &[]),
        ];
        Catalog { entries, unavailable_groups: Vec::new() }
    }

    fn found(name: &str) -> String {
        match catalog().find(name) {
            Ok(found) => format!("{} {}", found.api_resource.api_version, found),
            Err(reason) => reason.to_string(),
        }
    }

    #[test]
    fn resource_resolves_by_every_name_form() {
        for name in
            ["deployments", "deployment", "Deployment", "deploy", "deployments.apps", "deploy.v1.apps", "deploy.app"]
        {
            assert_eq!(found(name), "apps/v1 deployments.apps", "{name}");
        }
        assert_eq!(found("deployments.v1beta1.apps"), "apps/v1beta1 deployments.apps");
        assert_eq!(found("pods.v1"), "v1 pods");
        assert_eq!(found("events"), "v1 events");
        assert_eq!(found("events.events.k8s.io"), "events.k8s.io/v1 events.events.k8s.io");
    }

    #[test]
    fn full_name_precedes_short_name() {
        assert_eq!(found("po"), "example.com/v1 poes.example.com");
    }

    #[test]
    fn unknown_name_error_lists_similar_names() {
        assert_eq!(found("depoyments"), "the server has no resource \"depoyments\": did you mean deployments.apps?");
        assert_eq!(found("pods.apps"), "the server has no resource \"pods.apps\": similar resource: pods");
        assert_eq!(
            found("xylophones"),
            "the server has no resource \"xylophones\": none of its 7 resources has a similar name"
        );
        let catalog = Catalog { unavailable_groups: vec!["metrics.k8s.io".to_owned()], ..catalog() };
        let message = catalog.find("nodemetrics").unwrap_err().to_string();
        assert!(message.ends_with("(metrics.k8s.io did not respond)"), "{message}");
    }

    #[test]
    fn similar_names_are_sorted_by_distance() {
        let mut catalog = catalog();
        catalog.entries.push(entry("example.com", "v1", "Pode", "podes", &[]));
        let message = catalog.find("pode.example.org").unwrap_err().to_string();
        assert_eq!(message, "the server has no resource \"pode.example.org\": similar resource: podes.example.com");
        let message = catalog.find("podz").unwrap_err().to_string();
        assert_eq!(
            message,
            "the server has no resource \"podz\": did you mean pods, podes.example.com or poes.example.com?"
        );
        let message = catalog.find("evnts").unwrap_err().to_string();
        assert_eq!(message, "the server has no resource \"evnts\": did you mean events or events.events.k8s.io?");
    }

    #[test]
    fn resource_without_watch_verb_is_rejected() {
        assert!(matches!(catalog().find("bindings"), Err(NotFound::Unwatchable(_))));
        assert_eq!(found("bindings"), "bindings cannot be watched; the server offers create for it");
    }

    #[test]
    fn edit_distance_counts_single_edits() {
        assert_eq!(edits("pod", "pods"), 1);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("kitten", "sitting"), 3);
    }
}
