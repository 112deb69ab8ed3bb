//! Entries of `serve` in a kubeconfig: merged next to other entries, and removed again.
//!
//! Each entry has a mark that names its run, stored as a kubeconfig extension. So a run can replace entries of an
//! earlier run, but never entries of other programs.

use std::collections::BTreeSet;
use std::fmt;

use super::yaml::{self, Node};

/// The name of the extension that marks an entry.
const MARK_EXTENSION: &str = "steadfast-serve";

/// Lists of a kubeconfig, and the key of the entry within each item.
const SECTIONS: [(&str, &str); 3] = [("clusters", "cluster"), ("users", "user"), ("contexts", "context")];

/// The entries of one run.
#[derive(Clone, Debug)]
pub(crate) struct Entries {
    /// Name of the first context, its cluster and the user. Contexts of further replicas have a number as a suffix.
    pub(crate) name: String,
    /// Unique ID of the run.
    pub(crate) run_id: String,
    /// Address and token of the endpoint that switches faults.
    pub(crate) control: (String, String),
    /// Kubeconfig of each replica, as rendered by the server.
    pub(crate) replicas: Vec<String>,
}

/// Returns the address and the token of the control endpoint. Reads them from the mark of a context of the kubeconfig
/// `text`: the given context, or else the current one.
pub(crate) fn control_of(text: &str, context: Option<&str>) -> Option<(String, String)> {
    let file = yaml::parse(text).ok().flatten()?;
    let context = context.or_else(|| file.get("current-context").and_then(Node::as_text))?;
    let mut contexts = file.get("contexts")?.items()?.iter();
    let entry = contexts.find(|entry| entry.get("name").and_then(Node::as_text) == Some(context))?;
    let extensions = entry.get("context")?.get("extensions")?.items()?;
    let mark =
        extensions.iter().find(|extension| extension.get("name").and_then(Node::as_text) == Some(MARK_EXTENSION))?;
    let text = |key: &str| mark.get("extension")?.get(key)?.as_text().map(str::to_owned);
    Some((text("control")?, text("control-token")?))
}

/// Reasons why entries cannot be merged into a kubeconfig.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MergeError {
    /// The file is not a valid kubeconfig.
    NotKubeconfig(String),
    /// The file has an entry with this name that `serve` did not create.
    Taken { section: &'static str, name: String },
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotKubeconfig(reason) => write!(f, "{reason}, so nothing can be merged into it"),
            Self::Taken { section, name } => {
                let description = section.trim_end_matches('s');
                write!(
                    f,
                    "the file has a {description} {name:?} that `steadfast serve` did not create; choose another name with --context"
                )
            }
        }
    }
}

impl Entries {
    /// Returns the name of a replica's context.
    pub(crate) fn context(&self, replica: usize) -> String {
        if replica == 0 { self.name.clone() } else { format!("{}-{replica}", self.name) }
    }

    /// Adds these entries to the kubeconfig `text` and makes the first context the current one. An empty text becomes a
    /// new kubeconfig.
    pub(crate) fn merged(&self, text: &str) -> Result<String, MergeError> {
        let mut file = read(text)?
            .unwrap_or_else(|| Node::map([("apiVersion", Node::text("v1")), ("kind", Node::text("Config"))]));
        let current = file.get("current-context").and_then(Node::as_text).unwrap_or_default().to_owned();
        // Entries with this name belong to an earlier run, usually one that did not end cleanly.
        let removed = remove_entries(&mut file, |mark| mark.name == self.name);
        // If the earlier run's context was the current one, that run's previous context is restored later.
        let previous = if removed.contexts.contains(&current) { removed.previous_context } else { current };
        for (replica, rendered) in self.replicas.iter().enumerate() {
            let rendered = yaml::parse(rendered).ok().flatten().unwrap_or_else(|| Node::map([]));
            for (section, inner) in SECTIONS {
                // All replicas share one user.
                if section == "users" && replica > 0 {
                    continue;
                }
                let name = if section == "users" { self.name.clone() } else { self.context(replica) };
                let entry = rendered.get(section).and_then(Node::items).and_then(|items| items.first()?.get(inner));
                let mut entry = entry.cloned().unwrap_or_else(|| Node::map([]));
                if section == "contexts" {
                    entry.set("cluster", Some(Node::text(&name)));
                    entry.set("user", Some(Node::text(&self.name)));
                }
                entry.set("extensions", Some(Node::list([self.mark(&previous)])));
                insert_entry(&mut file, section, inner, &name, entry)?;
            }
        }
        file.set("current-context", Some(Node::text(&self.context(0))));
        Ok(file.to_string())
    }

