//! Flags of kubectl that change the server, the user and the requests of a connection.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hyper::Uri;
use kube::Config;
use secrecy::SecretString;

use crate::duration;
use crate::names::{not_empty, token};

/// Server of a command, and the flags for its connection.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ConnectionArgs {
    /// The kubeconfig. Defaults to $KUBECONFIG, then ~/.kube/config. If no kubeconfig exists, the service account of the
    /// pod is used.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The context within the kubeconfig. Defaults to the current context.
    #[arg(long, value_name = "NAME", value_parser = not_empty)]
    pub(crate) context: Option<String>,

    /// Flags of kubectl.
    #[command(flatten)]
    pub(crate) flags: KubectlFlags,
}

/// Flags with the names and meanings of kubectl. Each takes precedence over the kubeconfig.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Flags of kubectl")]
pub(crate) struct KubectlFlags {
    /// Act as this user, for example as a service account: `system:serviceaccount:NAMESPACE:NAME`. The user of the
    /// kubeconfig needs the right to impersonate.
    #[arg(long = "as", value_name = "USER", value_parser = not_empty)]
    impersonated_user: Option<String>,

    /// Act as a member of this group. Can be repeated.
    #[arg(long = "as-group", value_name = "GROUP", value_parser = not_empty, requires = "impersonated_user")]
    impersonated_groups: Vec<String>,

    /// Act with this UID.
    #[arg(long = "as-uid", value_name = "UID", value_parser = not_empty, requires = "impersonated_user")]
    impersonated_uid: Option<String>,

    /// The cluster within the kubeconfig, instead of the cluster of the context.
    #[arg(long, value_name = "NAME", value_parser = not_empty)]
    pub(crate) cluster: Option<String>,

    /// The user within the kubeconfig, instead of the user of the context.
    #[arg(long, value_name = "NAME", value_parser = not_empty)]
    pub(crate) user: Option<String>,

    /// Address of the server: `https://10.0.0.1:6443`. Works without a kubeconfig too.
    #[arg(short = 's', long, value_name = "URL", value_parser = server_url)]
    pub(crate) server: Option<Uri>,

    /// Bearer token. Other users of this machine can see command-line arguments.
    #[arg(long, value_name = "TOKEN", value_parser = secret_token)]
    token: Option<SecretString>,

    /// File with the certificate authority of the server.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure_skip_tls_verify")]
    certificate_authority: Option<PathBuf>,

    /// File with the client certificate.
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_certificate: Option<String>,

    /// File with the key of the client certificate.
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    client_key: Option<String>,

    /// Name in the certificate of the server. Defaults to the host of its address.
    #[arg(long, value_name = "NAME", value_parser = not_empty)]
    tls_server_name: Option<String>,

    /// Accept any certificate of the server. An attacker on the network path can then read and change all traffic.
    #[arg(long)]
    insecure_skip_tls_verify: bool,

    /// Maximum wait for a response, and for its next part. 0 disables the limit. Watches have their own limits.
    #[arg(long, value_name = "TIME", value_parser = request_timeout)]
    request_timeout: Option<Duration>,
}

impl KubectlFlags {
    /// Applies the flags to `config`, except for `--cluster` and `--user`, which select entries of the kubeconfig.
    pub(crate) fn apply(&self, config: &mut Config) {
        if let Some(server) = &self.server {
            config.cluster_url = server.clone();
        }
        if let Some(file) = &self.certificate_authority {
            (config.root_cert, config.root_cert_file) = (None, Some(file.clone()));
            config.accept_invalid_certs = false;
        }
        if self.insecure_skip_tls_verify {
            // As with kubectl, the flag replaces the certificate authority of the kubeconfig.
            (config.root_cert, config.root_cert_file) = (None, None);
            config.accept_invalid_certs = true;
        }
        if let Some(name) = &self.tls_server_name {
            config.tls_server_name = Some(name.clone());
        }
        if let Some(timeout) = self.request_timeout {
            config.read_timeout = Some(timeout).filter(|timeout| !timeout.is_zero());
        }
        self.apply_credentials(config);
    }

