//! An ordinary `kube::Client` on a connection: patient with a busy server, and within the times of its configuration.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use http_body_util::Either;
use kube::client::Body;
use tower::{BoxError, Service};

use super::discreet::{Checked, Sensitive};
use super::{Connection, SendError, patience};
use crate::transport::{Keep, ResponseBody, is_upgrade};

impl Connection {
    /// An ordinary client on these connections; it keeps them open as a clone of this would.
    pub fn client(&self) -> kube::Client {
        let namespace = self.default_namespace();
        let mut client = None;
        // The client spawns its queue on the runtime that is current here, and the connection's outlives it.
        self.environment().enter(&mut || {
            client = Some(kube::Client::new(Transport { connection: self.clone() }, namespace));
        });
        let Some(client) = client else { unreachable!("an environment runs the action it is given") };
        client
    }
}

/// A connection as `kube` wants it.
struct Transport {
    connection: Connection,
}

impl Service<Request<Body>> for Transport {
    type Response = Response<Held>;
    type Error = SendError;
    type Future = BoxFuture<'static, Result<Response<Held>, SendError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let connection = self.connection.clone();
        if is_upgrade(&request) {
            request.extensions_mut().insert(Keep::new(connection.clone()));
        }
        let sensitive = Sensitive::of(&request);
        connection.inner.manners.deadlines(&mut request);
        Box::pin(async move {
            let answer = patience::send(&connection, request).await?;
            let sensitive = sensitive.filter(|_| answer.status().is_success());
            Ok(answer.map(|body| {
                let body = match sensitive {
                    Some(sensitive) => Either::Right(Checked::new(body, sensitive, connection.server())),
                    None => Either::Left(body),
                };
                Held { body, _connection: connection }
            }))
        })
    }
}

/// A body that keeps its connection open: a stream of `kube` may outlive the client it came from.
struct Held {
    body: Either<ResponseBody, Checked>,
    _connection: Connection,
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
