//! One command over the runtime socket.

use std::io;
use std::path::Path;

#[cfg(unix)]
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Maximum size of a response in bytes: more than the state of a hundred thousand servers.
#[cfg(unix)]
const MAX_RESPONSE_BYTES: u64 = 32 * 1024 * 1024;

/// Sends `command` and reads the response.
#[cfg(unix)]
pub(super) async fn send_command(socket: &Path, command: &str) -> io::Result<String> {
    let mut stream = tokio::net::UnixStream::connect(socket).await?;
    // Without `prompt`, HAProxy closes the connection after the response to one line.
    stream.write_all(format!("{command}\n").as_bytes()).await?;
    let mut response = Vec::new();
    stream.take(MAX_RESPONSE_BYTES).read_to_end(&mut response).await?;
    if response.len() as u64 == MAX_RESPONSE_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a response of more than {MAX_RESPONSE_BYTES} bytes to `{command}`"),
        ));
    }
    String::from_utf8(response).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Returns an error, because HAProxy's runtime interface uses Unix sockets.
#[cfg(not(unix))]
pub(super) async fn send_command(socket: &Path, _command: &str) -> io::Result<String> {
    let message = format!("the runtime socket {} of HAProxy can be used on Unix only", socket.display());
    Err(io::Error::new(io::ErrorKind::Unsupported, message))
}