    fn apply_credentials(&self, config: &mut Config) {
        let auth = &mut config.auth_info;
        if let Some(token) = &self.token {
            auth.token = Some(token.clone());
            // The flag replaces every other source of a token or password.
            (auth.token_file, auth.username, auth.password) = (None, None, None);
            (auth.exec, auth.auth_provider) = (None, None);
        }
        if let Some(file) = &self.client_certificate {
            (auth.client_certificate, auth.client_certificate_data) = (Some(file.clone()), None);
            (auth.client_key, auth.client_key_data) = (self.client_key.clone(), None);
        }
        if let Some(user) = &self.impersonated_user {
            auth.impersonate = Some(user.clone());
            auth.impersonate_uid.clone_from(&self.impersonated_uid);
            auth.impersonate_groups = Some(self.impersonated_groups.clone()).filter(|groups| !groups.is_empty());
        }
    }
}

/// Parses the address of a server. As with kubectl, a scheme is optional.
pub(crate) fn server_url(text: &str) -> Result<Uri, String> {
    let url = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    let parsed = url.parse::<Uri>().ok();
    let usable = parsed.filter(|url| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some());
    usable.ok_or_else(|| "not an address such as https://10.0.0.1:6443".to_owned())
}

fn secret_token(text: &str) -> Result<SecretString, String> {
    token(text).map(SecretString::from)
}

/// Parses the value of `--request-timeout`: a duration, or a number of seconds.
fn request_timeout(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().map(Duration::from_secs);
    seconds.or_else(|| duration::parse(text)).ok_or_else(|| "a duration such as 30s, or 0 for no limit".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use secrecy::ExposeSecret;

    use super::*;

    #[derive(Debug, Parser)]
    struct Flags {
        #[command(flatten)]
        kubectl: KubectlFlags,
    }

    fn config(arguments: &[&str]) -> Config {
        let mut config = Config::new("https://one.test:6443".parse().expect("a URL"));
        config.root_cert = Some(vec![vec![1]]);
        config.auth_info.token_file = Some("/run/token".to_owned());
        let flags = Flags::try_parse_from([&["steadfast"], arguments].concat()).expect("valid flags");
        flags.kubectl.apply(&mut config);
        config
    }

    #[test]
    fn flags_replace_fields_of_kubeconfig() {
        let unchanged = config(&[]);
        assert_eq!((unchanged.accept_invalid_certs, unchanged.root_cert.is_some()), (false, true));
        let config = config(&[
            "-s",
            "two.test",
            "--token=t",
            "--insecure-skip-tls-verify",
            "--request-timeout=7",
            "--as=jane",
            "--as-group=dev",
            "--as-uid=u",
            "--tls-server-name=three.test",
        ]);
        assert_eq!(config.cluster_url, "https://two.test/");
        assert_eq!((config.accept_invalid_certs, config.root_cert, config.root_cert_file), (true, None, None));
        assert_eq!(config.read_timeout, Some(Duration::from_secs(7)));
        assert_eq!(config.tls_server_name.as_deref(), Some("three.test"));
        let auth = config.auth_info;
        assert_eq!(auth.token.as_ref().map(ExposeSecret::expose_secret), Some("t"));
        assert_eq!((auth.token_file, auth.impersonate.as_deref()), (None, Some("jane")));
        assert_eq!((auth.impersonate_uid.as_deref(), auth.impersonate_groups), (Some("u"), Some(vec!["dev".into()])));
    }

    #[test]
    fn invalid_values_are_rejected() {
        for arguments in
            [&["-s", ""][..], &["-s", "ftp://x"], &["--token", "a b"], &["--request-timeout=-1s"], &["--as-group=x"]]
        {
            assert!(Flags::try_parse_from([&["steadfast"], arguments].concat()).is_err(), "{arguments:?}");
        }
        let flags = Flags::try_parse_from(["steadfast", "--token=hunter2"]).expect("valid flags");
        assert!(!format!("{flags:?}").contains("hunter2"));
    }
}
