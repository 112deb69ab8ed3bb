//! Servers that temporarily reject streams.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use steadfast::Connection;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, sleep};

use crate::fixture::{
    PODS, Sockets, body_text, config, connection_with_dialer, get_request, http2_settings, in_memory_server,
};
use crate::protocol_violations::{ACK, HEADERS, PING, RST_STREAM, SETTINGS, frame};

const DATA: u8 = 0;
const END_STREAM: u8 = 1;
/// `REFUSED_STREAM`: the server has not processed the request, so a retry is safe (RFC 9113, section 8.7).
const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];

/// Returns a `SETTINGS_MAX_CONCURRENT_STREAMS` frame.
fn streams(allowed: u8) -> [u8; 6] {
    [0, 3, 0, 0, 0, allowed]
}

/// Rejects the first `refused` requests, and responds `ok` to all others.
async fn serve_http2_peer(pipe: &mut DuplexStream, mut refused: usize) -> io::Result<()> {
    loop {
        let mut head = [0; 9];
        pipe.read_exact(&mut head).await?;
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        pipe.read_exact(&mut payload).await?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        match (head[3], head[4] & ACK) {
            (PING, 0) => pipe.write_all(&frame(PING, ACK, 0, &payload)).await?,
            (SETTINGS, 0) => pipe.write_all(&frame(SETTINGS, ACK, 0, &[])).await?,
            (HEADERS, _) if refused > 0 => {
                refused -= 1;
                pipe.write_all(&frame(RST_STREAM, 0, stream, &REFUSED_STREAM)).await?;
            }
            (HEADERS, _) => {
                // Complete response with status 200.
                pipe.write_all(&frame(HEADERS, 4, stream, &[0x88])).await?;
                pipe.write_all(&frame(DATA, END_STREAM, stream, b"ok")).await?;
            }
            _ => {}
        }
    }
}

async fn begin(pipe: &mut DuplexStream, settings: &[u8]) -> io::Result<()> {
    // Round-trip time.
    sleep(Duration::from_millis(5)).await;
    pipe.read_exact(&mut [0; 24]).await?;
    pipe.write_all(&frame(SETTINGS, 0, 0, settings)).await
}

struct StreamPeers {
    connection: Connection,
    dials: Arc<AtomicUsize>,
}

impl StreamPeers {
    /// Creates a network in which `serve` handles each dial by number, from 0. A dial without a handler never ends.
    async fn new<F>(serve: impl Fn(usize, DuplexStream) -> Option<F> + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let dials = Arc::new(AtomicUsize::new(0));
        let counted = dials.clone();
        let connection = connection_with_dialer(config(&in_memory_server().await).await, http2_settings(), move || {
            let (client_end, server_end) = tokio::io::duplex(1 << 16);
            let serving = serve(counted.fetch_add(1, Ordering::SeqCst), server_end);
            async move {
                let Some(serving) = serving else { return std::future::pending().await };
                tokio::spawn(serving);
                Ok(Sockets::default().track(client_end))
            }
        });
        Self { connection, dials }
    }

    fn send_request(&self) -> tokio::task::JoinHandle<Result<String, String>> {
        let connection = self.connection.clone();
        tokio::spawn(async move { body_text(&connection, get_request(PODS)).await.map_err(|error| error.to_string()) })
    }

    fn dials(&self) -> usize {
        self.dials.load(Ordering::SeqCst)
    }
}

/// An overloaded server can send a stream limit of zero (RFC 9113, section 6.5.2).
#[tokio::test(start_paused = true)]
async fn zero_stream_limit_causes_no_dial_loop() {
    let peers = StreamPeers::new(|_, mut pipe| {
        Some(async move {
            begin(&mut pipe, &streams(0)).await?;
            serve_http2_peer(&mut pipe, 0).await
        })
    })
    .await;
    let requests: Vec<_> = (0..20).map(|_| peers.send_request()).collect();
    sleep(Duration::from_secs(12)).await;
    assert!((2..=3).contains(&peers.dials()), "{} dials in 12 s", peers.dials());
    for requests in requests {
        let error = requests.await.expect("no panic").expect_err("the stream limit is 0");
        assert!(error.contains("the server currently accepts no requests"), "{error}");
    }
    assert!(peers.dials() <= 7, "{} dials in 30 s", peers.dials());
}

#[tokio::test(start_paused = true)]
async fn raised_stream_limit_serves_waiting_requests() {
    let peers = StreamPeers::new(|_, mut pipe| {
        Some(async move {
            begin(&mut pipe, &streams(0)).await?;
            let raised = async {
                sleep(Duration::from_secs(2)).await;
                io::Result::Ok(frame(SETTINGS, 0, 0, &streams(10)))
            };
            // In the meantime the client sends its preface and waits for a ping response.
            tokio::pin!(raised);
            loop {
                let mut head = [0; 9];
                tokio::select! {
                    frame = &mut raised => {
                        pipe.write_all(&frame?).await?;
                        return serve_http2_peer(&mut pipe, 0).await;
                    }
                    read = pipe.read_exact(&mut head) => drop(read?),
                }
                let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
                pipe.read_exact(&mut payload).await?;
                if head[3] == PING {
                    pipe.write_all(&frame(PING, ACK, 0, &payload)).await?;
                }
            }
        })
    })
    .await;
    let started_at = Instant::now();
    assert_eq!(peers.send_request().await.expect("no panic").as_deref(), Ok("ok"));
    assert_eq!(started_at.elapsed().as_secs(), 2);
    assert_eq!(peers.dials(), 1);
}

#[tokio::test(start_paused = true)]
async fn rejected_request_does_not_block_others() {
    let peers = StreamPeers::new(|number, mut pipe| {
        // Only the first dial succeeds, so the retry must fall back to the connection that rejected the stream.
        (number == 0).then_some(async move {
            begin(&mut pipe, &[]).await?;
            serve_http2_peer(&mut pipe, 1).await
        })
    })
    .await;
    let refused = peers.send_request();
    sleep(Duration::from_millis(100)).await;
    assert_eq!(peers.dials(), 2, "a rejected request must cause another dial");
    let started_at = Instant::now();
    for _ in 0..3 {
        assert_eq!(peers.send_request().await.expect("no panic").as_deref(), Ok("ok"));
    }
    assert!(started_at.elapsed() < Duration::from_millis(100), "{:?}", started_at.elapsed());
    assert_eq!(
        refused.await.expect("no panic").as_deref(),
        Ok("ok"),
        "the rejected request must be retried on the only connection"
    );
}

#[tokio::test(start_paused = true)]
async fn rejecting_server_ends_retries() {
    let peers = StreamPeers::new(|_, mut pipe| {
        Some(async move {
            begin(&mut pipe, &[]).await?;
            serve_http2_peer(&mut pipe, usize::MAX).await
        })
    })
    .await;
    let error = peers.send_request().await.expect("no panic").expect_err("refused");
    assert!(error.contains("refused"), "{error}");
    assert!(peers.dials() <= 4, "{}", peers.dials());
}
