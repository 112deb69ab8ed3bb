//! Connection to one cluster, its informers and the catalog of its resources.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Config;
use steadfast::connection::{ConnectError, KubeconfigFiles};
use steadfast::unstable::catalog::{Catalog, NotFound, ServedResource, fetch_catalog};
use steadfast::unstable::cause::root_cause;
use steadfast::{Checkpoint, Connection, InformerFactory};
use tokio::sync::Mutex;

use crate::stored_resources::StoredResources;

/// Age at which the catalog is fetched again for a name that it does not contain.
const CATALOG_REFETCH_AGE: Duration = Duration::from_secs(5);

/// Where the API server is, and the credentials.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionTarget {
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) context: Option<String>,
    pub(crate) url: Option<String>,
    pub(crate) token: Option<String>,
}

impl ConnectionTarget {
    /// Opens the connection. The first request dials.
    ///
    /// # Errors
    ///
    /// Returns the setting that cannot be used.
    pub(crate) async fn connect(self) -> Result<Connection, String> {
        let connection = match (&self.url, &self.kubeconfig, &self.context) {
            (Some(_), ..) => {
                let config = self.config_from_url()?;
                Connection::from_loader(move || {
                    let config = config.clone();
                    async move { Ok::<_, ConnectError>(config) }
                })
                .await
            }
            (None, None, None) => Connection::infer().await,
            (None, None, Some(context)) => Connection::infer_with_context(context).await,
            (None, Some(_), _) => {
                // The context of the start is kept: another current context may be another cluster.
                let context = match &self.context {
                    Some(context) => Some(context.clone()),
                    None => self.files().read().map_err(error_text)?.current_context().map(str::to_owned),
                };
                Connection::from_loader(move || {
                    let config = self.files().read().and_then(|merged| merged.config(context.as_deref()));
                    async move { config }
                })
                .await
            }
        };
        connection.map_err(error_text)
    }

    fn files(&self) -> KubeconfigFiles {
        KubeconfigFiles::from_path(self.kubeconfig.clone().unwrap_or_default())
    }

    fn config_from_url(&self) -> Result<Config, String> {
        let url = self.url.as_deref().unwrap_or_default();
        let uri = url.parse().map_err(|error| format!("{url:?} is not a valid URL of a server: {error}"))?;
        let mut config = Config::new(uri);
        config.auth_info.token = self.token.clone().map(Into::into);
        Ok(config)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn error_text(error: ConnectError) -> String {
    error.to_string()
}

/// Failure of the lookup of a resource.
#[derive(Clone, Debug)]
pub(crate) enum LookupFailure {
    /// A request failed; a retry may succeed soon.
    Request(String),
    /// The server has no such resource, or the resource cannot be watched in this way.
    Unknown(String),
}

/// Connection and informers, which all parts of one `Informers` share.
pub(crate) struct Session {
    pub(crate) connection: Connection,
    pub(crate) factory: InformerFactory,
    /// File of the caches; `None` also after the close.
    pub(crate) checkpoint: parking_lot::Mutex<Option<Checkpoint>>,
    stored_resources: Option<Arc<StoredResources>>,
    catalog: Mutex<Option<(Instant, Arc<Catalog>)>>,
}

impl Session {
    /// Creates a session, with a checkpoint and the resources that are stored next to it.
    pub(crate) fn new(connection: Connection, checkpoint: Option<(Checkpoint, StoredResources)>) -> Self {
        let (checkpoint, stored_resources) = checkpoint.unzip();
        Self {
            factory: InformerFactory::new(&connection),
            connection,
            checkpoint: parking_lot::Mutex::new(checkpoint),
            stored_resources: stored_resources.map(Arc::new),
            catalog: Mutex::default(),
        }
    }

    /// Returns the resources of the server. `incomplete` is a catalog that does not contain the required resource.
    ///
    /// # Errors
    ///
    /// Returns the error of the request.
    pub(crate) async fn catalog(&self, incomplete: Option<&Arc<Catalog>>) -> Result<Arc<Catalog>, kube::Error> {
        // One request serves all informers that start at the same time, because the others wait for this lock.
        let mut cached = self.catalog.lock().await;
        if let Some((fetched, catalog)) = &*cached
            && (incomplete.is_none_or(|incomplete| !Arc::ptr_eq(incomplete, catalog))
                || fetched.elapsed() < CATALOG_REFETCH_AGE)
        {
            return Ok(catalog.clone());
        }
        let catalog = Arc::new(fetch_catalog(&self.connection.client()).await?);
        *cached = Some((Instant::now(), catalog.clone()));
        Ok(catalog)
    }

    /// Returns the resource of a name from an earlier run with the checkpoint.
    pub(crate) fn stored_resource(&self, name: &str) -> Option<ServedResource> {
        self.stored_resources.as_ref()?.get(name)
    }

    /// Stores the resource of a name for later runs with the checkpoint.
    pub(crate) async fn store_resource(&self, name: &str, resource: &ServedResource) {
        let Some(stored_resources) = self.stored_resources.clone() else { return };
        let (name, resource) = (name.to_owned(), resource.clone());
        let stored = tokio::task::spawn_blocking(move || stored_resources.store(&name, &resource)).await;
        // Without the file, the next run needs the server for its start.
        if let Ok(Err(error)) = stored {
            tracing::warn!(reason = %error, "the resource of an informer cannot be stored next to the checkpoint");
        }
    }

    /// Returns the resource of any name that kubectl takes.
    ///
    /// # Errors
    ///
    /// Returns an error if the request fails, or if the server has no such resource.
    pub(crate) async fn resolve(&self, name: &str) -> Result<ServedResource, LookupFailure> {
        let request_failure = |error: kube::Error| {
            let server = self.connection.server();
            LookupFailure::Request(format!("cannot look up {name:?} at {server}: {}", root_cause(&error)))
        };
        let catalog = self.catalog(None).await.map_err(request_failure)?;
        let resource = match catalog.find(name) {
            // The resource may have been added after the catalog was fetched.
            Err(NotFound::Unknown(_)) => self.catalog(Some(&catalog)).await.map_err(request_failure)?.find(name),
            resource => resource,
        };
        resource.map_err(|reason| LookupFailure::Unknown(reason.to_string()))
    }
}
