//! Clusters, users and contexts of a kubeconfig: their fields, and the resulting configuration.

use std::path::{MAIN_SEPARATOR, Path};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use kube::config::{AuthInfo, ExecAuthCluster};
use rustls::RootCertStore;
use rustls::pki_types::pem::SectionKind;
use serde_json::{Map, Value};

use crate::connection::identity::{decode_base64, sections};

/// The extension of a cluster that is meant for credential plugins.
const PLUGIN_EXTENSION: &str = "client.authentication.k8s.io/exec";

/// The fields that hold base64, of clusters and of users.
const BASE64_FIELDS: [&str; 3] = ["certificate-authority-data", "client-certificate-data", "client-key-data"];

/// The fields that hold a path, which may be relative to the folder of the file.
const PATH_FIELDS: [&str; 4] = ["certificate-authority", "client-certificate", "client-key", "tokenFile"];

/// Named entries, in their order. The first entry of each name counts.
#[derive(Clone, Default)]
pub(super) struct KubeconfigEntries(Vec<(String, KubeconfigEntry)>);

impl KubeconfigEntries {
    pub(super) fn insert(&mut self, name: String, entry: KubeconfigEntry) {
        if self.get(&name).is_none() {
            self.0.push((name, entry));
        }
    }

    pub(super) fn add(&mut self, others: Self) {
        for (name, entry) in others.0 {
            self.insert(name, entry);
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<KubeconfigEntry> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, entry)| entry.clone())
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}

/// The fields of a cluster, a user or a context, without empty fields.
#[derive(Clone)]
pub(super) struct KubeconfigEntry {
    /// Description for messages: `user "admin"`.
    described: String,
    fields: Map<String, Value>,
}

impl KubeconfigEntry {
    /// Creates an entry with these fields. Relative paths in the fields refer to `folder`.
    pub(super) fn new(described: String, mut fields: Map<String, Value>, folder: Option<&Path>) -> Self {
        drop_absent(&mut fields);
        for field in PATH_FIELDS {
            make_absolute(fields.get_mut(field), folder);
        }
        if let Some(Value::Object(exec)) = fields.get_mut("exec") {
            drop_absent(exec);
            // A bare name is searched for on PATH.
            let command = exec.get_mut("command");
            make_absolute(
                command.filter(|command| command.as_str().is_some_and(|text| text.contains(['/', MAIN_SEPARATOR]))),
                folder,
            );
        }
        Self { described, fields }
    }

    /// Creates an entry without fields.
    pub(super) fn empty(described: &str) -> Self {
        Self { described: described.to_owned(), fields: Map::new() }
    }

    /// Returns this entry with another text in a field.
    pub(super) fn with_text(mut self, field: &str, text: &str) -> Self {
        self.fields.insert(field.to_owned(), text.into());
        self
    }

    /// Returns the text of a field, if the field is present and not empty.
    pub(super) fn text(&self, field: &str) -> Result<Option<String>, String> {
        match self.fields.get(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(format!("{field} of the {} is not text; put it in quotes", self.described)),
        }
    }

    fn flag(&self, field: &str) -> Result<bool, String> {
        match self.fields.get(field) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            // YAML 1.1, which kubectl reads, has more words for booleans.
            Some(Value::String(word)) if matches!(word.to_ascii_lowercase().as_str(), "yes" | "on" | "y") => Ok(true),
            Some(Value::String(word)) if matches!(word.to_ascii_lowercase().as_str(), "no" | "off" | "n") => Ok(false),
            Some(_) => Err(format!("{field} of the {} is neither true nor false", self.described)),
        }
    }
}

/// Removes values that are equivalent to an absent field.
fn drop_absent(fields: &mut Map<String, Value>) {
    fields.retain(|_, value| !value.is_null() && value.as_str() != Some(""));
}

fn make_absolute(path: Option<&mut Value>, folder: Option<&Path>) {
    if let (Some(Value::String(path)), Some(folder)) = (path, folder)
        && Path::new(path.as_str()).is_relative()
        && let Some(joined) = folder.join(path.as_str()).to_str()
    {
        joined.clone_into(path);
    }
}

