//! An ordinary `kube::Client` on a connection, with retries for a busy server and the configured timeouts.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use http_body_util::Either;
use kube::client::Body;
use tokio::runtime::Handle;
use tower::{BoxError, Service};

use super::secret_filter::{CheckedBody, SensitiveResponse};
use super::{Connection, SendError, busy_retry};
use crate::transport::{ConnectionRuntime, KeptValues, ResponseBody, is_upgrade};
use crate::writes::Writes;
use crate::writes::recording::WriteRecording;
use crate::writes::request;
use crate::writes::response::WriteObserver;

impl Connection {
    /// Returns an ordinary client, which keeps this connection open as a clone does.
    ///
    /// The client belongs to no runtime: callers on any thread can use it, and its sockets belong to the threads of this
    /// connection. [`client_on`](Self::client_on) returns a client that saves the switches between threads.
    pub fn client(&self) -> kube::Client {
        let namespace = self.default_namespace();
        let mut client = None;
        // `kube::Client::new` spawns a task on the current runtime. The caller's runtime may end before the client does,
        // so the task belongs to the environment.
        self.environment().enter(&mut || {
            client = Some(kube::Client::new(
                KubeService { connection: self.clone(), runtime: ConnectionRuntime::Environment },
                namespace,
            ));
        });
        let Some(client) = client else { unreachable!("an environment runs the action it is given") };
        client
    }

    /// Returns an ordinary client whose task and connections belong to `runtime`.
    ///
    /// A request from a task of `runtime` then wakes no other thread. Use this client for reconciles that write often.
    /// Deadlines, retries, pings, fences and the record of writes are equal to those of [`client`](Self::client). The
    /// connections and the watches of informers stay on their own threads, so that a blocked `runtime` delays only the
    /// requests of this client.
    ///
    /// Like any client of `kube`, this client ends with its runtime: afterwards each of its requests fails. Its
    /// connections end as well, and other clients are not affected.
    ///
    /// `runtime` must have I/O enabled ([`enable_io`](tokio::runtime::Builder::enable_io)). Without I/O, each request fails.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use kube::Api;
    /// # use steadfast::Connection;
    /// # async fn example(connection: Connection) {
    /// let client = connection.client_on(&tokio::runtime::Handle::current());
    /// let maps = Api::<ConfigMap>::namespaced(client, "shop");
    /// # }
    /// ```
    pub fn client_on(&self, runtime: &Handle) -> kube::Client {
        let service = KubeService { connection: self.clone(), runtime: ConnectionRuntime::Runtime(runtime.clone()) };
        // The task of `kube::Client::new` belongs to the runtime, so that a request does not cross threads to reach it.
        let _current = runtime.enter();
        kube::Client::new(service, self.default_namespace())
    }

    /// Starts to record the writes of this connection's clients, so that a caller can wait until caches contain them.
    ///
    /// The recording contains the writes of the futures passed to its [`scope`](WriteRecording::scope). It also contains
    /// each write outside of all scopes, because any caller may have sent such a write.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use kube::api::{Api, DeleteParams};
    /// # use steadfast::{Connection, InformerFactory};
    /// # async fn example(connection: Connection, informers: InformerFactory) -> Result<(), Box<dyn std::error::Error>> {
    /// let pods = Api::<Pod>::namespaced(connection.client(), "shop");
    /// let recording = connection.record_writes();
    /// recording.scope(pods.delete("web-0", &DeleteParams::default())).await?;
    /// informers.wait_for_writes(&recording.writes(), Duration::from_secs(30)).await?;
    /// // The caches of the factory contain the deletion now.
    /// # Ok(())
    /// # }
    /// ```
    pub fn record_writes(&self) -> WriteRecording {
        self.inner.recordings.begin()
    }

    /// Records writes by another client or another program, as if a client of this connection had sent them now.
    pub fn record_external_writes(&self, writes: &Writes) {
        self.inner.recordings.add_external(writes);
    }
}

/// Adapter from a connection to the service type of `kube`.
struct KubeService {
    connection: Connection,
    /// Runtime of the requests.
    runtime: ConnectionRuntime,
}

impl Service<Request<Body>> for KubeService {
    type Response = Response<ObservedBody>;
    type Error = SendError;
    type Future = BoxFuture<'static, Result<Response<ObservedBody>, SendError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let connection = self.connection.clone();
        // An upgraded stream (exec, port-forward) may outlive the client, and must keep the pool alive.
        if is_upgrade(&request) {
            request.extensions_mut().insert(KeptValues::new(connection.clone()));
        }
        let sensitive = SensitiveResponse::of(&request);
        connection.inner.client_defaults.deadlines(&mut request);
        if self.runtime != ConnectionRuntime::Environment {
            request.extensions_mut().insert(self.runtime.clone());
        }
        Box::pin(async move {
            // Called inside the future, because the task that polls the future identifies the recording of the write.
            let mut observer = connection.inner.recordings.write(|| request::target(&request)).map(|write| {
                let environment = connection.environment().clone();
                WriteObserver::new(write, request.method(), environment)
            });
            let on_retry = |busy| observer.iter_mut().for_each(|observer| observer.record_retry(busy));
            let response = busy_retry::send(&connection, request, on_retry).await.inspect_err(|error| {
                observer.iter().filter(|_| !error.maybe_sent()).for_each(WriteObserver::not_sent);
            })?;
            let observer = observer.filter(|observer| observer.response_head(response.status()));
            let sensitive = sensitive.filter(|_| response.status().is_success());
            Ok(response.map(|body| {
                let body = match sensitive {
                    Some(sensitive) => Either::Right(CheckedBody::new(body, sensitive, connection.server())),
                    None => Either::Left(body),
                };
                ObservedBody { body, observer, _connection: connection }
            }))
        })
    }
}

/// Body that keeps its connection open, because a stream of `kube` may outlive its client.
struct ObservedBody {
    body: Either<ResponseBody, CheckedBody>,
    observer: Option<WriteObserver>,
    _connection: Connection,
}

impl http_body::Body for ObservedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()).and_then(Frame::data_ref);
        if let (Some(observer), Some(data)) = (&mut self.observer, data) {
            observer.observe(data);
        }
        // A reader that knows the length does not poll after the last frame, so `is_end_stream` completes the observer too.
        if frame.is_none() || (data.is_some() && self.body.is_end_stream()) {
            self.observer.take().into_iter().for_each(WriteObserver::complete);
        } else if matches!(frame, Some(Err(_))) {
            self.observer = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
