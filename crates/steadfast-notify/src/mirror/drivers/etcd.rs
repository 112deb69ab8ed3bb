//! Driver for keys of etcd.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body as RequestBody;
use steadfast::unstable::cause::root_cause;
use steadfast_targets::MirrorSettings;
use steadfast_targets::etcd::{Body, Etcd, EtcdClient, EtcdError, EtcdValue, PlainEtcdClient};

use crate::config::mirrors;
use crate::entry_fields::{EntryFields, FieldKind, KEY, READY, required};
use crate::mirror::driver::{AnyDriver, Driver, OpenError, ready_entries};
use crate::mirror::entry::Entry;
use crate::secret::Secret;
use crate::server::{Server, ServerSettings};

pub(crate) const ENTRY_FIELDS: EntryFields = &[KEY, required("value", FieldKind::Text), READY];

/// Opens the mirror. `compare` is the configured interval between comparisons. Each comparison renews the lease.
pub(super) async fn open(
    config: &mirrors::EtcdConfig,
    compare: Option<Duration>,
    folder: &Path,
) -> Result<Box<dyn AnyDriver>, OpenError> {
    let files = [&config.ca_file, &config.certificate_file, &config.key_file];
    let is_tls = config.endpoints.iter().any(|endpoint| endpoint.starts_with("https://"));
    if !is_tls {
        if files.iter().any(|file| file.is_some()) {
            let description = "`ca_file`, `certificate_file` and `key_file` need endpoints with TLS";
            return Err(OpenError::new("etcd.endpoints", description, "write the endpoints as https://HOST:PORT"));
        }
        return open_with_client(PlainEtcdClient, config, compare, folder);
    }
    let mut clients = BTreeMap::new();
    // One connection pool per endpoint: the mirror chooses the endpoint of each request.
    for endpoint in &config.endpoints {
        let settings = ServerSettings {
            url: endpoint,
            headers: &BTreeMap::new(),
            secret_headers: &BTreeMap::new(),
            ca_file: config.ca_file.as_deref(),
            certificate_file: config.certificate_file.as_deref(),
            key_file: config.key_file.as_deref(),
            proxy: None,
        };
        let server = settings.server(folder).await;
        let Server { connection, .. } = server.map_err(|error| {
            OpenError::new("etcd", format!("{endpoint}: {}", error.description), error.remedy).with_external_cause()
        })?;
        clients.insert(endpoint.trim_end_matches('/').to_owned(), connection.client());
    }
    open_with_client(EtcdConnections { clients }, config, compare, folder)
}

fn open_with_client<R: EtcdClient>(
    client: R,
    config: &mirrors::EtcdConfig,
    compare: Option<Duration>,
    folder: &Path,
) -> Result<Box<dyn AnyDriver>, OpenError> {
    let endpoints: Vec<_> = config.endpoints.iter().map(String::as_str).collect();
    let target = Etcd::with_client(client, &endpoints, &config.prefix, &config.mark).map_err(|error| match error {
        EtcdError::EmptyPrefixOrMark => OpenError::new("etcd.prefix", error, "set the prefix of the keys and the mark"),
        _ => OpenError::new("etcd.endpoints", error, "list the client URLs"),
    })?;
    let target = match &config.lease {
        None => target,
        Some(lease) => target.with_lease_ttl(lease.0),
    };
    // Each comparison renews the lease. One late comparison must not expire all keys.
    if target.lease_ttl() < compare.unwrap_or(MirrorSettings::default().compare).saturating_mul(2) {
        let description = "the lease could expire between two comparisons, which renew the lease";
        return Err(OpenError::new("etcd.lease", description, "set a duration of at least twice `compare`"));
    }
    let target = match (&config.user, &config.password) {
        (Some(user), Some(from)) => {
            Secret::read(from, folder).map_err(|reason| {
                OpenError::new("etcd.password", reason, "store the password there").with_external_cause()
            })?;
            // Read at each login, so that a rotated password needs no restart.
            let (from, folder) = (from.clone(), folder.to_owned());
            target.user(user, move || {
                let secret = Secret::read(&from, &folder)?;
                secret.text().map(str::to_owned).ok_or_else(|| format!("{from:?} is not UTF-8"))
            })
        }
        (None, None) => target,
        _ => return Err(OpenError::new("etcd.user", "`user` and `password` must be set together", "set both")),
    };
    // etcd has no disabled keys: an entry that is not ready has no key.
    let convert_entry = ready_entries(|entry: &Entry| {
        Ok((entry.key.clone(), EtcdValue(entry.text("value").unwrap_or_default().to_owned())))
    });
    Ok(Box::new(Driver { target, convert_entry }))
}

/// Connections of the steadfast client library, one for each endpoint.
struct EtcdConnections {
    clients: BTreeMap<String, Client>,
}

impl EtcdClient for EtcdConnections {
    async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Body>, String> {
        let (mut parts, body) = request.into_parts();
        let authority = parts.uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        let endpoint = format!("{}://{authority}", parts.uri.scheme_str().unwrap_or_default());
        let client = self.clients.get(&endpoint).ok_or_else(|| format!("no connection to {endpoint}"))?;
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        parts.uri = path.parse().map_err(|_| "the path of the URL is invalid".to_owned())?;
        let sent = client.send(Request::from_parts(parts, RequestBody::from(body))).await;
        let response = sent.map_err(|error| root_cause(&error))?;
        Ok(response.map(|body| body.map_err(|error| Box::from(root_cause(&*Box::from(error)))).boxed_unsync()))
    }
}
