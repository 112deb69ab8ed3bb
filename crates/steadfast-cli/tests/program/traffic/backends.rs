//! The HTTP servers behind the load balancer: one for each pod, on a loopback address of its own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

/// Processing time of a request. Keeps some requests in flight at any instant.
const PROCESSING_TIME: Duration = Duration::from_millis(5);

/// Number of addresses handed out in this process.
static ADDRESSES: AtomicU32 = AtomicU32::new(0);

/// Returns a loopback address that no other pod of this test process has, and most likely no pod of another process.
///
/// Addresses of earlier pods are not reused: a health check or a retry of the load balancer can still hold a connection
/// to such an address.
pub(crate) fn fresh_address() -> Ipv4Addr {
    let number = ADDRESSES.fetch_add(1, Ordering::Relaxed);
    let [_, _, high, low] = (number / 250).to_be_bytes();
    assert_eq!(high, 0, "more than 64,000 pods in one test process");
    let process = u8::try_from(std::process::id() % 120).expect("below 120");
    let host = u8::try_from(number % 250 + 1).expect("at most 250");
    Ipv4Addr::new(127, 100 + process, low, host)
}

/// HTTP server of one pod. Every response contains the name of the pod.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    name: String,
    runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
}

impl Backend {
    pub(crate) fn start(runtime: &Handle, name: &str, address: SocketAddr) -> Self {
        let (stop, stopped) = oneshot::channel();
        let listener = runtime.block_on(TcpListener::bind(address)).expect("the address is free");
        let task = runtime.spawn(serve(listener, name.to_owned(), stopped));
        Self { address, name: name.to_owned(), runtime: runtime.clone(), stop: Some(stop), task: Some(task) }
    }

    /// Serves again after [`stop`](Self::stop) or [`crash`](Self::crash).
    pub(crate) fn restart(&mut self) {
        *self = Self::start(&self.runtime, &self.name, self.address);
    }

    /// Stops listening and finishes requests in flight, like a program after SIGTERM.
    pub(crate) fn stop(&mut self) {
        if let (Some(stop), Some(task)) = (self.stop.take(), self.task.take()) {
            let _ = stop.send(());
            let _ = self.runtime.block_on(task);
        }
    }

    /// Stops like a killed program: the kernel resets all connections.
    pub(crate) fn crash(&mut self) {
        self.stop = None;
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = self.runtime.block_on(task);
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn serve(listener: TcpListener, name: String, mut stopped: oneshot::Receiver<()>) {
    // Dropped with this task, which resets the connections of a crashed pod.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    let name = name.clone();
                    connections.spawn(async move { respond(stream, &name).await });
                }
            }
            Some(_) = connections.join_next() => {}
            received = &mut stopped => {
                if received.is_ok() {
                    break;
                }
                return;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn respond(mut stream: TcpStream, name: &str) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut buffer = [0; 1024];
        match stream.read(&mut buffer).await? {
            // A health check connects and sends nothing.
            0 => return Ok(()),
            read => request.extend_from_slice(&buffer[..read]),
        }
    }
    tokio::time::sleep(PROCESSING_TIME).await;
    let length = name.len();
    let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{name}");
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}
