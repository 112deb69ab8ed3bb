//! RBAC manifests: a role, and its binding to a subject.

use std::borrow::Cow;
use std::fmt::Write;

use serde_json::Value;

/// API group of roles and bindings.
const GROUP: &str = "rbac.authorization.k8s.io";

/// Words that YAML 1.1, which kubectl reads, does not read as text. Compared in lower case.
const YAML_WORDS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];

/// Role in a namespace, or cluster role without one.
#[derive(Debug)]
pub(crate) struct RbacRole<'a> {
    pub(crate) name: &'a str,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) rules: Vec<RbacRule<'a>>,
}

/// Rule of a role.
#[derive(Debug)]
pub(crate) struct RbacRule<'a> {
    pub(crate) group: &'a str,
    /// Plural names.
    pub(crate) resources: Vec<&'a str>,
    /// The only object that the rule permits; `None` for all objects.
    pub(crate) object: Option<&'a str>,
    pub(crate) verbs: &'a [&'a str],
}

/// Subject of a binding.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RbacSubject<'a> {
    ServiceAccount { namespace: &'a str, name: &'a str },
    User(&'a str),
}

impl RbacRole<'_> {
    /// Returns the role and its binding to `subject` as two YAML documents.
    pub(crate) fn manifests(&self, subject: RbacSubject<'_>) -> String {
        // A Role and its binding apply in their own namespace only, also for an account of another namespace.
        let kind = if self.namespace.is_some() { "Role" } else { "ClusterRole" };
        let name = scalar(self.name);
        let namespace = self.namespace.map(|namespace| format!("\n  namespace: {}", scalar(namespace)));
        let metadata = format!("metadata:\n  name: {name}{}\n", namespace.unwrap_or_default());
        let mut text = format!("apiVersion: {GROUP}/v1\nkind: {kind}\n{metadata}rules:\n");
        // Writing to a String cannot fail.
        for RbacRule { group, resources, object, verbs } in &self.rules {
            let _ = write!(text, "- apiGroups: [\"{group}\"]\n  resources: [{}]\n", resources.join(", "));
            if let Some(object) = object {
                let _ = writeln!(text, "  resourceNames: [{}]", scalar(object));
            }
            let _ = writeln!(text, "  verbs: [{}]", verbs.join(", "));
        }
        let _ = write!(
            text,
            "---\napiVersion: {GROUP}/v1\nkind: {kind}Binding\n{metadata}roleRef:\n  apiGroup: {GROUP}\n  kind: {kind}\n  \
             name: {name}\nsubjects:\n"
        );
        let _ = match subject {
            RbacSubject::ServiceAccount { namespace, name } => {
                let (namespace, name) = (scalar(namespace), scalar(name));
                write!(text, "- kind: ServiceAccount\n  name: {name}\n  namespace: {namespace}\n")
            }
            RbacSubject::User(name) => write!(text, "- apiGroup: {GROUP}\n  kind: User\n  name: {}\n", quoted(name)),
        };
        text
    }
}

/// Returns a name as a YAML scalar, quoted if YAML would not read it as text. A namespace may be called `123` or `on`.
pub(crate) fn scalar(name: &str) -> Cow<'_, str> {
    let is_plain = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|character| character.is_ascii_alphanumeric() || matches!(character, '-' | '.'))
        && !YAML_WORDS.contains(&name.to_ascii_lowercase().as_str());
    if is_plain { Cow::Borrowed(name) } else { Cow::Owned(quoted(name)) }
}

/// JSON is valid YAML, and escapes each special character.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn documents(text: &str) -> Vec<Value> {
        text.split("---\n").map(|document| serde_saphyr::from_str(document).expect("valid YAML")).collect()
    }

    #[test]
    fn role_and_binding_are_valid() {
        let rules = || {
            vec![
                RbacRule { group: "", resources: vec!["pods", "services"], object: None, verbs: &["list", "watch"] },
                RbacRule {
                    group: "coordination.k8s.io",
                    resources: vec!["leases"],
                    object: Some("on"),
                    verbs: &["get"],
                },
            ]
        };
        let role = RbacRole { name: "reader", namespace: Some("123"), rules: rules() };
        let found = documents(&role.manifests(RbacSubject::ServiceAccount { namespace: "ops", name: "no" }));
        let metadata = json!({"name": "reader", "namespace": "123"});
        let expected = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata,
            "rules": [
                {"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["list", "watch"]},
                {
                    "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["on"],
                    "verbs": ["get"],
                },
            ],
        });
        assert_eq!(found[0], expected);
        let expected = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "no", "namespace": "ops"}],
        });
        assert_eq!(found[1..], [expected]);
        let role = RbacRole { name: "reader", namespace: None, rules: rules() };
        let found = documents(&role.manifests(RbacSubject::User("a\"b: c")));
        assert_eq!((&found[0]["kind"], &found[1]["kind"]), (&json!("ClusterRole"), &json!("ClusterRoleBinding")));
        let expected = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "a\"b: c"}]);
        assert_eq!(found[1]["subjects"], expected);
    }

    #[test]
    fn ambiguous_names_are_quoted() {
        for (name, expected) in [
            ("shop", "shop"),
            ("a-1.b", "a-1.b"),
            ("007", "\"007\""),
            ("NO", "\"NO\""),
            ("1e3", "\"1e3\""),
            ("", "\"\""),
        ] {
            assert_eq!(scalar(name), expected);
        }
    }
}
