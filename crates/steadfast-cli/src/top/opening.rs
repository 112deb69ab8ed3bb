//! Opening of a tab: lookup of the resource and of its columns.

use std::sync::Arc;

use kube::core::ApiResource;
use steadfast::unstable::catalog::{Catalog, NotFound, ServedResource, fetch_catalog};
use steadfast::unstable::cause::root_cause;
use steadfast::{Connection, Scope};

use super::history::ChangeHistory;
use super::schema::Schema;
use super::tab::Tab;
use super::table::Table;
use super::usage::UsagePath;
use crate::changes::columns::Column;
use crate::changes::kind::Kind;
use crate::discovery;

/// A tab, and the resource that its informer watches.
pub(super) struct OpenedTab {
    pub(super) tab: Tab,
    pub(super) watched: WatchedTab,
}

/// Resource of a tab.
pub(super) struct WatchedTab {
    pub(super) api_resource: ApiResource,
    pub(super) schema: Arc<Schema>,
    pub(super) scope: Scope,
    /// Path of the objects' CPU and memory usage in the API `metrics.k8s.io`, if the server has this API.
    pub(super) usage: Option<UsagePath>,
}

/// Finds resources and their columns. Cheap to clone.
#[derive(Clone)]
pub(super) struct Opener {
    pub(super) connection: Connection,
    pub(super) catalog: Arc<Catalog>,
    /// Namespace of namespaced resources; `None` for all namespaces.
    pub(super) namespace: Option<String>,
}

impl Opener {
    /// Returns the tab of the resource with this name. The server is queried again if the name is unknown, because a custom
    /// resource may be new.
    pub(super) async fn open(&self, name: &str) -> Result<OpenedTab, String> {
        let resource = match self.catalog.find(name) {
            Ok(resource) => resource,
            Err(reason @ NotFound::Unwatchable(_)) => return Err(reason.to_string()),
            Err(NotFound::Unknown(_)) => {
                let catalog = fetch_catalog(&self.connection.client()).await;
                let catalog = catalog.map_err(|error| format!("{name} cannot be found: {}", root_cause(&error)))?;
                catalog.find(name).map_err(|reason| reason.to_string())?
            }
        };
        Ok(self.tab(resource).await)
    }

    /// Returns the tab of a resource.
    pub(super) async fn tab(&self, resource: ServedResource) -> OpenedTab {
        let definition = discovery::definition(&self.connection, &resource).await;
        let (scope, scope_text) = match (&self.namespace, resource.namespaced) {
            (_, false) => (Scope::all(), "the cluster".to_owned()),
            (None, true) => (Scope::all(), "all namespaces".to_owned()),
            (Some(namespace), true) => (Scope::namespace(namespace.clone()), namespace.clone()),
        };
        let has_namespace = resource.namespaced && self.namespace.is_none();
        let usage = UsagePath::find(&self.catalog, &resource, self.namespace.as_deref());
        let (title, api_resource) = (resource.to_string(), resource.api_resource);
        let columns = definition.as_ref().map(|definition| Column::of(definition, &api_resource.version));
        let schema = Schema::new(
            api_resource.clone(),
            definition.as_ref(),
            has_namespace,
            usage.as_ref().map(|_| Arc::default()),
        );
        let tab = Tab {
            title,
            scope: scope_text,
            kind: Kind::new(&api_resource.group, &api_resource.kind),
            state_columns: columns.unwrap_or_default(),
            table: Table::new(schema.columns()),
            history: ChangeHistory::default(),
            filter_text: String::new(),
            freshness: None,
        };
        OpenedTab { tab, watched: WatchedTab { api_resource, schema: Arc::new(schema), scope, usage } }
    }
}
