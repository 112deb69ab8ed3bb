//! Connection from flags and kubeconfig, and classification of failed requests.

use std::error::Error;
use std::io;
use std::path::Path;

use kube::Config;
use steadfast::Connection;
use steadfast::connection::{ConnectError, KubeconfigFiles, MergedKubeconfig, SendError};
use steadfast::transport::TransportError;
use steadfast::unstable::cause::root_cause;

use crate::failure::Failure;
use crate::kubectl_flags::{ConnectionArgs, KubectlFlags};

/// Connects to the server of `args`, which default to kubectl's search order.
///
/// The connection reloads its source: rotated credentials or another certificate authority apply without a restart.
pub(crate) async fn connect(args: ConnectionArgs) -> Result<Connection, Failure> {
    connect_edited(args, |_| {}).await
}

/// Connects like [`connect`]. `edit` changes the settings, at the start and at each reload.
pub(crate) async fn connect_edited(
    args: ConnectionArgs,
    edit: impl Fn(&mut Config) + Send + Sync + 'static,
) -> Result<Connection, Failure> {
    // This work blocks: it reads files, and may run a credential plugin of the kubeconfig.
    let built = tokio::task::spawn_blocking(move || {
        let (mut config, source) = config_with_flags(&args)?;
        edit(&mut config);
        let loader = move || {
            let config = reload(&args, &source).map(|mut config| {
                args.flags.apply(&mut config);
                edit(&mut config);
                config
            });
            async move { config }
        };
        Connection::builder(config).loader(loader).build().map_err(Failure::config)
    });
    built.await.map_err(Failure::run)?
}

/// Returns the kubeconfig that `file` names, or else the kubeconfigs that kubectl reads.
pub(crate) fn files(file: Option<&Path>) -> Result<KubeconfigFiles, ConnectError> {
    file.map_or_else(KubeconfigFiles::from_env, |file| Ok(KubeconfigFiles::from_path(file)))
}

/// Source of the connection settings. A reload reads the same source, because another one may belong to another cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ConfigSource {
    /// This context of the kubeconfig. `None` if flags select a server or a cluster, and no context is current.
    Kubeconfig(Option<String>),
    /// The flag `--server`, without a kubeconfig.
    ServerFlag,
    /// The service account of the pod.
    ServiceAccount,
}

/// Returns the connection settings with the flags of kubectl, and their source. Blocks while files are read.
pub(crate) fn config_with_flags(args: &ConnectionArgs) -> Result<(Config, ConfigSource), Failure> {
    let files = files(args.kubeconfig.as_deref());
    let (mut config, source) = find_config(args, files, || Config::incluster().ok())?;
    args.flags.apply(&mut config);
    Ok((config, source))
}

/// Returns the connection settings and their source.
fn find_config(
    args: &ConnectionArgs,
    files: Result<KubeconfigFiles, ConnectError>,
    service_account: impl FnOnce() -> Option<Config>,
) -> Result<(Config, ConfigSource), Failure> {
    let ConnectionArgs { kubeconfig, context, flags } = args;
    let unreadable = |error| Failure::config(format!("{}; check --kubeconfig and $KUBECONFIG", error_detail(error)));
    // `--server` and the service account of the pod apply only if no kubeconfig exists and no flag selects an entry of
    // one: a mistake in a kubeconfig or in a flag must not silently select another cluster.
    let names_entry = kubeconfig.is_some() || context.is_some() || flags.cluster.is_some() || flags.user.is_some();
    if !names_entry {
        // Without a variable and a home directory, no kubeconfig can exist.
        let present = files.as_ref().map_or(Ok(None), KubeconfigFiles::read_if_present).map_err(unreadable)?;
        if present.is_none() {
            if let Some(server) = &flags.server {
                return Ok((Config::new(server.clone()), ConfigSource::ServerFlag));
            }
            if let Some(config) = service_account() {
                return Ok((config, ConfigSource::ServiceAccount));
            }
        }
    }
    let files = files.map_err(unreadable)?;
    let merged = with_flags(files.read().map_err(unreadable)?, flags);
    let config = context_config(&files.to_string(), &merged, context.as_deref())?;
    // Fixes the context for reloads, which must not follow a changed current context to another cluster.
    let context = context.clone().or_else(|| merged.current_context().map(str::to_owned));
    Ok((config, ConfigSource::Kubeconfig(context)))
}

/// Applies the flags that select entries of a kubeconfig.
fn with_flags(merged: MergedKubeconfig, flags: &KubectlFlags) -> MergedKubeconfig {
    let server = flags.server.as_ref().map(ToString::to_string);
    merged.with_overrides(flags.cluster.clone(), flags.user.clone()).with_server(server)
}

