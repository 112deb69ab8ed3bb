//! Driver for items of an HTTP registry.

use std::path::Path;

use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use steadfast::unstable::cause::root_cause;
use steadfast_targets::registry::{Layout, Registry, RegistryClient, RegistryError, RegistryItem};

use crate::config::mirrors;
use crate::entry_fields::{EntryFields, FieldKind, KEY, READY, required};
use crate::mirror::driver::{AnyDriver, Driver, OpenError, ready_entries};
use crate::server::{Server, ServerSettings};

pub(crate) const ENTRY_FIELDS: EntryFields = &[KEY, required("value", FieldKind::Any), READY];

/// Maximum size of a list, in bytes. Larger lists are too expensive for one request per minute.
const MAX_LIST_BYTES: usize = 64 * 1024 * 1024;

pub(super) async fn open(config: &mirrors::RegistryConfig, folder: &Path) -> Result<Box<dyn AnyDriver>, OpenError> {
    let mirrors::RegistryFieldsConfig { key, owner, value } = config.fields.clone();
    let (url, list, mark) = (config.url.clone(), config.list.clone(), config.mark.clone());
    let layout = Layout { url, list, mark, items: config.items.clone(), key, owner, value };
    let settings = ServerSettings {
        url: &config.list.replace("{mark}", "mark"),
        headers: &config.headers,
        secret_headers: &config.secret_headers,
        ca_file: config.ca_file.as_deref(),
        certificate_file: config.certificate_file.as_deref(),
        key_file: config.key_file.as_deref(),
        proxy: config.proxy.as_deref(),
    };
    layout.check().map_err(|error| match error {
        RegistryError::EmptyMark => OpenError::new("registry.mark", error, "set the owner of the items"),
        _ => OpenError::new("registry", error, "correct the URL or the field names"),
    })?;
    let Server { connection, headers, .. } = settings.server(folder).await.map_err(|error| {
        let path = if error.field.is_empty() { "registry".to_owned() } else { format!("registry.{}", error.field) };
        // The configuration was checked before, so remaining errors are unreadable secrets and certificates.
        OpenError::new(path, error.description, error.remedy).with_external_cause()
    })?;
    let connection = RegistryConnection { client: connection.client(), headers };
    let target = Registry::new(connection, layout)
        .map_err(|error| OpenError::new("registry", error, "correct the URL or the field names"))?;
    // Registries have no disabled items: an entry that is not ready has no item.
    let convert_entry = ready_entries(|entry| Ok((entry.key.clone(), RegistryItem(entry.value("value")))));
    Ok(Box::new(Driver { target, convert_entry }))
}

/// Connection of the steadfast client library to the registry, with additional headers.
struct RegistryConnection {
    client: Client,
    headers: HeaderMap,
}

impl RegistryClient for RegistryConnection {
    async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, String> {
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        parts.uri = path.parse().map_err(|_| "the path of the URL is invalid".to_owned())?;
        parts.headers.extend(self.headers.clone());
        let response = self.client.send(Request::from_parts(parts, Body::from(body))).await;
        let (parts, body) = response.map_err(|error| root_cause(&error))?.into_parts();
        let body = Limited::new(body, MAX_LIST_BYTES).collect().await.map_err(|error| root_cause(&*error))?;
        Ok(Response::from_parts(parts, body.to_bytes().to_vec()))
    }
}
