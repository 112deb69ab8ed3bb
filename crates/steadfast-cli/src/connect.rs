//! A connection from flags and kubeconfig, and what it means when a server does not answer.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use steadfast::Connection;
use steadfast::connection::{ConnectError, SendError};
use steadfast::transport::TransportError;

use crate::failure::Failure;

/// A connection to the server that `kubeconfig` and `context` name, else to the one that is found as kubectl finds it.
///
/// What is found there is followed: rotated credentials, another authority.
pub(crate) async fn connect(kubeconfig: Option<PathBuf>, context: Option<String>) -> Result<Connection, Failure> {
    let (config, context) = configuration(kubeconfig.as_deref(), context).await?;
    let again = move || again(kubeconfig.clone(), context.clone());
    // A credential plugin that the kubeconfig names is run and waited for.
    let built = tokio::task::spawn_blocking(move || Connection::builder(config).loader(again).build()).await;
    built.map_err(Failure::run)?.map_err(Failure::config)
}

/// What to connect to, and the context that says so; there is none within a cluster.
async fn configuration(file: Option<&Path>, context: Option<String>) -> Result<(Config, Option<String>), Failure> {
    let (read, source) = match file {
        Some(file) => (Kubeconfig::read_from(file), file.display().to_string()),
        None => (Kubeconfig::read(), "the kubeconfig".to_owned()),
    };
    let kubeconfig = match read {
        Ok(kubeconfig) => kubeconfig,
        Err(error) => {
            if let (None, None, Ok(config)) = (file, &context, Config::incluster()) {
                return Ok((config, None));
            }
            return Err(unusable(&source, error, &[]));
        }
    };
    let contexts: Vec<String> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
    let context = context.or_else(|| kubeconfig.current_context.clone());
    let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
    let read = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    read.map(|config| (config, context)).map_err(|error| unusable(&source, error, &contexts))
}

/// The same once more. Another context may be another cluster, so the one of the start is kept.
async fn again(file: Option<PathBuf>, context: Option<String>) -> Result<Config, ConnectError> {
    if context.is_none() {
        return Config::incluster().map_err(|error| ConnectError::Infer { detail: error.to_string() });
    }
    let kubeconfig = match file {
        Some(file) => Kubeconfig::read_from(file),
        None => Kubeconfig::read(),
    };
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    Ok(Config::from_custom_kubeconfig(kubeconfig?, &options).await?)
}

/// Why a kubeconfig cannot be used, in the library's words, and what to do about it with this program's flags.
fn unusable(source: &str, error: KubeconfigError, contexts: &[String]) -> Failure {
    let known = || match contexts {
        [] => "it has none".to_owned(),
        names => format!("it has {}", names.join(", ")),
    };
    let (what, advice) = match &error {
        KubeconfigError::ReadConfig(..) => ("the kubeconfig", "; check --kubeconfig and $KUBECONFIG".to_owned()),
        KubeconfigError::FindPath => (source, "; name a file with --kubeconfig".to_owned()),
        KubeconfigError::CurrentContextNotSet => (source, format!("; choose one with --context: {}", known())),
        KubeconfigError::LoadContext(_) => (source, format!("; {}", known())),
        _ => (source, String::new()),
    };
    let is_read = !matches!(error, KubeconfigError::ReadConfig(..));
    let why = match ConnectError::from(error) {
        ConnectError::Kubeconfig { detail } => detail,
        other => other.to_string(),
    };
    let verb = if is_read { "cannot be used: " } else { "" };
    Failure::config(format!("{what} {verb}{why}{advice}"))
}

/// What a request that was not answered means.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The server may answer yet: why it has not.
    Passing(String),
    /// Asking again does not help.
    Lasting(Failure),
}

/// What `error`, met while asking `server`, means.
pub(crate) fn trouble(server: &str, error: &kube::Error) -> Trouble {
    if let Some(error) = find::<SendError>(error) {
        return match error {
            SendError::Transport(error) => transport_trouble(error),
            SendError::Credentials { .. } => Trouble::Lasting(Failure::config(error)),
        };
    }
    match error {
        kube::Error::Api(status) => match status.code {
            401 => Trouble::Lasting(Failure::config(format!(
                "{server} does not accept the credentials of the kubeconfig (401 {}); renew them",
                status.message
            ))),
            403 => Trouble::Lasting(Failure::config(format!(
                "{server} does not let these credentials see what there is (403 {})",
                status.message
            ))),
            404 => Trouble::Lasting(Failure::config(format!(
                "{server} answers, but not as an API server does (404); check the URL in the kubeconfig"
            ))),
            code @ (429 | 500..) => Trouble::Passing(format!("{server} answered {code} {}", status.message)),
            code => Trouble::Lasting(Failure::run(format!("{server} answered {code} {}", status.message))),
        },
        kube::Error::SerdeError(_) => Trouble::Lasting(Failure::config(format!(
            "{server} answers, but not as an API server does; check the URL in the kubeconfig"
        ))),
        other => Trouble::Passing(format!("{server}: {}", innermost(other))),
    }
}

fn transport_trouble(error: &TransportError) -> Trouble {
    match error {
        // What TLS itself says comes as invalid data; a connection that ended meanwhile does not.
        TransportError::Tls { source, .. } if source.kind() == io::ErrorKind::InvalidData => {
            Trouble::Lasting(Failure::config(error))
        }
        TransportError::Protocol { .. } | TransportError::Invalid { .. } => Trouble::Lasting(Failure::config(error)),
        other => Trouble::Passing(other.to_string()),
    }
}

fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

fn innermost(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn told(text: &str, context: Option<&str>) -> String {
        let kubeconfig = match Kubeconfig::from_yaml(text) {
            Ok(kubeconfig) => kubeconfig,
            Err(error) => return unusable("x.yaml", error, &[]).to_string(),
        };
        let contexts: Vec<String> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
        let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
        match Config::from_custom_kubeconfig(kubeconfig, &options).await {
            Ok(config) => config.cluster_url.to_string(),
            Err(error) => unusable("x.yaml", error, &contexts).to_string(),
        }
    }

    const GOOD: &str = "clusters: [{name: c, cluster: {server: 'https://example.test:6443'}}]\n\
                        contexts: [{name: prod, context: {cluster: c, user: u}}, {name: test, context: {cluster: d}}]\n\
                        users: [{name: u, user: {token: hunter2}}]\n";

    #[tokio::test]
    async fn contexts_that_are_not_there_are_told_with_those_that_are() {
        assert_eq!(told(GOOD, Some("prod")).await, "https://example.test:6443/");
        let unknown = told(GOOD, Some("nope")).await;
        assert_eq!(unknown, "x.yaml cannot be used: there is no context \"nope\"; it has prod, test");
        assert!(told(GOOD, None).await.contains("choose one with --context: it has prod, test"));
        assert!(told(GOOD, Some("test")).await.contains("cluster \"d\" is not there"));
    }

    #[tokio::test]
    async fn a_broken_kubeconfig_is_located_and_not_quoted() {
        let told = told("users: [{name: u, user: {token: hunter2}}\nclusters: 7\n", None).await;
        assert!(told.contains("line 2"), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}
