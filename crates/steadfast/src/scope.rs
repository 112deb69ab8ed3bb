//! Scope of an informer: one namespace or all, and selectors.

use std::fmt;

use steadfast_core::reflector::{EMPTY_FIELD_SELECTOR, encoded};

/// Maximum number of characters of a selector in a displayed scope.
const MAX_DISPLAYED_SELECTOR: usize = 100;

/// The part of a resource's objects that an informer caches.
///
/// ```
/// use steadfast::Scope;
///
/// let web = Scope::namespace("shop").labels("app=web,tier!=test").fields("status.phase=Running");
/// assert_eq!(web.to_string(), "namespace shop, labels app=web,tier!=test, fields status.phase=Running");
/// ```
///
/// The alternate form `{:#}` contains at most 100 characters of each selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    namespace: Option<String>,
    labels: Option<String>,
    fields: Option<String>,
}

impl Scope {
    /// Returns a scope of all objects in all namespaces.
    pub fn all() -> Self {
        Self::default()
    }

    /// Returns a scope of the objects in one namespace; of all namespaces if the name is empty, as in client-go.
    pub fn namespace(namespace: impl Into<String>) -> Self {
        Self { namespace: non_blank(namespace.into()), ..Self::default() }
    }

    /// Returns a scope of one object. With an empty `namespace`, it is the cluster-scoped object of this name.
    pub fn object(namespace: impl Into<String>, name: &str) -> Self {
        Self::namespace(namespace).fields(format!("metadata.name={name}"))
    }

    /// Returns this scope in each of `namespaces`, for [`MultiNamespaceInformer`](crate::MultiNamespaceInformer) and for
    /// controllers. Repeated namespaces count once.
    ///
    /// ```
    /// use steadfast::Scope;
    ///
    /// let web = Scope::all().labels("app=web").in_each(["team-b", "team-a", "team-b"]);
    /// assert_eq!(web[0].to_string(), "namespace team-a, labels app=web");
    /// assert_eq!(web.len(), 2);
    /// ```
    #[must_use]
    pub fn in_each<N: Into<String>>(&self, namespaces: impl IntoIterator<Item = N>) -> Vec<Self> {
        let namespaces: std::collections::BTreeSet<String> = namespaces.into_iter().map(Into::into).collect();
        namespaces.into_iter().map(|namespace| Self { namespace: non_blank(namespace), ..self.clone() }).collect()
    }

    /// Restricts the scope to objects whose labels match `selector`, for example `app=web,tier in (a,b),!legacy`.
    /// An empty selector selects all.
    #[must_use]
    pub fn labels(self, selector: impl Into<String>) -> Self {
        Self { labels: non_blank(selector.into()), ..self }
    }

    /// Restricts the scope to objects whose fields match `selector`, for example `spec.nodeName=node-1`.
    /// An empty selector selects all.
    #[must_use]
    pub fn fields(self, selector: impl Into<String>) -> Self {
        Self { fields: non_blank(selector.into()), ..self }
    }

    /// Completes the scope: takes each part that this scope does not specify from `default`.
    pub(crate) fn or(self, default: &Self) -> Self {
        Self {
            namespace: self.namespace.or_else(|| default.namespace.clone()),
            labels: self.labels.or_else(|| default.labels.clone()),
            fields: self.fields.or_else(|| default.fields.clone()),
        }
    }

    /// Returns this scope in all namespaces.
    pub(crate) fn in_all_namespaces(self) -> Self {
        Self { namespace: None, ..self }
    }

    /// Returns the namespace, or `None` for all namespaces.
    pub fn in_namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the label selector.
    pub fn label_selector(&self) -> Option<&str> {
        self.labels.as_deref()
    }

    /// Returns the field selector.
    pub fn field_selector(&self) -> Option<&str> {
        self.fields.as_deref()
    }

    /// Returns true if an existing object can leave the scope by a change of its labels or fields. The fields
    /// `metadata.name` and `metadata.namespace` never change, but an inequality such as `metadata.name!=a` still
    /// counts.
    pub(crate) fn can_objects_leave(&self) -> bool {
        let can_change = |fields: &str| {
            fields
                .split(',')
                .map(str::trim)
                .filter(|term| !term.is_empty())
                .any(|term| !(term.starts_with("metadata.name=") || term.starts_with("metadata.namespace=")))
        };
        self.labels.as_deref().is_some_and(|labels| !labels.trim().is_empty())
            || self.fields.as_deref().is_some_and(can_change)
    }

    /// Returns false if a term `metadata.name=` of the field selector requires another name.
    pub(crate) fn may_match_name(&self, name: &str) -> bool {
        let terms = self.fields.as_deref().unwrap_or_default().split(',');
        let mut required_names = terms.filter_map(|term| term.trim().strip_prefix("metadata.name="));
        required_names.all(|required| required.trim_start_matches('=') == name)
    }

