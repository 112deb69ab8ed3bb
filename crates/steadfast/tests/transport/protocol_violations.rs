//! Peers that violate HTTP/2. Each costs bounded memory and causes an error that names the violation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use steadfast::Connection;
use steadfast::transport::TransportError;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, sleep};

use crate::fixture::{
    PODS, Sockets, body_text, config, connection_with_dialer, get_request, http2_settings, in_memory_server,
    post_request,
};

/// Capacity of a pipe in bytes.
const PIPE_BYTES: usize = 64 << 10;

pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
pub(crate) const ACK: u8 = 1;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a small payload").to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Bytes that a peer sends after a request, once and then repeatedly. If `continues_reading` is true, the peer
/// continues to read.
#[derive(Clone)]
struct PeerBehaviour {
    first_bytes: Vec<u8>,
    repeated_bytes: Vec<u8>,
    continues_reading: bool,
}

struct ViolatingPeer {
    connection: Connection,
    /// Number of flood bytes written to the pipe. The client has read all of them, except for at most [`PIPE_BYTES`].
    flood_bytes_written: Arc<AtomicUsize>,
}

async fn violating_peer(behaviour: PeerBehaviour) -> ViolatingPeer {
    let config = config(&in_memory_server().await).await;
    let flood_bytes_written = Arc::new(AtomicUsize::new(0));
    let counted = flood_bytes_written.clone();
    let connection = connection_with_dialer(config, http2_settings(), move || {
        let (client_end, server_end) = tokio::io::duplex(PIPE_BYTES);
        let (behaviour, flood_bytes_written) = (behaviour.clone(), counted.clone());
        tokio::spawn(async move {
            // Ends when the client closes the pipe.
            let _ = serve(server_end, behaviour, &flood_bytes_written).await;
        });
        async move { Ok(Sockets::default().track(client_end)) }
    });
    ViolatingPeer { connection, flood_bytes_written }
}

/// Behaves correctly until the first request.
async fn serve(
    mut pipe: DuplexStream,
    behaviour: PeerBehaviour,
    flood_bytes_written: &AtomicUsize,
) -> std::io::Result<()> {
    let mut preface = [0; 24];
    pipe.read_exact(&mut preface).await?;
    pipe.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    loop {
        let mut head = [0; 9];
        pipe.read_exact(&mut head).await?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        pipe.read_exact(&mut payload).await?;
        match (head[3], head[4]) {
            (PING, 0) => pipe.write_all(&frame(PING, ACK, 0, &payload)).await?,
            (SETTINGS, 0) => pipe.write_all(&frame(SETTINGS, ACK, 0, &[])).await?,
            (HEADERS, _) => break,
            _ => {}
        }
    }
    pipe.write_all(&behaviour.first_bytes).await?;
    let (mut from, mut into) = tokio::io::split(pipe);
    let reading = async {
        let mut some = vec![0; PIPE_BYTES];
        while behaviour.continues_reading && from.read(&mut some).await? > 0 {}
        std::future::pending::<std::io::Result<()>>().await
    };
    let flooding = async {
        while !behaviour.repeated_bytes.is_empty() {
            into.write_all(&behaviour.repeated_bytes).await?;
            flood_bytes_written.fetch_add(behaviour.repeated_bytes.len(), Ordering::Relaxed);
            sleep(Duration::from_millis(20)).await;
        }
        std::future::pending().await
    };
    tokio::select! {
        ended = reading => ended,
        ended = flooding => ended,
    }
}

fn flood(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    frame(kind, 0, stream, payload).repeat(100)
}

/// Returns the error of a request to a peer with `behaviour`, the time until the error, and the number of flood bytes.
async fn error_of_request(behaviour: PeerBehaviour) -> (TransportError, Duration, usize) {
    let peer = violating_peer(behaviour).await;
    let started_at = Instant::now();
    let error = body_text(&peer.connection, get_request(PODS)).await.expect_err("an error instead of a response");
    let steadfast::connection::SendError::Transport(error) = error else { panic!("{error}") };
    (error, started_at.elapsed(), peer.flood_bytes_written.load(Ordering::Relaxed))
}

