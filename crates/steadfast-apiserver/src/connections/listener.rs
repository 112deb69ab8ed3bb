//! Accept loop of a replica's port, which is open while the replica is reachable.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use super::serve;
use crate::cluster::Cluster;
use crate::net::{Port, TaskGroup};

/// Delay between a failed accept and the next one.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Accepts connections at the replica's port, if it has one.
pub(crate) async fn accept(cluster: Arc<Cluster>, replica: usize, tasks: Arc<TaskGroup>) {
    let Some(port) = &cluster.replicas[replica].port else { return };
    accept_each(port, |stream| {
        // Events are small and must not wait for the acknowledgement of previous ones.
        let _ = stream.set_nodelay(true);
        let runtime = tasks.runtime().clone();
        tasks.spawn(serve::serve_connection(Arc::clone(&cluster), replica, stream, runtime));
    })
    .await;
}

/// Calls `on_stream` with each connection at `port`.
async fn accept_each(port: &Port, mut on_stream: impl FnMut(TcpStream)) -> Infallible {
    loop {
        match port.accept().await {
            Ok(stream) => on_stream(stream),
            Err(error) => {
                tracing::debug!(address = %port.address(), %error, "cannot accept a connection");
                // The process has probably no file descriptors left. An immediate retry would loop without a pause.
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::io;
    use std::pin::pin;

    use super::*;

    #[tokio::test]
    async fn failed_accept_is_repeated_after_delay() -> io::Result<()> {
        let port = Port::reserve(0)?;
        port.set_open(true)?;
        port.break_listener()?;
        let mut accepting = pin!(accept_each(&port, |_| {}));
        let mut polls = 0;
        let counting = std::future::poll_fn(|context| {
            polls += 1;
            accepting.as_mut().poll(context)
        });
        assert!(tokio::time::timeout(4 * ACCEPT_RETRY_DELAY, counting).await.is_err());
        assert!((2..20).contains(&polls), "{polls} polls");
        Ok(())
    }
}
