//! Single HTTP request over its own connection, without TLS.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Maximum size of a collected response body.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Returns the response with its whole body. `request` must have a `Host` header.
pub(crate) async fn exchange(stream: TcpStream, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, Error> {
    let (head, body) = open(stream, request).await?.into_parts();
    let body = Limited::new(body, MAX_BODY_BYTES).collect().await?.to_bytes();
    Ok(Response::from_parts(head, body))
}

/// Returns the response with a streamed body. `request` must have a `Host` header.
pub(crate) async fn open(stream: TcpStream, request: Request<Full<Bytes>>) -> Result<Response<StreamedBody>, Error> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The connection task belongs to the response. A drop of the response aborts the task, which closes the
    // connection.
    let connection = ConnectionTask(tokio::spawn(async move { drop(connection.await) }));
    let (head, body) = sender.send_request(request).await?.into_parts();
    Ok(Response::from_parts(head, StreamedBody { body, _connection: connection }))
}

struct ConnectionTask(JoinHandle<()>);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A response body together with its connection.
pub(crate) struct StreamedBody {
    body: Incoming,
    _connection: ConnectionTask,
}

impl Body for StreamedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