    /// Returns the selectors as query parameters, each preceded by `&`.
    pub(crate) fn query(&self) -> String {
        let parameter = |name: &str, value: &Option<String>| {
            value.as_ref().map_or_else(String::new, |value| format!("&{name}={}", encoded(value)))
        };
        parameter("labelSelector", &self.labels) + &parameter("fieldSelector", &self.fields)
    }

    /// Returns the query parameters with a selector that matches no object.
    pub(crate) fn query_matching_nothing(&self) -> String {
        self.query_with_fields(EMPTY_FIELD_SELECTOR)
    }

    /// Returns the query parameters for one object. The name must not contain characters that a field selector escapes.
    pub(crate) fn query_for_name(&self, name: &str) -> String {
        self.query_with_fields(&format!("metadata.name={name}"))
    }

    fn query_with_fields(&self, terms: &str) -> String {
        let fields = match self.fields.as_deref().map(str::trim) {
            // The user's own terms come first: RBAC may grant access to one name only, and the server authorizes the
            // first `metadata.name` term.
            Some(fields) if !fields.is_empty() => format!("{fields},{terms}"),
            _ => terms.to_owned(),
        };
        Self { fields: Some(fields), ..self.clone() }.query()
    }
}

/// Returns `text`, or `None` if it is blank. The API treats an empty namespace or selector as absent. Some servers
/// return an empty list for a path with an empty namespace, so such a path must never be sent.
fn non_blank(text: String) -> Option<String> {
    (!text.trim().is_empty()).then_some(text)
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "namespace {namespace}")?,
            None => f.write_str("all namespaces")?,
        }
        let is_abbreviated = f.alternate();
        let shown = |selector: &str| if is_abbreviated { abbreviated(selector) } else { selector.to_owned() };
        if let Some(labels) = &self.labels {
            write!(f, ", labels {}", shown(labels))?;
        }
        self.fields.as_ref().map_or(Ok(()), |fields| write!(f, ", fields {}", shown(fields)))
    }
}

/// Returns a selector for display. Programs generate selectors of many kilobytes, which would be part of each message.
fn abbreviated(selector: &str) -> String {
    match selector.char_indices().nth(MAX_DISPLAYED_SELECTOR) {
        None => selector.to_owned(),
        Some((end, _)) => format!("{}… ({} bytes)", &selector[..end], selector.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_selector_is_abbreviated_for_display() {
        let selector = format!("app in ({})", "ä,".repeat(10_000));
        let long = Scope::all().labels(&*selector);
        let text = format!("{long:#}");
        assert!(text.chars().count() < 150 && text.starts_with("all namespaces, labels app in (ä,ä,"), "{text}");
        assert!(text.ends_with("… (30009 bytes)"), "{text}");
        assert_eq!(long.label_selector(), Some(&*selector));
        let short = "a".repeat(MAX_DISPLAYED_SELECTOR);
        assert_eq!(format!("{:#}", Scope::all().fields(&*short)), format!("all namespaces, fields {short}"));
    }

    #[test]
    fn only_mutable_fields_let_objects_leave() {
        assert!(!Scope::all().can_objects_leave());
        assert!(!Scope::object("shop", "web-0").can_objects_leave());
        assert!(!Scope::namespace("shop").can_objects_leave());
        assert!(Scope::all().labels("app=web").can_objects_leave());
        assert!(Scope::object("shop", "web-0").fields("metadata.name=web-0,status.phase=Running").can_objects_leave());
        assert!(Scope::all().fields("metadata.name!=web-0").can_objects_leave());
    }

    #[test]
    fn empty_namespace_and_selectors_are_absent() {
        assert_eq!(Scope::namespace(""), Scope::all());
        assert_eq!(Scope::namespace("").labels("").fields(" "), Scope::all());
        assert_eq!(Scope::object("", "node-1"), Scope::all().fields("metadata.name=node-1"));
        assert_eq!(Scope::namespace("").in_namespace(), None);
    }

    #[test]
    fn selectors_are_encoded_for_the_query() {
        assert_eq!(Scope::all().labels("app in (a,b)").query(), "&labelSelector=app%20in%20%28a%2Cb%29");
        assert_eq!(Scope::all().query_for_name("web-0"), "&fieldSelector=metadata.name%3Dweb-0");
        let own = Scope::all().labels("app").fields("spec.nodeName=a");
        let both = "&labelSelector=app&fieldSelector=spec.nodeName%3Da%2Cmetadata.name%3Dweb-0";
        assert_eq!(own.query_for_name("web-0"), both);
    }
}