/// Returns the configuration to reach `cluster` as `user`.
pub(super) fn config(cluster: &KubeconfigEntry, user: Option<&KubeconfigEntry>) -> Result<kube::Config, String> {
    let server = cluster.text("server")?.ok_or("the cluster has no server")?;
    let insecure = cluster.flag("insecure-skip-tls-verify")?;
    let authority = authority(cluster)?;
    let (url, has_scheme) = url(&server)?;
    // Without a scheme kubectl uses plain HTTP, and sends no credentials.
    let user = user.filter(|_| has_scheme);
    let mut auth_info = user.map(auth_info).transpose()?.unwrap_or_default();
    let mut config = kube::Config::new(url);
    let trusted = authority.as_deref().map(certificates).transpose();
    let trusted = trusted.map_err(|error| format!("{error}; check the certificates of the {}", cluster.described))?;
    config.root_cert = trusted;
    config.accept_invalid_certs = insecure;
    config.disable_compression = cluster.flag("disable-compression")?;
    config.tls_server_name = cluster.text("tls-server-name")?;
    let proxy = cluster.text("proxy-url")?;
    let proxy = proxy.or_else(|| ["HTTPS_PROXY", "https_proxy"].iter().find_map(|name| variable(name)));
    config.proxy_url = proxy
        .map(|proxy| proxy.parse().map_err(|error| format!("proxy-url, or https_proxy, is not a URL: {error}")))
        .transpose()?;
    if let Some(exec) = auth_info.exec.as_mut().filter(|exec| exec.provide_cluster_info) {
        let extensions = cluster.fields.get("extensions").and_then(Value::as_array);
        let extension = extensions.into_iter().flatten().find(|extension| extension["name"] == PLUGIN_EXTENSION);
        exec.cluster = Some(ExecAuthCluster {
            server: Some(server),
            insecure_skip_tls_verify: insecure.then_some(true),
            certificate_authority_data: authority,
            proxy_url: cluster.text("proxy-url")?,
            tls_server_name: config.tls_server_name.clone(),
            config: extension.and_then(|extension| extension.get("extension").cloned()),
        });
    }
    config.auth_info = auth_info;
    Ok(config)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the certificate authority in PEM, from the data or else from the file.
fn authority(cluster: &KubeconfigEntry) -> Result<Option<Vec<u8>>, String> {
    if let Some(data) = cluster.text("certificate-authority-data")? {
        return decode_base64(&data).map(Some).ok_or_else(|| "certificate-authority-data is not base64".to_owned());
    }
    let Some(file) = cluster.text("certificate-authority")? else { return Ok(None) };
    let read = std::fs::read(&file);
    read.map(Some).map_err(|error| format!("the file of certificate-authority, {file}, cannot be read: {error}"))
}

/// Returns the certificates in `pem` that can be trusted. Like Go, skips certificates that cannot be parsed.
fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let all = sections(pem).into_iter().filter(|(kind, _)| *kind == SectionKind::Certificate).map(|(_, der)| der);
    let trusted: Vec<Vec<u8>> = all.filter(|der| RootCertStore::empty().add(der.as_slice().into()).is_ok()).collect();
    if trusted.is_empty() {
        return Err("the certificate-authority holds no certificate in PEM".to_owned());
    }
    Ok(trusted)
}

/// Returns the URL of the server, and true if `server` has a scheme. As with kubectl, the default scheme is HTTP.
fn url(server: &str) -> Result<(Uri, bool), String> {
    let scheme = server.split_once("://");
    let whole = match scheme {
        Some((scheme, rest)) => format!("{}://{rest}", scheme.to_ascii_lowercase()),
        None if server.trim_end_matches('/').contains('/') => {
            return Err("the cluster's server has a path, but does not start with https:// or http://".to_owned());
        }
        None => format!("http://{server}"),
    };
    let url = whole.parse().map_err(|error| format!("the cluster's server is not a URL: {error}"))?;
    Ok((url, scheme.is_some()))
}

/// Converts the user's credentials to the type of `kube`.
fn auth_info(user: &KubeconfigEntry) -> Result<AuthInfo, String> {
    let mut fields = user.fields.clone();
    fields.remove("extensions");
    for field in BASE64_FIELDS {
        if let Some(data) = user.text(field)? {
            // `kube` accepts only base64 on one line, so the decoded data is encoded again.
            let decoded = decode_base64(&data).ok_or_else(|| format!("{field} is not base64"))?;
            fields.insert(field.to_owned(), STANDARD.encode(decoded).into());
        }
    }
    for nested in ["exec", "auth-provider"] {
        if let Some(Value::Object(nested)) = fields.get_mut(nested) {
            drop_absent(nested);
        }
    }
    // The parse error is replaced, since it quotes the value, which may be a secret.
    serde_json::from_value(Value::Object(fields)).map_err(|_| {
        format!("the {} has a field of another type than it must have; put numbers and dates in quotes", user.described)
    })
}
