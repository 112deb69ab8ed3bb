//! Normal form of a configuration: values that mean "absent" are absent, and the server's URL has a scheme.
//!
//! kubectl treats an empty string like an absent field. `kube` treats it as a value: an empty namespace, for example,
//! leads to lists of a namespace without objects.

use http::Uri;
use http::uri::Scheme;
use kube::config::AuthInfo;
use secrecy::{ExposeSecret, SecretString};

/// Namespace of a context without one.
const DEFAULT_NAMESPACE: &str = "default";

/// Returns `config` in normal form.
pub fn normalize(mut config: kube::Config) -> kube::Config {
    if config.default_namespace.trim().is_empty() {
        DEFAULT_NAMESPACE.clone_into(&mut config.default_namespace);
    }
    drop_empty(&mut config.tls_server_name);
    normalize_user(&mut config.auth_info);
    let has_certificate =
        config.auth_info.client_certificate.is_some() || config.auth_info.client_certificate_data.is_some();
    let trusts = config.root_cert.is_some() || config.root_cert_file.is_some() || config.accept_invalid_certs;
    if config.cluster_url.scheme().is_none()
        && let Some(url) = with_scheme(&config.cluster_url, trusts || has_certificate)
    {
        config.cluster_url = url;
    }
    config
}

/// Removes empty values from `user`.
fn normalize_user(user: &mut AuthInfo) {
    for field in [
        &mut user.username,
        &mut user.token_file,
        &mut user.client_certificate,
        &mut user.client_certificate_data,
        &mut user.client_key,
        &mut user.impersonate,
        &mut user.impersonate_uid,
    ] {
        drop_empty(field);
    }
    for field in [&mut user.token, &mut user.client_key_data] {
        drop_empty_secret(field);
    }
    // A password counts only together with a name, and may then be empty.
    if user.username.is_none() {
        drop_empty_secret(&mut user.password);
    }
    if user.impersonate_groups.as_ref().is_some_and(Vec::is_empty) {
        user.impersonate_groups = None;
    }
    if let Some(exec) = &mut user.exec {
        for field in [&mut exec.api_version, &mut exec.command, &mut exec.install_hint] {
            drop_empty(field);
        }
    }
}

fn drop_empty(field: &mut Option<String>) {
    if field.as_ref().is_some_and(String::is_empty) {
        *field = None;
    }
}

fn drop_empty_secret(field: &mut Option<SecretString>) {
    if field.as_ref().is_some_and(|secret| secret.expose_secret().is_empty()) {
        *field = None;
    }
}

/// Adds the scheme to `url`, a host with an optional port. As in client-go, the scheme is HTTPS if anything configures
/// TLS.
fn with_scheme(url: &Uri, tls: bool) -> Option<Uri> {
    let authority = url.authority()?.clone();
    let scheme = if tls { Scheme::HTTPS } else { Scheme::HTTP };
    Uri::builder().scheme(scheme).authority(authority).path_and_query("/").build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(change: impl FnOnce(&mut kube::Config)) -> kube::Config {
        let mut config = kube::Config::new("localhost:8080".parse().expect("a URL"));
        change(&mut config);
        normalize(config)
    }

    #[test]
    fn empty_values_become_absent() {
        let config = normal(|config| {
            config.default_namespace = String::new();
            config.tls_server_name = Some(String::new());
            let user = &mut config.auth_info;
            user.token = Some(String::new().into());
            user.token_file = Some(String::new());
            user.username = Some(String::new());
            user.password = Some(String::new().into());
            user.impersonate = Some(String::new());
            user.client_certificate_data = Some(String::new());
            user.client_key_data = Some(String::new().into());
        });
        assert_eq!(config.default_namespace, "default");
        assert_eq!(config.tls_server_name, None);
        let left = serde_json::to_value(&config.auth_info).expect("JSON");
        assert!(left.as_object().is_some_and(|fields| fields.values().all(serde_json::Value::is_null)), "{left}");
    }

    #[test]
    fn server_without_scheme_gets_one() {
        assert_eq!(normal(|_| {}).cluster_url, "http://localhost:8080/");
        assert_eq!(normal(|config| config.accept_invalid_certs = true).cluster_url, "https://localhost:8080/");
        assert_eq!(normal(|config| config.root_cert = Some(vec![vec![1]])).cluster_url, "https://localhost:8080/");
    }
}
