//! The writer of a scenario: it connects directly to the server, so that network faults do not affect it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{TestkitError, config_map_in};

/// Writer of config maps in one namespace. Cheap to clone.
#[derive(Clone)]
pub struct Writer {
    client: Arc<Mutex<Client>>,
    namespace: Arc<str>,
}

impl Writer {
    /// Creates a writer in `namespace` that uses `client`.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { client: Arc::new(Mutex::new(client)), namespace: namespace.into() }
    }

    /// Returns the client of this writer.
    pub fn client(&self) -> Client {
        // Cloned out of the lock: a request must not block a concurrent `renew`.
        self.client.lock().clone()
    }

    /// Uses `client` from here on.
    pub(super) fn renew(&self, client: Client) {
        *self.client.lock() = client;
    }

    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client(), &self.namespace)
    }

    /// Reads the config map `name`.
    ///
    /// # Errors
    ///
    /// Returns an error if the request fails.
    pub async fn get(&self, name: &str) -> Result<ConfigMap, TestkitError> {
        Ok(self.config_maps().get(name).await?)
    }

    /// Creates the config map `name` with `value`.
    ///
    /// # Errors
    ///
    /// Returns an error if the server rejects the request.
    pub async fn create(&self, name: &str, value: &str) -> Result<ConfigMap, TestkitError> {
        self.post(&config_map_in(&self.namespace, name, value)).await
    }

    /// Creates the config map `name` with the label `app`.
    ///
    /// # Errors
    ///
    /// Returns an error if the server rejects the request.
    pub async fn create_labelled(&self, name: &str, app: &str) -> Result<ConfigMap, TestkitError> {
        let mut config_map = config_map_in(&self.namespace, name, "1");
        config_map.metadata.labels = Some([("app".to_owned(), app.to_owned())].into());
        self.post(&config_map).await
    }

    /// Creates this config map.
    ///
    /// # Errors
    ///
    /// Returns an error if the server rejects the request.
    pub async fn post(&self, config_map: &ConfigMap) -> Result<ConfigMap, TestkitError> {
        Ok(self.config_maps().create(&PostParams::default(), config_map).await?)
    }

    /// Changes the value of the config map `name`.
    ///
    /// # Errors
    ///
    /// Returns an error if the server rejects the request.
    pub async fn set(&self, name: &str, value: &str) -> Result<ConfigMap, TestkitError> {
        self.patch(name, json!({ "data": { "value": value } })).await
    }

    /// Changes the label `app` of the config map `name`.
    ///
    /// # Errors
    ///
    /// Returns an error if the server rejects the request.
    pub async fn label(&self, name: &str, app: &str) -> Result<ConfigMap, TestkitError> {
        self.patch(name, json!({ "metadata": { "labels": { "app": app } } })).await
    }

    /// Changes the config map `name` with a merge patch.
    ///
    /// # Errors
    ///
    /// Returns an error if the server rejects the request.
    pub async fn patch(&self, name: &str, patch: Value) -> Result<ConfigMap, TestkitError> {
        Ok(self.config_maps().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
    }

    /// Deletes the config map `name`.
    ///
    /// # Errors
    ///
    /// Returns an error if the server rejects the request.
    pub async fn delete(&self, name: &str) -> Result<(), TestkitError> {
        self.config_maps().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Deletes the config map `name` and creates another with this name.
    ///
    /// # Errors
    ///
    /// Returns an error if the server rejects one of the requests.
    pub async fn recreate(&self, name: &str, value: &str) -> Result<ConfigMap, TestkitError> {
        self.delete(name).await?;
        self.create(name, value).await
    }

    /// Deletes all config maps with this label `app` in one request.
    ///
    /// # Errors
    ///
    /// Returns an error if the server rejects the request.
    pub async fn delete_labelled(&self, app: &str) -> Result<(), TestkitError> {
        let list_params = ListParams::default().labels(&format!("app={app}"));
        self.config_maps().delete_collection(&DeleteParams::default(), &list_params).await?;
        Ok(())
    }

    /// Writes an object of another resource, so that the store has a newer version than any informer of config maps has
    /// seen. Returns that version.
    ///
    /// # Errors
    ///
    /// Returns an error if the server rejects the request.
    pub async fn write_unrelated(&self) -> Result<u64, TestkitError> {
        // The server generates the name, so that repeated calls do not collide.
        let metadata = ObjectMeta { generate_name: Some("beside-".to_owned()), ..ObjectMeta::default() };
        let secrets: Api<Secret> = Api::namespaced(self.client(), &self.namespace);
        let secret = secrets.create(&PostParams::default(), &Secret { metadata, ..Secret::default() }).await?;
        Ok(secret.metadata.resource_version.unwrap_or_default().parse()?)
    }

    /// Returns the newest version, by a consistent read.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not respond.
    pub async fn newest_version(&self) -> Result<String, TestkitError> {
        // `limit=1` without a version is a consistent read, and transfers at most one object.
        let list = self.config_maps().list_metadata(&ListParams::default().limit(1)).await?;
        Ok(list.metadata.resource_version.ok_or("the list has no version")?)
    }
}