    /// Removes these entries from the kubeconfig `text` and restores the previous current context.
    pub(crate) fn withdrawn(&self, text: &str) -> Result<RemainingKubeconfig, MergeError> {
        let Some(mut file) = read(text)? else {
            return Ok(RemainingKubeconfig { text: text.to_owned(), is_empty: true });
        };
        let current = file.get("current-context").and_then(Node::as_text).unwrap_or_default().to_owned();
        // Entries are matched by the run and not by name, because a later run may have replaced them.
        let removed = remove_entries(&mut file, |mark| mark.run_id == self.run_id);
        relink_previous_contexts(&mut file, &removed);
        // A context that the user has selected in the meantime stays current.
        if removed.contexts.contains(&current) {
            // Another program may have deleted the previous context.
            let exists = names(&file, "contexts").contains(&removed.previous_context);
            file.set("current-context", exists.then(|| Node::text(&removed.previous_context)));
        }
        let is_empty = SECTIONS.iter().all(|(section, _)| names(&file, section).is_empty());
        Ok(RemainingKubeconfig { text: file.to_string(), is_empty })
    }

    fn mark(&self, previous_context: &str) -> Node {
        let (control, token) = &self.control;
        let fields = [
            ("name", &*self.name),
            ("run", &*self.run_id),
            ("previous-context", previous_context),
            ("control", control),
            ("control-token", token),
        ];
        let extension = Node::map(fields.map(|(key, value)| (key, Node::text(value))));
        Node::map([("name", Node::text(MARK_EXTENSION)), ("extension", extension)])
    }
}

/// A kubeconfig after the removal of entries.
#[derive(Debug)]
pub(crate) struct RemainingKubeconfig {
    pub(crate) text: String,
    /// Set if no entry is left.
    pub(crate) is_empty: bool,
}

/// Content of a mark.
struct Mark {
    name: String,
    run_id: String,
    previous_context: String,
}

/// Record of removed entries.
#[derive(Default)]
struct RemovedEntries {
    contexts: BTreeSet<String>,
    /// The current context before the removed entries were merged.
    previous_context: String,
}

fn read(text: &str) -> Result<Option<Node>, MergeError> {
    let file = yaml::parse(text).map_err(|reason| MergeError::NotKubeconfig(reason.to_string()))?;
    let Some(file) = file else { return Ok(None) };
    let reject = |reason: &str| Err(MergeError::NotKubeconfig(reason.to_owned()));
    if !file.is_map() {
        return reject("it is not a kubeconfig");
    }
    if file.get("kind").is_some_and(|kind| !kind.is_null() && kind.as_text() != Some("Config")) {
        return reject("it is not a kubeconfig: its kind is not Config");
    }
    for (section, _) in SECTIONS {
        if file.get(section).is_some_and(|list| !list.is_null() && list.items().is_none()) {
            return reject(&format!("it is not a kubeconfig: its {section} are not a list"));
        }
    }
    Ok(Some(file))
}

fn mark_of(item: &Node, inner: &str) -> Option<Mark> {
    let extensions = item.get(inner)?.get("extensions")?.items()?;
    let mark =
        extensions.iter().find(|extension| extension.get("name").and_then(Node::as_text) == Some(MARK_EXTENSION))?;
    let text =
        |key: &str| mark.get("extension").and_then(|mark| mark.get(key)?.as_text()).unwrap_or_default().to_owned();
    Some(Mark { name: text("name"), run_id: text("run"), previous_context: text("previous-context") })
}

