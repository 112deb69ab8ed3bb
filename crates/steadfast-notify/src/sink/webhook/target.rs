//! Connection and content of requests to a receiver, with the current secrets.

use std::collections::BTreeMap;
use std::path::Path;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use ring::hmac;

use super::redirect::RequestAddress;
use super::signature::{SIGNATURE_HEADER, signature};
use crate::config::secret::{SecretFrom, UrlFrom};
use crate::config::sinks;
use crate::secret::Secret;
use crate::server::{Server, ServerConfigError, ServerSettings};
use crate::template::fill;

/// Secrets of a sink, with a hash of the secrets and certificates. All are read together, to detect a change of any
/// file.
pub(super) struct LoadedSecrets {
    url: Option<Secret>,
    secrets: BTreeMap<String, Secret>,
    headers: BTreeMap<String, Secret>,
    hmac: Option<Secret>,
    /// Hash of all secrets and certificates.
    hash: Vec<u8>,
}

impl LoadedSecrets {
    /// Reads all secrets and certificates. Blocks while reading.
    pub(super) fn read(webhook: &sinks::WebhookConfig, folder: &Path) -> Result<Self, ServerConfigError> {
        let mut hashed_bytes = Vec::new();
        let mut read_secret = |field: String, from: &SecretFrom| {
            let remedy = "store the secret there, or correct the reference";
            let secret =
                Secret::read(from, folder).map_err(|description| ServerConfigError { field, description, remedy })?;
            // The length separates consecutive secrets.
            hashed_bytes.extend_from_slice(&secret.bytes().len().to_be_bytes());
            hashed_bytes.extend_from_slice(secret.bytes());
            Ok::<_, ServerConfigError>(secret)
        };
        let mut read_map = |field: &str, from: &BTreeMap<String, SecretFrom>| {
            let secret = |(name, from): (&String, _)| Ok((name.clone(), read_secret(format!("{field}.{name}"), from)?));
            from.iter().map(secret).collect::<Result<BTreeMap<_, _>, ServerConfigError>>()
        };
        let secrets = read_map("secrets", &webhook.secrets)?;
        let headers = read_map("secret_headers", &webhook.secret_headers)?;
        let url = match &webhook.url {
            UrlFrom::Text(_) => None,
            UrlFrom::Secret(from) => Some(read_secret("url".to_owned(), from)?),
        };
        let hmac = webhook.hmac.as_ref().map(|from| read_secret("hmac".to_owned(), from)).transpose()?;
        for path in [&webhook.ca_file, &webhook.certificate_file, &webhook.key_file].into_iter().flatten() {
            // An unreadable certificate is reported while connecting.
            let bytes = std::fs::read(folder.join(path)).unwrap_or_default();
            hashed_bytes.extend_from_slice(&bytes.len().to_be_bytes());
            hashed_bytes.extend_from_slice(&bytes);
        }
        let hash = digest(&SHA256, &hashed_bytes).as_ref().to_vec();
        Ok(Self { url, secrets, headers, hmac, hash })
    }

    pub(super) fn has_same_content(&self, other: &Self) -> bool {
        self.hash == other.hash
    }

    /// Returns all secrets that are text.
    fn texts(&self) -> impl Iterator<Item = &str> {
        let all_secrets = self.secrets.values().chain(self.headers.values()).chain(&self.url).chain(&self.hmac);
        all_secrets.filter_map(Secret::text)
    }
}

/// Receiver of requests.
pub(super) struct WebhookTarget {
    pub(super) loaded_secrets: LoadedSecrets,
    pub(super) address: RequestAddress,
    client: Client,
    method: Method,
    headers: HeaderMap,
    secret_headers: HeaderMap,
    key: Option<hmac::Key>,
    /// Connection to the origin of the last redirect.
    redirect_client: Mutex<Option<(String, Client)>>,
}