/// Returns the settings of `context`, or an error that names the flag to correct.
fn context_config(source: &str, merged: &MergedKubeconfig, context: Option<&str>) -> Result<Config, Failure> {
    merged.config(context).map_err(|error| {
        // A missing selection is the only mistake that a flag of this program can correct.
        let advice = match context.or(merged.current_context()) {
            None => "; choose one with --context",
            Some(_) => "",
        };
        Failure::config(format!("{source} cannot be used: {}{advice}", error_detail(error)))
    })
}

/// Reads the settings again, from their source. The context of the start is kept: the current context may have changed to
/// another cluster.
fn reload(args: &ConnectionArgs, source: &ConfigSource) -> Result<Config, ConnectError> {
    let ConnectionArgs { kubeconfig, flags, .. } = args;
    match (source, &flags.server) {
        (ConfigSource::ServerFlag, Some(server)) => Ok(Config::new(server.clone())),
        (ConfigSource::Kubeconfig(context), _) => {
            let merged = with_flags(files(kubeconfig.as_deref())?.read()?, flags);
            // Without a context at the start, a later current context has no effect either.
            merged.without_current_context().config(context.as_deref())
        }
        (ConfigSource::ServerFlag | ConfigSource::ServiceAccount, _) => {
            Config::incluster().map_err(|error| ConnectError::Infer { detail: error.to_string() })
        }
    }
}

pub(crate) fn error_detail(error: ConnectError) -> String {
    match error {
        ConnectError::Kubeconfig { detail } => detail,
        other => other.to_string(),
    }
}

/// Classification of a failed request.
#[derive(Debug)]
pub(crate) enum RequestFailure {
    /// A retry may succeed; the text is the cause.
    Transient(String),
    /// A retry cannot succeed.
    Permanent(Failure),
}

/// Classifies `error`, the failure of a request to `server`.
pub(crate) fn classify(server: &str, error: &kube::Error) -> RequestFailure {
    // The error of the transport is more precise than the status or the outer error of kube, so it decides first.
    if let Some(error) = find_source::<SendError>(error) {
        return match error {
            SendError::Transport(error) => classify_transport(error),
            SendError::Layer { .. } => RequestFailure::Transient(error.to_string()),
            // Credentials that cannot be obtained.
            _ => RequestFailure::Permanent(Failure::config(error)),
        };
    }
    match error {
        kube::Error::Api(status) => match status.code {
            401 => RequestFailure::Permanent(Failure::config(format!(
                "{server} does not accept the credentials of the kubeconfig (401 {}); renew them",
                status.message
            ))),
            403 => RequestFailure::Permanent(Failure::config(format!(
                "{server} forbids these credentials to list its resources (403 {})",
                status.message
            ))),
            // Every API server serves discovery: a 404 there means another server or a wrong path in the URL.
            404 => RequestFailure::Permanent(Failure::config(format!(
                "{server} responds, but not as an API server (404); check the URL in the kubeconfig"
            ))),
            // The server is overloaded or starting, or a backend is unavailable. A retry may succeed.
            code @ (429 | 500..) => {
                RequestFailure::Transient(format!("{server} responded with {code} {}", status.message))
            }
            code => {
                RequestFailure::Permanent(Failure::run(format!("{server} responded with {code} {}", status.message)))
            }
        },
        // A proxy or a login page often responds 200 with HTML.
        kube::Error::SerdeError(_) => RequestFailure::Permanent(Failure::config(format!(
            "{server} responds, but not as an API server; check the URL in the kubeconfig"
        ))),
        other => RequestFailure::Transient(format!("{server}: {}", root_cause(other))),
    }
}

fn classify_transport(error: &TransportError) -> RequestFailure {
    match error {
        // TLS errors of the peer arrive as invalid data; a connection that broke during the handshake does not.
        TransportError::Tls { source, .. } if source.kind() == io::ErrorKind::InvalidData => {
            RequestFailure::Permanent(Failure::config(error))
        }
        TransportError::Protocol { .. } | TransportError::Invalid { .. } => {
            RequestFailure::Permanent(Failure::config(error))
        }
        other => RequestFailure::Transient(other.to_string()),
    }
}