/// Removes the entries with a mark that `is_selected` accepts.
fn remove_entries(file: &mut Node, is_selected: impl Fn(&Mark) -> bool) -> RemovedEntries {
    let mut removed = RemovedEntries::default();
    for (section, inner) in SECTIONS {
        let Some(items) = file.get_mut(section).and_then(Node::items_mut) else { continue };
        items.retain(|item| {
            let Some(mark) = mark_of(item, inner).filter(&is_selected) else { return true };
            if section == "contexts" {
                removed.contexts.insert(item.get("name").and_then(Node::as_text).unwrap_or_default().to_owned());
                removed.previous_context = mark.previous_context;
            }
            false
        });
    }
    removed
}

/// Updates marks that would restore a removed context, so that they restore its predecessor.
fn relink_previous_contexts(file: &mut Node, removed: &RemovedEntries) {
    for (section, inner) in SECTIONS {
        for item in file.get_mut(section).and_then(Node::items_mut).into_iter().flatten() {
            let extensions = item.get_mut(inner).and_then(|entry| entry.get_mut("extensions")?.items_mut());
            for extension in extensions.into_iter().flatten() {
                if extension.get("name").and_then(Node::as_text) != Some(MARK_EXTENSION) {
                    continue;
                }
                let Some(mark) = extension.get_mut("extension") else { continue };
                let previous = mark.get("previous-context").and_then(Node::as_text).unwrap_or_default();
                if removed.contexts.contains(previous) {
                    mark.set("previous-context", Some(Node::text(&removed.previous_context)));
                }
            }
        }
    }
}

fn insert_entry(
    file: &mut Node,
    section: &'static str,
    inner: &str,
    name: &str,
    entry: Node,
) -> Result<(), MergeError> {
    if names(file, section).iter().any(|existing| existing == name) {
        return Err(MergeError::Taken { section, name: name.to_owned() });
    }
    // kubectl writes an empty list as `null`.
    if file.get(section).is_none_or(Node::is_null) {
        file.set(section, Some(Node::list([])));
    }
    if let Some(items) = file.get_mut(section).and_then(Node::items_mut) {
        items.push(Node::map([("name", Node::text(name)), (inner, entry)]));
    }
    Ok(())
}

