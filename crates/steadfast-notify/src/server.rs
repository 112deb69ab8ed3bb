//! HTTP connection and headers of streams and mirrors, from the configuration.
//!
//! Requests use the connections of the steadfast client library: dead connections are replaced, and proxies and
//! certificates work like for API servers.

use std::collections::BTreeMap;
use std::path::Path;

use http::{HeaderMap, HeaderName, HeaderValue};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use steadfast::Connection;

use crate::config::secret::SecretFrom;
use crate::secret::Secret;

/// Connection settings in the configuration.
pub(crate) struct ServerSettings<'a> {
    pub(crate) url: &'a str,
    pub(crate) headers: &'a BTreeMap<String, String>,
    pub(crate) secret_headers: &'a BTreeMap<String, SecretFrom>,
    pub(crate) ca_file: Option<&'a Path>,
    pub(crate) certificate_file: Option<&'a Path>,
    pub(crate) key_file: Option<&'a Path>,
    pub(crate) proxy: Option<&'a str>,
}

/// Connection and headers of a server. Not connected yet.
pub(crate) struct Server {
    pub(crate) connection: Connection,
    pub(crate) headers: HeaderMap,
}

/// Error of a connection setting.
pub(crate) struct ServerConfigError {
    /// Name of the erroneous setting. Empty if no single setting is the cause.
    pub(crate) field: String,
    pub(crate) description: String,
    pub(crate) remedy: &'static str,
}

impl ServerConfigError {
    fn new(field: impl Into<String>, description: impl Into<String>) -> Self {
        Self { field: field.into(), description: description.into(), remedy: "correct the setting" }
    }
}

impl ServerSettings<'_> {
    /// Prepares the connection. Relative paths start at `folder`. Reads secrets and certificates.
    pub(crate) async fn server(&self, folder: &Path) -> Result<Server, ServerConfigError> {
        let mut headers = HeaderMap::new();
        let insert_header = |headers: &mut HeaderMap, field: &str, name: &str, value: &[u8], is_secret: bool| {
            let parsed = (HeaderName::try_from(name), HeaderValue::from_bytes(value));
            let (Ok(name), Ok(mut value)) = parsed else {
                return Err(ServerConfigError::new(field, format!("the value of {name} is not a valid header value")));
            };
            // Sensitive values are hidden in debug output, and HPACK does not index them.
            value.set_sensitive(is_secret);
            headers.insert(name, value);
            Ok(())
        };
        for (header, value) in self.headers {
            insert_header(&mut headers, &format!("headers.{header}"), header, value.as_bytes(), false)?;
        }
        for (header, from) in self.secret_headers {
            let field = format!("secret_headers.{header}");
            let remedy = "store the secret there, or correct the reference";
            let secret = Secret::read(from, folder).map_err(|description| ServerConfigError {
                field: field.clone(),
                description,
                remedy,
            })?;
            insert_header(&mut headers, &field, header, secret.bytes(), true)?;
        }
        let server = origin(self.url).ok_or_else(|| ServerConfigError::new("", "the URL is invalid"))?;
        let config = configuration(self, &server, folder).await.map_err(|reason| ServerConfigError::new("", reason))?;
        let connection =
            Connection::builder(config).user_agent(concat!("steadfast-notify/", env!("CARGO_PKG_VERSION")));
        let connection = connection.build().map_err(|error| ServerConfigError::new("", error.to_string()))?;
        Ok(Server { connection, headers })
    }
}

/// Returns scheme and authority of a URL.
fn origin(url: &str) -> Option<String> {
    let url: http::Uri = url.parse().ok()?;
    Some(format!("{}://{}", url.scheme_str()?, url.authority()?))
}

/// Converts the settings to a connection configuration: authorities, client certificate, proxy.
async fn configuration(settings: &ServerSettings<'_>, server: &str, folder: &Path) -> Result<Config, String> {
    let file = |path: Option<&Path>| path.map(|path| folder.join(path));
    let (mut cluster, mut user) = (json!({"server": server}), json!({}));
    if let Some(path) = file(settings.ca_file) {
        cluster["certificate-authority"] = path.to_string_lossy().into();
    }
    if let Some(proxy) = settings.proxy {
        cluster["proxy-url"] = proxy.into();
    }
    for (field, path) in [("client-certificate", settings.certificate_file), ("client-key", settings.key_file)] {
        if let Some(path) = file(path) {
            user[field] = path.to_string_lossy().into();
        }
    }
    let kubeconfig = json!({
        "current-context": "server",
        "contexts": [{"name": "server", "context": {"cluster": "server", "user": "server"}}],
        "clusters": [{"name": "server", "cluster": cluster}],
        "users": [{"name": "server", "user": user}],
    });
    let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig).map_err(|error| error.to_string())?;
    let read_config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = read_config.map_err(|error| steadfast::connection::ConnectError::from(error).to_string())?;
    // Callers have their own retry policy, so connection retries are disabled.
    config.default_retry = false;
    Ok(config)
}
