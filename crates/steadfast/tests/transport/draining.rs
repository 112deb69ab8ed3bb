//! Draining connections and their replacements.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use steadfast::Connection;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::sleep;

use crate::fixture::{
    PODS, Sockets, body_text, config, connection_with_dialer, get_request, http2_settings, in_memory_server, open_watch,
};
use crate::protocol_violations::{ACK, GOAWAY, HEADERS, PING, SETTINGS, frame};

/// Runs a peer that sends endless responses, and a GOAWAY after `delay`. The peer closes after the client.
async fn serve_goaway_peer(mut pipe: DuplexStream, delay: Duration) -> io::Result<()> {
    let goaway = sleep(delay);
    tokio::pin!(goaway);
    pipe.read_exact(&mut [0; 24]).await?;
    pipe.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    loop {
        let mut head = [0; 9];
        tokio::select! {
            read = pipe.read_exact(&mut head) => drop(read?),
            () = &mut goaway => break,
        }
        let mut payload = vec![0; usize::from(head[2])];
        pipe.read_exact(&mut payload).await?;
        match (head[3], head[4]) {
            (PING, 0) => pipe.write_all(&frame(PING, ACK, 0, &payload)).await?,
            (SETTINGS, 0) => pipe.write_all(&frame(SETTINGS, ACK, 0, &[])).await?,
            // Response head with status 200.
            (HEADERS, _) => pipe.write_all(&frame(HEADERS, 4, 1, &[0x88])).await?,
            _ => {}
        }
    }
    // The last stream ID is 1, so the watch on stream 1 continues (RFC 9113, section 6.8).
    pipe.write_all(&frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0])).await?;
    while pipe.read(&mut [0; 1024]).await? > 0 {}
    Ok(())
}

/// R6: a watch that stays on a draining connection must not cause repeated dials.
#[tokio::test(start_paused = true)]
async fn closing_server_causes_no_dial_loop() {
    let dials = Arc::new(AtomicUsize::new(0));
    let counted = dials.clone();
    let connection = connection_with_dialer(config(&in_memory_server().await).await, http2_settings(), move || {
        let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            sleep(Duration::from_millis(5)).await;
            let (client_end, server_end) = tokio::io::duplex(64 << 10);
            tokio::spawn(serve_goaway_peer(
                server_end,
                if first { Duration::from_secs(1) } else { Duration::from_millis(20) },
            ));
            Ok(Sockets::default().track(client_end))
        }
    });
    let _watch = open_watch(&connection).await;
    sleep(Duration::from_secs(10)).await;
    let states: Vec<String> = connection.connections().iter().map(|report| report.state.to_string()).collect();
    assert_eq!(states, ["draining"], "the watch stays on the draining connection");
    // The replacement drains as well. A third dial would be the start of a loop without any request to serve.
    assert_eq!(dials.load(Ordering::SeqCst), 2, "one dial for the first connection, and one for its replacement");
}

/// A dial that started before a configuration change may fail. Waiting requests use the new configuration.
#[tokio::test(start_paused = true)]
async fn abandoned_dial_failure_fails_no_request() {
    let server = in_memory_server().await;
    let (dialer, dials) = (server.dialer(), AtomicUsize::new(0));
    let connection: Connection = connection_with_dialer(config(&server).await, http2_settings(), move || {
        let (first, dialer) = (dials.fetch_add(1, Ordering::SeqCst) == 0, dialer.clone());
        async move {
            sleep(Duration::from_secs(if first { 2 } else { 3 })).await;
            if first {
                Err(io::ErrorKind::ConnectionRefused.into())
            } else {
                Ok(Sockets::default().track(dialer.connect(0).await?))
            }
        }
    });
    let (response, ()) = tokio::join!(body_text(&connection, get_request(PODS)), async {
        sleep(Duration::from_secs(1)).await;
        connection.drain();
    });
    response.expect("a response on the replacement");
}
