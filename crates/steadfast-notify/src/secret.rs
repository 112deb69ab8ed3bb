//! Secrets, read from configured references and hidden in output.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

use crate::config::secret::SecretFrom;

/// Timeout of a read of secrets. After a repeated read, their last content stays in use.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Value of a secret.
#[derive(Clone)]
pub(crate) struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Reads the secret. Relative paths start at `folder`. The error names the reference, never the value.
    pub(crate) fn read(from: &SecretFrom, folder: &Path) -> Result<Self, String> {
        let bytes = match from {
            SecretFrom::File(path) => std::fs::read(folder.join(path)).map_err(|error| format!("{from:?}: {error}"))?,
            SecretFrom::Env(name) => {
                let value = std::env::var_os(name).ok_or_else(|| format!("{from:?} is not set"))?;
                value.into_encoded_bytes()
            }
        };
        // Editors and `echo` append a newline, which is not part of the secret.
        let end = bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
        if end == 0 {
            return Err(format!("{from:?} is empty"));
        }
        Ok(Self(bytes[..end].to_vec()))
    }

    /// Returns the bytes of the value.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the value as text, if valid UTF-8.
    pub(crate) fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

/// Lock that is held during a read of the secrets of one sink.
pub(crate) type ReadingLock = Arc<AsyncMutex<()>>;

/// Reason and remedy if the first read of secrets had no result in time.
pub(crate) const NOT_READ_IN_TIME: (&str, &str) =
    ("the file system of the secrets does not respond", "check the file system");

/// Runs `read` on a blocking thread, and returns `None` without a result in time. At most one read with the same
/// `reading` runs at a time.
///
/// A file system without a response must neither block the threads of the runtime, nor use up the blocking threads, nor
/// stop the deliveries of a sink.
pub(crate) async fn read_in_time<T: Send + 'static>(
    reading: &ReadingLock,
    read: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let read = async {
        let guard = reading.clone().lock_owned().await;
        let task = tokio::task::spawn_blocking(move || {
            // Held until the end of the read, even if the caller does not wait any longer.
            let _guard = guard;
            read()
        });
        task.await.ok()
    };
    timeout(READ_TIMEOUT, read).await.ok().flatten()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn hanging_read_ends_and_blocks_one_thread() {
        let reading = Arc::<AsyncMutex<()>>::default();
        let (sender, receiver) = channel::<()>();
        let hanging = read_in_time(&reading, move || receiver.recv().is_ok());
        assert_eq!(tokio::join!(hanging, advance(READ_TIMEOUT * 2)).0, None);
        let next = read_in_time::<()>(&reading, || panic!("a second thread"));
        assert_eq!(tokio::join!(next, advance(READ_TIMEOUT * 2)).0, None);
        sender.send(()).expect("the thread waits");
        assert_eq!(read_in_time(&reading, || 7).await, Some(7));
    }
}
