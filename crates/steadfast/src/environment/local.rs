//! Test environment: the current tokio runtime and its clock.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use steadfast_core::Instant;
use steadfast_executor::{HelperThreads, HelperWork};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;

use super::random::Random;
use super::{Environment, Socket, Task, tcp};

type Dialer = dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Box<dyn Socket>>> + Send + Sync;
type Resolver = dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync;

/// Environment on the runtime that is current at its creation.
///
/// On a current-thread runtime with paused time, runs are deterministic: time advances only if all tasks are idle.
/// Blocking jobs and user tasks run as tasks of the same thread, so a call that really blocks stops everything. Use
/// [`ThreadedEnvironment`](super::threads::ThreadedEnvironment) to test such code.
pub struct LocalEnvironment {
    handle: Handle,
    origin: tokio::time::Instant,
    random: Random,
    helpers: HelperThreads,
    resolver: Arc<Resolver>,
    dialer: Arc<Dialer>,
}

impl LocalEnvironment {
    /// Creates an environment with random numbers from `seed`, and sockets from `dial`, which receives an address and a
    /// port.
    ///
    /// Every name resolves to 127.0.0.1, unless [`with_names`](Self::with_names) is set.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub fn new<D>(seed: u64, dial: D) -> Self
    where
        D: Fn(String, u16) -> BoxFuture<'static, io::Result<Box<dyn Socket>>> + Send + Sync + 'static,
    {
        Self {
            handle: Handle::current(),
            origin: tokio::time::Instant::now(),
            random: Random::seeded(seed),
            helpers: HelperThreads::default(),
            resolver: Arc::new(|host, port| Box::pin(async move { Ok(vec![alone(&host, port)]) })),
            dialer: Arc::new(dial),
        }
    }

    /// Sets the resolver. The preferred address comes first.
    #[must_use]
    pub fn with_names<R>(mut self, resolve: R) -> Self
    where
        R: Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static,
    {
        self.resolver = Arc::new(move |host, port| {
            let addresses = match host.parse::<IpAddr>() {
                Ok(literal) => Ok(vec![literal]),
                Err(_) => resolve(&host),
            };
            let addresses = addresses.map(|all| all.into_iter().map(|ip| SocketAddr::new(ip, port)).collect());
            Box::pin(std::future::ready(addresses))
        });
        self
    }

    /// Enables helpers, scheduled by the seed. Disabled by default.
    #[must_use]
    pub fn with_helpers(self, helpers: HelperThreads) -> Self {
        Self { helpers, ..self }
    }

    /// Creates an environment with random numbers from `seed` and TCP sockets.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub fn over_tcp(seed: u64) -> Self {
        let mut environment = Self::new(seed, |host, port| Box::pin(tcp::dial(alone(&host, port))));
        environment.resolver = Arc::new(|host, port| Box::pin(async move { tcp::resolve(&host, port).await }));
        environment
    }
}

/// Returns the address that `host` denotes, or the loopback address.
fn alone(host: &str, port: u16) -> SocketAddr {
    SocketAddr::new(host.parse().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), port)
}

impl Environment for LocalEnvironment {
    fn now(&self) -> Instant {
        let _current = self.handle.enter();
        Instant::from_zero(self.origin.elapsed())
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        let _current = self.handle.enter();
        match self.origin.checked_add(at.since_zero()) {
            Some(at) => Box::pin(tokio::time::sleep_until(at)),
            None => Box::pin(std::future::pending()),
        }
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) -> Task {
        let running = self.handle.spawn(task).abort_handle();
        Task::new(move || running.abort())
    }

    fn spawn_user_task(&self, task: BoxFuture<'static, ()>) -> Task {
        self.spawn(task)
    }

    fn enter(&self, action: &mut dyn FnMut()) {
        let _current = self.handle.enter();
        action();
    }

    fn run_blocking(&self, job: Box<dyn FnOnce() + Send>) {
        self.handle.spawn(async move { job() });
    }

    fn helper_threads(&self) -> HelperThreads {
        self.helpers
    }

    fn offer_work(&self, mut work: HelperWork) {
        // Some work runs immediately, before the caller continues, and the rest later, as on other threads.
        for _ in 0..self.random.next() % 4 {
            if !work() {
                return;
            }
        }
        let Self { handle, random, .. } = self;
        let pauses = Random::seeded(random.next());
        handle.spawn(async move {
            loop {
                match pauses.next() % 8 {
                    0 => tokio::time::sleep(Duration::from_micros(pauses.next() % 500)).await,
                    1..4 => tokio::task::yield_now().await,
                    _ => {}
                }
                if !work() {
                    return;
                }
            }
        });
    }

    fn random(&self) -> u64 {
        self.random.next()
    }

    fn resolve(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        (self.resolver)(host.to_owned(), port)
    }

    fn dial(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Socket>>> {
        (self.dialer)(address.ip().to_string(), address.port())
    }
}

impl fmt::Debug for LocalEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalEnvironment").finish_non_exhaustive()
    }
}

/// Socket over any byte stream, such as an in-memory pipe.
#[derive(Debug)]
pub struct Pipe<T> {
    stream: T,
    peer: String,
}

impl<T> Pipe<T> {
    /// Wraps `stream`. Messages name the other end `peer`.
    pub fn new(stream: T, peer: impl Into<String>) -> Self {
        Self { stream, peer: peer.into() }
    }
}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for Pipe<T> {
    fn peer(&self) -> String {
        self.peer.clone()
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Pipe<T> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Pipe<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