impl WebhookTarget {
    /// Prepares the requests without connecting.
    pub(super) async fn new(
        webhook: &sinks::WebhookConfig,
        folder: &Path,
        loaded_secrets: LoadedSecrets,
    ) -> Result<Self, ServerConfigError> {
        let setting_error = |field: &str, description: String| ServerConfigError {
            field: field.to_owned(),
            description,
            remedy: "correct the setting",
        };
        let url = match (&webhook.url, &loaded_secrets.url) {
            (UrlFrom::Text(text), _) => {
                fill(text, &loaded_secrets.secrets).map_err(|description| setting_error("url", description))?.0
            }
            (UrlFrom::Secret(_), Some(secret)) => secret.text().unwrap_or_default().to_owned(),
            (UrlFrom::Secret(_), None) => String::new(),
        };
        let address =
            RequestAddress::parse(&url).map_err(|reason| setting_error("url", format!("the URL {reason}")))?;
        let (mut headers, mut secret_headers) = (HeaderMap::new(), HeaderMap::new());
        for (name, value) in &webhook.headers {
            let field = format!("headers.{name}");
            let (value, is_secret) =
                fill(value, &loaded_secrets.secrets).map_err(|description| setting_error(&field, description))?;
            let header_map = if is_secret { &mut secret_headers } else { &mut headers };
            insert_header(header_map, &field, name, value.as_bytes(), is_secret)?;
        }
        for (name, secret) in &loaded_secrets.headers {
            insert_header(&mut secret_headers, &format!("secret_headers.{name}"), name, secret.bytes(), true)?;
        }
        let client = build_client(webhook, &address.origin, folder, true).await?;
        let key = loaded_secrets.hmac.as_ref().map(|key| hmac::Key::new(hmac::HMAC_SHA256, key.bytes()));
        let method = webhook.method.into();
        Ok(Self {
            loaded_secrets,
            address,
            client,
            method,
            headers,
            secret_headers,
            key,
            redirect_client: Mutex::default(),
        })
    }

    pub(super) fn secrets(&self) -> &BTreeMap<String, Secret> {
        &self.loaded_secrets.secrets
    }

    /// Returns all text secrets that must not appear in errors.
    pub(super) fn secret_texts(&self) -> impl Iterator<Item = &str> {
        // If the URL is a secret as a whole, the whole URL is one of these texts.
        self.loaded_secrets.texts()
    }

    /// Returns the request to an address. Secret headers are only sent to the configured origin.
    pub(super) fn request(
        &self,
        to: &RequestAddress,
        body: &str,
        content_type: &str,
    ) -> Result<Request<Body>, http::Error> {
        let mut request = Request::builder().method(self.method.clone()).uri(&to.path);
        if let Some(headers) = request.headers_mut() {
            headers.extend(self.headers.clone());
            // Secret headers never follow a redirect to another origin.
            if to.is_same_origin(&self.address) {
                headers.extend(self.secret_headers.clone());
            }
            headers.insert(CONTENT_TYPE, HeaderValue::try_from(content_type)?);
            if let Some(key) = &self.key {
                // The signature is safe at other origins: it reveals nothing about the key.
                headers.insert(HeaderName::from_static(SIGNATURE_HEADER), signature(key, body)?);
            }
        }
        request.body(Body::from(body.as_bytes().to_vec()))
    }

    /// Returns the connection to an address. The client certificate is not used for other origins.
    pub(super) async fn client_for(
        &self,
        webhook: &sinks::WebhookConfig,
        folder: &Path,
        to: &RequestAddress,
    ) -> Result<Client, String> {
        if to.is_same_origin(&self.address) {
            return Ok(self.client.clone());
        }
        let cached = self.redirect_client.lock().clone();
        if let Some((_, client)) = cached.filter(|(origin, _)| *origin == to.origin) {
            return Ok(client);
        }
        let client = build_client(webhook, &to.origin, folder, false).await.map_err(|error| error.description)?;
        *self.redirect_client.lock() = Some((to.origin.clone(), client.clone()));
        Ok(client)
    }
}

fn insert_header(
    headers: &mut HeaderMap,
    field: &str,
    name: &str,
    value: &[u8],
    is_secret: bool,
) -> Result<(), ServerConfigError> {
    let (Ok(header), Ok(mut value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(value)) else {
        let description = format!("the value of {name} is not a valid header value");
        return Err(ServerConfigError { field: field.to_owned(), description, remedy: "correct the setting" });
    };
    value.set_sensitive(is_secret);
    headers.insert(header, value);
    Ok(())
}

async fn build_client(
    webhook: &sinks::WebhookConfig,
    origin: &str,
    folder: &Path,
    with_certificate: bool,
) -> Result<Client, ServerConfigError> {
    let no_headers = (BTreeMap::new(), BTreeMap::new());
    let settings = ServerSettings {
        url: origin,
        headers: &no_headers.0,
        secret_headers: &no_headers.1,
        ca_file: webhook.ca_file.as_deref(),
        certificate_file: webhook.certificate_file.as_deref().filter(|_| with_certificate),
        key_file: webhook.key_file.as_deref().filter(|_| with_certificate),
        proxy: webhook.proxy.as_deref(),
    };
    let Server { connection, .. } = settings.server(folder).await?;
    Ok(connection.client())
}
