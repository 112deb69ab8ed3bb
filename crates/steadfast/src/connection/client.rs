//! An ordinary `kube::Client` on a connection.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use kube::client::Body;
use tower::Service;

use super::{Connection, SendError};
use crate::transport::{Keep, ResponseBody, TransportError, is_upgrade};

/// A client of `connection`.
pub(super) fn client(connection: &Connection) -> kube::Client {
    let namespace = connection.default_namespace();
    let mut client = None;
    // The client spawns its queue on the runtime that is current here, and the connection's outlives it.
    connection.environment().enter(&mut || {
        client = Some(kube::Client::new(Transport { connection: connection.clone() }, namespace));
    });
    let Some(client) = client else { unreachable!("an environment runs the action it is given") };
    client
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
        Box::pin(async move {
            let answer = connection.send(request).await?;
            Ok(answer.map(|body| Held { body, _connection: connection }))
        })
    }
}

/// A body that keeps its connection open: a stream of `kube` may outlive the client it came from.
struct Held {
    body: ResponseBody,
    _connection: Connection,
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