#[tokio::test(start_paused = true)]
async fn flood_from_peer_that_reads_nothing_is_bounded() {
    for repeated_bytes in [flood(PING, 0, b"12345678"), flood(SETTINGS, 0, &[0, 3, 0, 0, 0, 100])] {
        let (error, after, flood_bytes_written) =
            error_of_request(PeerBehaviour { first_bytes: Vec::new(), repeated_bytes, continues_reading: false }).await;
        assert!(error.to_string().contains("a ping"), "{error}");
        assert!(after <= Duration::from_secs(30), "{after:?}");
        assert!(
            flood_bytes_written < 16 * PIPE_BYTES,
            "{flood_bytes_written} bytes were read, with a buffered response for each frame"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn peer_without_ping_responses_is_dead() {
    let behaviour =
        PeerBehaviour { first_bytes: Vec::new(), repeated_bytes: flood(PING, 0, b"12345678"), continues_reading: true };
    let peer = violating_peer(behaviour).await;
    let error = body_text(&peer.connection, get_request(PODS)).await.expect_err("an error instead of a response");
    assert!(error.to_string().contains("sent no response within 30.0 s"), "{error}");
    // Pings are sent twice a minute, and time out after four times the usual duration while data arrives.
    sleep(Duration::from_secs(25)).await;
    let reason: Vec<String> = peer.connection.recently_closed().into_iter().map(|ended| ended.reason).collect();
    assert_eq!(reason, ["no response to a ping within 20 s, although data arrives"]);
}

#[tokio::test(start_paused = true)]
async fn protocol_violation_ends_connection_with_reason() {
    let endless = frame(CONTINUATION, 0, 1, &[b'x'; 8]);
    let cases = [
        ("a window beyond all windows", frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]), Vec::new(), "flow"),
        ("a head without an end", frame(HEADERS, 0, 1, &[0x88]), endless.repeat(50), "excessive load"),
        ("a reset of an idle stream", frame(RST_STREAM, 0, 99, &[0, 0, 0, 8]), Vec::new(), "protocol"),
        ("no frames at all", b"HTTP/1.1 400 Bad Request\r\n\r\n".repeat(40), Vec::new(), "frame"),
    ];
    for (what, first_bytes, repeated_bytes, word) in cases {
        let (error, after, _) =
            error_of_request(PeerBehaviour { first_bytes, repeated_bytes, continues_reading: true }).await;
        println!("{what}: {error}");
        assert!(matches!(error, TransportError::ConnectionLost { .. }), "{what}: {error:?}");
        assert!(error.to_string().to_lowercase().contains(word), "{what}: {error}");
        assert!(after < Duration::from_secs(5), "{what}: {after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn stream_resets_end_only_their_requests() {
    let peer = violating_peer(PeerBehaviour {
        first_bytes: frame(RST_STREAM, 0, 1, &[0, 0, 0, 2]),
        repeated_bytes: flood(RST_STREAM, 1, &[0, 0, 0, 2]),
        continues_reading: true,
    })
    .await;
    let error = body_text(&peer.connection, get_request(PODS)).await.expect_err("reset");
    assert!(error.to_string().contains("reset the stream"), "{error}");
    sleep(Duration::from_secs(3)).await;
    assert!(
        peer.flood_bytes_written.load(Ordering::Relaxed) > PIPE_BYTES,
        "the rest of the body must be read and discarded"
    );
}

/// A healthy peer that does not read a body receives at most one window of it.
#[tokio::test(start_paused = true)]
async fn unread_upload_has_response_deadline() {
    let connection = connection_with_dialer(config(&in_memory_server().await).await, http2_settings(), || async {
        let (client_end, server_end) = tokio::io::duplex(PIPE_BYTES);
        tokio::spawn(async move {
            let mut connection = h2::server::handshake(server_end).await.expect("HTTP/2");
            let mut received = Vec::new();
            while let Some(Ok(request)) = connection.accept().await {
                received.push(request);
            }
        });
        Ok(Sockets::default().track(client_end))
    });
    let started_at = Instant::now();
    let error = body_text(&connection, post_request(PODS, &"x".repeat(1 << 20)))
        .await
        .expect_err("an error instead of a response");
    assert!(error.to_string().contains("sent no response within 30.0 s"), "{error}");
    assert_eq!(started_at.elapsed().as_secs(), 30);
    let report = &connection.connections()[0];
    assert!(report.sent < 128 << 10, "sent more than the window of the peer: {report:?}");
    assert_eq!(report.streams, 0, "the stream must end with its request");
}
