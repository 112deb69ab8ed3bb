//! Tests of the test network itself: the bytes that pass and those that do not.

mod memory;
mod tcp;

use std::time::Duration;

use steadfast_testing::TestError;
use steadfast_testing::proxy::{ConnectionEnd, NetworkFaults};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Timeout for an expected event.
const EVENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns `length` bytes without repeated neighbouring sequences.
fn bytes(length: usize) -> Vec<u8> {
    (0..length as u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).take(length).collect()
}

/// Returns all bytes up to the end of the stream, and whether the end was clean.
async fn read_to_end(stream: &mut (impl AsyncRead + Unpin)) -> Result<(Vec<u8>, bool), TestError> {
    let mut received = Vec::new();
    let result = tokio::time::timeout(EVENT_TIMEOUT, stream.read_to_end(&mut received)).await?;
    Ok((received, result.is_ok()))
}

/// Sends `request_bytes` bytes to the server and `response_bytes` bytes back, and checks the received bytes. Each side
/// closes its direction after sending. The server responds after the client's end.
async fn exchange<C, S>(
    client: &mut C,
    server: &mut S,
    request_bytes: usize,
    response_bytes: usize,
) -> Result<(), TestError>
where
    C: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (request_bytes, response_bytes) = (bytes(request_bytes), bytes(response_bytes));
    let client_side = async {
        client.write_all(&request_bytes).await?;
        client.shutdown().await?;
        read_to_end(client).await
    };
    let server_side = async {
        let received = read_to_end(server).await?;
        server.write_all(&response_bytes).await?;
        server.shutdown().await?;
        Ok::<_, TestError>(received)
    };
    let (client_received, server_received) = tokio::try_join!(client_side, server_side)?;
    assert!(server_received == (request_bytes, true) && client_received == (response_bytes, true), "bytes differ");
    Ok(())
}

/// Reads the next `length` bytes.
async fn read_exactly(stream: &mut (impl AsyncRead + Unpin), length: usize) -> Result<Vec<u8>, TestError> {
    let mut received = vec![0; length];
    tokio::time::timeout(EVENT_TIMEOUT, stream.read_exact(&mut received)).await??;
    Ok(received)
}

/// Returns the bytes that arrive within `time`, or `None` if none do.
async fn read_within(stream: &mut (impl AsyncRead + Unpin), time: Duration) -> Option<std::io::Result<Vec<u8>>> {
    let mut received = vec![0; 1024];
    let length_result = tokio::time::timeout(time, stream.read(&mut received)).await.ok()?;
    Some(length_result.map(|length| received[..length].to_vec()))
}

/// Waits until connection number `connection` has ended, and returns the kind of its end.
async fn end_of(faults: &NetworkFaults, connection: u64) -> Result<ConnectionEnd, TestError> {
    let end = async {
        loop {
            let connections = faults.connections();
            let report = connections.iter().find(|report| report.connection == connection);
            if let Some((_, end)) = report.and_then(|report| report.ended) {
                return end;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    Ok(tokio::time::timeout(EVENT_TIMEOUT, end).await?)
}