fn find_source<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    // kube boxes the errors of its service, so only the chain of sources leads to the original type.
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server_or_error(text: &str, context: Option<&str>) -> String {
        let merged = match MergedKubeconfig::parse(text) {
            Ok(merged) => merged,
            Err(error) => return error_detail(error),
        };
        match context_config("x.yaml", &merged, context) {
            Ok(config) => config.cluster_url.to_string(),
            Err(failure) => failure.to_string(),
        }
    }

    const VALID_KUBECONFIG: &str = "clusters: [{name: c, cluster: {server: 'https://example.test:6443'}}]\n\
                        contexts: [{name: prod, context: {cluster: c, user: u}}, {name: test, context: {cluster: d}}]\n\
                        users: [{name: u, user: {token: hunter2}}]\n";

    /// Returns the server that the program connects to in a pod, or the error.
    fn server_in_pod(args: &ConnectionArgs, path: &Path) -> String {
        let service_account = || Some(Config::new("https://pod.test".parse().expect("a URL")));
        let files = Ok(KubeconfigFiles::from_list(path.as_os_str()));
        match find_config(args, files, service_account) {
            Ok((config, _)) => config.cluster_url.to_string(),
            Err(failure) => failure.to_string(),
        }
    }

    #[test]
    fn unusable_kubeconfig_never_selects_the_pod() -> io::Result<()> {
        let path = std::env::temp_dir().join(format!("steadfast-connect-{}", std::process::id()));
        let server = |flag: Option<&str>| {
            let mut args = ConnectionArgs::default();
            args.flags.server = flag.map(|server| server.parse().expect("a URL"));
            server_in_pod(&args, &path)
        };
        assert_eq!(server(None), "https://pod.test/", "no file");
        assert_eq!(server(Some("https://flag.test")), "https://flag.test/");
        std::fs::write(&path, "kind: Config\n")?;
        assert_eq!(server(None), "https://pod.test/", "an empty file");
        for (text, reason) in [
            ("users: [{name: u, user: {token: hunter2}}\nclusters: 7\n", "syntax error at line 2"),
            (VALID_KUBECONFIG, "no current context is set"),
            (&format!("{VALID_KUBECONFIG}current-context: pro\n"), "the context \"pro\" does not exist"),
        ] {
            std::fs::write(&path, text)?;
            let error = server(None);
            assert!(error.contains(reason) && error.contains(&path.display().to_string()), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        std::fs::remove_file(&path)
    }

    #[test]
    fn server_or_cluster_needs_no_context() -> io::Result<()> {
        let path = std::env::temp_dir().join(format!("steadfast-contextless-{}", std::process::id()));
        std::fs::write(&path, VALID_KUBECONFIG)?;
        let mut args = ConnectionArgs::default();
        assert!(server_in_pod(&args, &path).contains("choose one with --context"));
        args.flags.user = Some("u".to_owned());
        args.flags.cluster = Some("c".to_owned());
        assert_eq!(server_in_pod(&args, &path), "https://example.test:6443/");
        args.flags.cluster = None;
        args.flags.server = Some("https://flag.test".parse().expect("a URL"));
        assert_eq!(server_in_pod(&args, &path), "https://flag.test/");
        std::fs::write(&path, format!("{VALID_KUBECONFIG}current-context: pro\n"))?;
        assert!(server_in_pod(&args, &path).contains("the context \"pro\" does not exist"));
        std::fs::remove_file(&path)
    }

    #[test]
    fn reload_ignores_later_current_context() -> io::Result<()> {
        let path = std::env::temp_dir().join(format!("steadfast-later-context-{}", std::process::id()));
        let mut args = ConnectionArgs { kubeconfig: Some(path.clone()), ..ConnectionArgs::default() };
        args.flags.server = Some("https://flag.test".parse().expect("a URL"));
        let files = || Ok(KubeconfigFiles::from_path(&path));
        let started = |args: &ConnectionArgs| find_config(args, files(), || None).map(|(_, source)| source);
        let reloaded = |args: &ConnectionArgs, source: &ConfigSource| {
            let config = reload(args, source).expect("a usable kubeconfig");
            (config.default_namespace, config.auth_info.token.is_some())
        };
        let text = VALID_KUBECONFIG.replace("user: u}", "user: u, namespace: shop}");
        let with_current = format!("{text}current-context: prod\n");
        std::fs::write(&path, &text)?;
        let source = started(&args).expect("a server");
        assert_eq!(source, ConfigSource::Kubeconfig(None));
        std::fs::write(&path, &with_current)?;
        // Neither the credentials nor the namespace of the context.
        assert_eq!(reloaded(&args, &source), ("default".to_owned(), false));
        // With a current context at the start, its credentials and its namespace apply, also after a change.
        let source = started(&args).expect("a server");
        std::fs::write(&path, with_current.replace("current-context: prod", "current-context: test"))?;
        assert_eq!(reloaded(&args, &source), ("shop".to_owned(), true));
        std::fs::remove_file(&path)
    }

    #[test]
    fn missing_context_error_lists_existing_contexts() {
        assert_eq!(server_or_error(VALID_KUBECONFIG, Some("prod")), "https://example.test:6443/");
        let unknown = server_or_error(VALID_KUBECONFIG, Some("nope"));
        assert_eq!(
            unknown,
            "x.yaml cannot be used: the context \"nope\" does not exist; existing contexts: prod, test"
        );
        assert!(
            server_or_error(VALID_KUBECONFIG, None)
                .contains("no current context is set; existing contexts: prod, test; choose one with --context")
        );
        assert!(
            server_or_error(VALID_KUBECONFIG, Some("test"))
                .contains("the cluster \"d\" of the context \"test\" does not exist")
        );
    }

    #[test]
    fn invalid_kubeconfig_error_hides_secrets() {
        let message = server_or_error("users: [{name: u, user: {token: hunter2}}\nclusters: 7\n", None);
        assert!(message.contains("line 2"), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
    }
}
