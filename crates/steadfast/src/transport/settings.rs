//! How long is waited for what, and how much is allowed.

use std::time::Duration;

use steadfast_core::breach::Breaches;

/// The times and limits of the connections to one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long opening a connection may take: name, TCP, TLS and the first answer of HTTP/2. 10 s.
    pub connect: Duration,
    /// How long a request may wait for the head of its answer, all attempts together. 30 s.
    pub headers: Duration,
    /// How long the body of an ordinary answer may make no progress while it is being read. 30 s.
    ///
    /// Watches, logs and proxied requests may rightly be silent and have no such limit.
    pub progress: Duration,
    /// After how long a silence an HTTP/2 connection is pinged. 5 s.
    pub ping_after: Duration,
    /// How long the answer to a ping may take; half of it makes the connection suspect, all of it dead. 5 s.
    pub ping_timeout: Duration,
    /// After how long a silence of all watches of a connection the server is asked on it whether it is there: something on
    /// the way may answer pings in its place. Never more often than that. 10 s.
    pub inquire_after: Duration,
    /// How long the answer may take before those watches are in doubt. 4 s.
    pub inquire_timeout: Duration,
    /// After how long an unused connection is closed; API servers do so after 90 s. 60 s.
    pub idle: Duration,
    /// How many streams share a connection at most, less if the server says so. 100.
    ///
    /// Of each answer the server may send 4 MiB before they are read (less where more than 511 share a connection), and none
    /// of them has to wait for another to be read.
    pub streams: usize,
    /// How many connections are open at once at most; with HTTP/1.1 each watch needs one. 512.
    ///
    /// A quarter of them is kept for informers.
    pub connections: usize,
    /// How many requests may wait for a connection at once, those of informers apart. 10,000.
    pub waiting: usize,
    /// How many full transfers (lists) are under way at once. 4.
    pub transfers: usize,
    /// Speak HTTP/2 without TLS to `http://` servers, which are known to understand it. False.
    pub prior_knowledge: bool,
    /// What a test breaks on purpose.
    #[doc(hidden)]
    pub breaches: Breaches,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            headers: Duration::from_secs(30),
            progress: Duration::from_secs(30),
            ping_after: Duration::from_secs(5),
            ping_timeout: Duration::from_secs(5),
            inquire_after: Duration::from_secs(10),
            inquire_timeout: Duration::from_secs(4),
            idle: Duration::from_secs(60),
            streams: 100,
            connections: 512,
            waiting: 10_000,
            transfers: 4,
            prior_knowledge: false,
            breaches: Breaches::NONE,
        }
    }
}

impl Settings {
    /// How many connections may be open for what `reader` reads.
    pub(super) fn connections_for(&self, reader: Reader) -> usize {
        let kept = match reader {
            Reader::Informer => 0,
            Reader::Caller => (self.connections / 4).max(1),
        };
        // One alone has to serve all.
        self.connections.saturating_sub(kept).max(self.connections.min(1))
    }
}

#[cfg(feature = "breach")]
impl Settings {
    /// Breaks the bounds on purpose, for the tests that guard them.
    #[doc(hidden)]
    #[must_use]
    pub fn breach(mut self, breach: steadfast_core::breach::Breach) -> Self {
        self.breaches = Breaches::only(breach);
        self
    }
}

/// The deadlines of one request, put into its extensions; without them the [`Settings`] decide by its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deadlines {
    /// How long to wait for the head of the answer; `None` is what the settings say.
    pub headers: Option<Duration>,
    /// How long its body may make no progress while it is being read; `None` is for ever.
    pub progress: Option<Duration>,
}

/// Who reads the answer to a request, put into its extensions.
///
/// Informers read whatever happens. Others may not, and then nobody but themselves has to wait for it (C8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reader {
    /// An informer.
    Informer,
    /// Whoever asked.
    #[default]
    Caller,
}

/// The connection that carried an answer, in its extensions; in those of a request, the one that has to carry it, so that
/// the same server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carrier(pub(super) u64);

/// Which connection one request wants, put into its extensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Any that takes requests of its kind.
    #[default]
    Any,
    /// Any; a watches' one too, where that is all there is: a small request is not worth a connection of its own.
    Beside,
    /// Not one that has been open for long: whoever doubts a stream asks on a connection that is new.
    Elsewhere,
}

impl Placement {
    /// All there are; whoever has a doubt is served first.
    pub(super) const ALL: [Self; 3] = [Self::Elsewhere, Self::Any, Self::Beside];
}
