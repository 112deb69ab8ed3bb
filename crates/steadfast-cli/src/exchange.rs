//! One HTTP/1.1 request to a program of this machine.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends `request`, which must ask the peer to close the connection, and returns the whole response as text.
///
/// At most `limit` bytes of the response are read. The caller sets the deadline.
///
/// # Errors
///
/// Returns an error if the peer cannot be reached, or if the connection breaks.
pub(crate) async fn exchange(address: SocketAddr, request: &str, limit: u64) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    // With `Connection: close` the end of the stream ends the body, so no length is parsed.
    stream.take(limit).read_to_end(&mut response).await?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}
