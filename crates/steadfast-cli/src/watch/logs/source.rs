//! Source of logs: the API server.

use std::pin::Pin;

use futures::future::BoxFuture;
use futures::io::AsyncBufRead;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};
use steadfast::unstable::cause::root_cause;

/// Response with a log.
pub(super) type LogReader = Pin<Box<dyn AsyncBufRead + Send>>;

/// Request for the log of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogRequest {
    pub(super) since: Option<Timestamp>,
    /// Requests the log of the ended instance before the current one.
    pub(super) previous: bool,
    /// Keeps the response open until the instance ends.
    pub(super) follow: bool,
}

/// Failure of a request or its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogError {
    /// HTTP status of a rejected request.
    pub(super) code: Option<u16>,
    pub(super) reason: String,
}

/// Source of the log of a container.
pub(super) trait LogSource: Send + Sync + 'static {
    /// Opens the log.
    fn open(&self, request: LogRequest) -> BoxFuture<'_, Result<LogReader, LogError>>;
}

/// Log of a container on a server.
pub(super) struct ServerLog {
    pub(super) client: kube::Client,
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) container: String,
}

impl LogSource for ServerLog {
    fn open(&self, request: LogRequest) -> BoxFuture<'_, Result<LogReader, LogError>> {
        let parameters = LogParams {
            container: Some(self.container.clone()),
            follow: request.follow,
            previous: request.previous,
            since_time: request.since,
            timestamps: true,
            ..LogParams::default()
        };
        Box::pin(async move {
            let api: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
            match api.log_stream(&self.pod, &parameters).await {
                Ok(reader) => Ok(Box::pin(reader) as LogReader),
                Err(kube::Error::Api(status)) => Err(LogError { code: Some(status.code), reason: status.message }),
                Err(error) => Err(LogError { code: None, reason: root_cause(&error) }),
            }
        })
    }
}
