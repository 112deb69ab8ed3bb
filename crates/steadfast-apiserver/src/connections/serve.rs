//! One connection, from its first byte to its end.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use ::http::Request;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::runtime::Handle;

use crate::cluster::Cluster;
use crate::http;
use crate::net::{ConnectionExecutor, ControlledStream, Link, TaskGroup, Transport};

/// First bytes of a client with prior knowledge of HTTP/2.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Serves a connection until it ends or is reset.
pub(super) async fn serve_connection<T: Transport>(
    cluster: Arc<Cluster>,
    replica: usize,
    transport: T,
    runtime: Handle,
) {
    let link = cluster.open_link(replica);
    let mut controlled = ControlledStream::new(transport, Arc::clone(&link), cluster.clock);
    if cluster.replicas[replica].active_faults.read(|faults| faults.accept_and_close) {
        return;
    }
    if !cluster.replicas[replica].active_faults.is_reachable() {
        link.reset(cluster.clock.elapsed());
        return;
    }
    // Tasks of the connection run in their own group, so that they end with the connection.
    let tasks = TaskGroup::with_runtime(runtime);
    let serve_requests = async {
        if let Some(tls) = cluster.tls() {
            let stream = tls.acceptor.accept(controlled).await?;
            if let Some(certificate) = stream.get_ref().1.peer_certificates().and_then(<[_]>::first) {
                let _ = link.certificate.set(certificate.to_vec());
            }
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            return serve_http(&cluster, &link, stream, is_http2, &tasks).await;
        }
        // Without TLS there is no ALPN. The first bytes show whether the client has prior knowledge of HTTP/2.
        let is_http2 = begins_with_preface(&mut controlled).await?;
        serve_http(&cluster, &link, controlled, is_http2, &tasks).await
    };
    tokio::select! {
        biased;
        // A reset takes precedence over data in flight: dropping the future drops the transport, which aborts the
        // connection.
        () = link.until_reset() => {}
        outcome = serve_requests => {
            if let Err(error) = outcome {
                tracing::debug!(connection = link.id, replica, %error, "connection ended");
            }
        }
    }
    // A task of this connection may still hold data. No data may be sent after the end.
    tasks.close();
}

async fn begins_with_preface<T: Transport>(stream: &mut ControlledStream<T>) -> io::Result<bool> {
    let mut received = Vec::with_capacity(HTTP2_PREFACE.len());
    // Stops at the first different byte, so a short HTTP/1 request cannot block.
    while received.len() < HTTP2_PREFACE.len() && HTTP2_PREFACE.starts_with(&received) {
        let mut bytes = [0; 24];
        let missing_bytes = HTTP2_PREFACE.len() - received.len();
        let read_bytes = stream.read(&mut bytes[..missing_bytes]).await?;
        if read_bytes == 0 {
            break;
        }
        received.extend_from_slice(&bytes[..read_bytes]);
    }
    let is_http2 = received == HTTP2_PREFACE;
    // The HTTP implementation must read these bytes too.
    stream.put_back(Bytes::from(received));
    Ok(is_http2)
}

async fn serve_http(
    cluster: &Arc<Cluster>,
    link: &Arc<Link>,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    is_http2: bool,
    tasks: &Arc<TaskGroup>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let sessions = http::Sessions::default();
    let service = service_fn(|mut request: Request<Incoming>| {
        let (cluster, link) = (Arc::clone(cluster), Arc::clone(link));
        // Only HTTP/1 connections can switch to WebSocket here.
        if !is_http2 {
            request.extensions_mut().insert(sessions.clone());
        }
        async move { Ok::<_, Infallible>(http::serve(cluster, link, request).await) }
    });
    let io = TokioIo::new(stream);
    if is_http2 {
        let mut builder = hyper::server::conn::http2::Builder::new(ConnectionExecutor(Arc::clone(tasks)));
        builder.max_concurrent_streams(cluster.settings.max_streams);
        let mut connection = pin!(builder.serve_connection(io, service));
        tokio::select! {
            biased;
            () = link.until_goaway() => connection.as_mut().graceful_shutdown(),
            outcome = connection.as_mut() => return Ok(outcome?),
        }
        // Open streams continue to their end after `GOAWAY`.
        Ok(connection.await?)
    } else {
        let mut builder = hyper::server::conn::http1::Builder::new();
        // hyper's timer would use the real clock, and this server does not limit slow clients.
        builder.header_read_timeout(None).half_close(false);
        let mut connection = pin!(builder.serve_connection(io, service).with_upgrades());
        tokio::select! {
            biased;
            () = link.until_goaway() => {
                connection.as_mut().graceful_shutdown();
                connection.await?;
            }
            outcome = connection.as_mut() => outcome?,
        }
        // The connection has switched to WebSocket. Its faults still apply.
        if let Some(session) = sessions.take() {
            session.await;
        }
        Ok(())
    }
}