fn names(file: &Node, section: &str) -> Vec<String> {
    let items = file.get(section).and_then(Node::items).unwrap_or_default();
    items.iter().filter_map(|item| item.get("name")?.as_text()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig;
    use serde_json::Value;

    use super::*;

    #[test]
    fn control_endpoint_is_found_by_context() {
        let merged = entries("steadfast", "1", 2).merged("").expect("nothing is in the way");
        let control = Some(("127.0.0.1:9".to_owned(), "control-token".to_owned()));
        assert_eq!(control_of(&merged, None), control);
        assert_eq!(control_of(&merged, Some("steadfast-1")), control);
        assert_eq!(control_of(&merged, Some("other")), None);
        for text in ["", "[]", "a: [", "current-context: x\ncontexts: [{name: x, context: {}}]"] {
            assert_eq!(control_of(text, None), None, "{text}");
        }
    }

    fn entries(name: &str, run_id: &str, replicas: usize) -> Entries {
        let rendered = |replica: usize| {
            format!(
                "clusters: [{{name: e, cluster: {{server: 'https://127.0.0.1:{replica}'}}}}]\n\
                 users: [{{name: e, user: {{token: t}}}}]\n\
                 contexts: [{{name: e, context: {{cluster: e, user: e, namespace: default}}}}]\n"
            )
        };
        let control = ("127.0.0.1:9".to_owned(), "control-token".to_owned());
        Entries {
            name: name.to_owned(),
            run_id: run_id.to_owned(),
            control,
            replicas: (0..replicas).map(rendered).collect(),
        }
    }

    const OTHERS: &str = "\
apiVersion: v1
kind: Config
preferences: {colors: true}
current-context: prod
clusters:
- name: prod
  cluster: {server: 'https://prod.example.test', tls-server-name: x, extensions: [{name: other, extension: {a: 1}}]}
users:
- name: prod
  user:
    token: 0123
    unknown-field: yes
contexts:
- name: prod
  context: {cluster: prod, user: prod}
";

    fn value(text: &str) -> Value {
        serde_saphyr::from_str(text).expect("valid YAML")
    }

    fn current(text: &str) -> Option<String> {
        Kubeconfig::from_yaml(text).expect("kube reads it").current_context
    }

    #[test]
    fn missing_kubeconfig_is_created() {
        let merged = entries("steadfast", "1", 2).merged("").expect("the entries are merged");
        let read = Kubeconfig::from_yaml(&merged).expect("kube reads it");
        let contexts: Vec<&str> = read.contexts.iter().map(|context| context.name.as_str()).collect();
        assert_eq!((contexts, read.auth_infos.len()), (vec!["steadfast", "steadfast-1"], 1));
        assert_eq!(current(&merged).as_deref(), Some("steadfast"));
        let second = read.contexts[1].context.as_ref().expect("a context");
        assert_eq!((second.cluster.as_str(), second.user.as_deref()), ("steadfast-1", Some("steadfast")));
        assert!(entries("steadfast", "1", 2).withdrawn(&merged).expect("the entries are removed").is_empty);
    }

    #[test]
    fn other_entries_and_current_context_are_restored() {
        let entries_of_run = entries("steadfast", "1", 1);
        let merged = entries_of_run.merged(OTHERS).expect("the entries are merged");
        assert_eq!(current(&merged).as_deref(), Some("steadfast"));
        assert!(merged.contains("token: 0123") && merged.contains("unknown-field: yes"), "{merged}");
        let withdrawn = entries_of_run.withdrawn(&merged).expect("the entries are removed");
        assert!(!withdrawn.is_empty);
        assert_eq!(value(&withdrawn.text), value(OTHERS));
    }

    #[test]
    fn rerun_replaces_entries_of_killed_run() {
        // A killed run does not remove its entries.
        let remaining = entries("steadfast", "1", 3).merged(OTHERS).expect("the entries are merged");
        let second = entries("steadfast", "2", 1);
        let merged = second.merged(&remaining).expect("the entries are merged");
        assert_eq!(names(&read(&merged).expect("read").expect("a file"), "contexts"), ["prod", "steadfast"]);
        let withdrawn = second.withdrawn(&merged).expect("the entries are removed").text;
        assert_eq!(value(&withdrawn), value(OTHERS), "the context before the first of them is current again");
    }

    #[test]
    fn replaced_run_removes_nothing() {
        let (first, second) = (entries("steadfast", "1", 1), entries("steadfast", "2", 1));
        let merged = second.merged(&first.merged(OTHERS).expect("merged")).expect("merged");
        let after = first.withdrawn(&merged).expect("taken out").text;
        assert_eq!(value(&after), value(&merged));
    }

    #[test]
    fn overlapping_runs_restore_first_context() {
        let (first, second) = (entries("one", "1", 1), entries("two", "2", 1));
        let merged = second.merged(&first.merged(OTHERS).expect("merged")).expect("merged");
        let without_first = first.withdrawn(&merged).expect("taken out").text;
        assert_eq!(current(&without_first).as_deref(), Some("two"));
        let without_both = second.withdrawn(&without_first).expect("taken out").text;
        assert_eq!(value(&without_both), value(OTHERS));
    }

    #[test]
    fn context_chosen_during_run_is_kept() {
        let entries_of_run = entries("steadfast", "1", 1);
        let merged = entries_of_run.merged(OTHERS).expect("the entries are merged");
        let changed = merged.replace("current-context: \"steadfast\"", "current-context: elsewhere");
        let withdrawn = entries_of_run.withdrawn(&changed).expect("the entries are removed").text;
        assert_eq!(current(&withdrawn).as_deref(), Some("elsewhere"));
    }

    #[test]
    fn foreign_entry_is_never_replaced() {
        let error = entries("prod", "1", 1).merged(OTHERS).expect_err("the name belongs to another entry");
        assert_eq!(error, MergeError::Taken { section: "clusters", name: "prod".to_owned() });
        assert!(error.to_string().contains("--context"), "{error}");
    }

    #[test]
    fn invalid_kubeconfig_is_rejected() {
        for text in ["[1]", "kind: Deployment\n", "clusters: 7\n", "users: {a: b}\n", "a: [b"] {
            assert!(matches!(entries("s", "1", 1).merged(text), Err(MergeError::NotKubeconfig(_))), "{text}");
        }
        assert!(entries("s", "1", 1).merged("clusters:\nusers: null\n").is_ok(), "lists that are empty");
    }
}
