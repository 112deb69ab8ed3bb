//! A TCP balancer: each new connection goes to the replica that was named last.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A balancer in front of the replicas of a server, until it is dropped.
#[derive(Debug)]
pub struct Balancer {
    chosen: Arc<AtomicUsize>,
    address: watch::Receiver<Option<SocketAddr>>,
    task: tokio::task::JoinHandle<io::Result<()>>,
}

impl Balancer {
    /// Balances over `replicas`, the first to begin with, from a port of its own.
    ///
    /// # Panics
    ///
    /// Where no tokio runtime is current.
    pub fn start(replicas: impl IntoIterator<Item = Option<SocketAddr>>) -> Self {
        let replicas: Vec<SocketAddr> = replicas.into_iter().flatten().collect();
        let chosen = Arc::new(AtomicUsize::new(0));
        let (told, address) = watch::channel(None);
        let choice = chosen.clone();
        let task = tokio::spawn(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            told.send_replace(Some(listener.local_addr()?));
            loop {
                let (mut near, _) = listener.accept().await?;
                let replica = replicas[choice.load(Ordering::Relaxed) % replicas.len()];
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(replica).await?;
                    tokio::io::copy_bidirectional(&mut near, &mut far).await
                });
            }
        });
        Self { chosen, address, task }
    }

    /// Where clients connect to.
    ///
    /// # Errors
    ///
    /// Where no port could be had.
    pub async fn address(&self) -> io::Result<SocketAddr> {
        let mut address = self.address.clone();
        let bound = address.wait_for(Option::is_some).await.map_err(io::Error::other)?;
        bound.ok_or_else(|| io::Error::other("not bound"))
    }

    /// New connections go to the replica number `replica`.
    pub fn send_to(&self, replica: usize) {
        self.chosen.store(replica, Ordering::Relaxed);
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
