//! One request over a connection of its own, without TLS.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// More than anything that is asked here is answered with.
const LARGEST: usize = 64 * 1024 * 1024;

/// What is answered to `request`, which has to name its host.
pub(crate) async fn exchange(
    stream: TcpStream,
    request: Request<Full<Bytes>>,
) -> Result<Response<Bytes>, Box<dyn std::error::Error + Send + Sync>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, LARGEST).collect().await?.to_bytes();
        Ok(Response::from_parts(head, body))
    };
    // Both in this task: what is given up here goes on nowhere.
    tokio::pin!(exchange);
    tokio::pin!(connection);
    tokio::select! {
        biased;
        answered = &mut exchange => answered,
        ended = &mut connection => {
            ended?;
            exchange.await
        }
    }
}
