//! Resources of earlier lookups, in a file next to the checkpoint. A program can then start while the server is down.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use kube::core::{ApiResource, GroupVersionKind};
use parking_lot::Mutex;
use serde_json::{Value, json};
use steadfast::unstable::catalog::ServedResource;

/// Resources by the names under which programs have requested them.
pub(crate) struct StoredResources {
    path: PathBuf,
    /// URL of the server. The resources of another server are not used.
    server: String,
    resources: Mutex<BTreeMap<String, ServedResource>>,
}

impl StoredResources {
    /// Reads the file of the checkpoint at `checkpoint`. A file that cannot be read counts as empty.
    pub(crate) fn read(checkpoint: &Path, server: &str) -> Self {
        let mut path = checkpoint.as_os_str().to_owned();
        path.push(".resources");
        let path = PathBuf::from(path);
        let content = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        let stored = content.filter(|content| content["server"] == server);
        let resources = stored.as_ref().and_then(|content| content["resources"].as_object());
        let resources =
            resources.into_iter().flatten().filter_map(|(name, value)| Some((name.clone(), from_json(value)?)));
        Self { path, server: server.to_owned(), resources: Mutex::new(resources.collect()) }
    }

    /// Returns the stored resource of a name.
    pub(crate) fn get(&self, name: &str) -> Option<ServedResource> {
        self.resources.lock().get(name).cloned()
    }

    /// Stores the resource of a name, and writes the file if the resource has changed.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
    pub(crate) fn store(&self, name: &str, resource: &ServedResource) -> io::Result<()> {
        // Held during the write, so that the last writer has the last content.
        let mut resources = self.resources.lock();
        if resources.get(name) == Some(resource) {
            return Ok(());
        }
        let mut changed = resources.clone();
        changed.insert(name.to_owned(), resource.clone());
        let values: BTreeMap<_, _> = changed.iter().map(|(name, resource)| (name, to_json(resource))).collect();
        let content = json!({ "server": self.server, "resources": values });
        // Renamed after the write, so that a crash leaves one of the two complete files.
        let mut unfinished = self.path.clone().into_os_string();
        unfinished.push(".new");
        std::fs::write(&unfinished, content.to_string())?;
        std::fs::rename(&unfinished, &self.path)?;
        // After the write, so that a failed write is repeated.
        *resources = changed;
        Ok(())
    }
}

fn to_json(resource: &ServedResource) -> Value {
    let ServedResource { api_resource: ApiResource { group, version, kind, plural, .. }, namespaced } = resource;
    json!({ "group": group, "version": version, "kind": kind, "plural": plural, "namespaced": namespaced })
}

fn from_json(value: &Value) -> Option<ServedResource> {
    let text = |field: &str| value[field].as_str();
    let kind = GroupVersionKind::gvk(text("group")?, text("version")?, text("kind")?);
    let api_resource = ApiResource::from_gvk_with_plural(&kind, text("plural")?);
    Some(ServedResource { api_resource, namespaced: value["namespaced"].as_bool()? })
}
