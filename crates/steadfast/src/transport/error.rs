//! What goes wrong between a request and its answer.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::CertificateError;

/// Why a request has no answer, or an answer no end.
///
/// [`maybe_sent`](Self::maybe_sent) says whether the server may have acted on the request, and the message what to do
/// next; [`cause`](Self::cause) is the message without that, for a read that is made again anyway.
#[derive(Clone, thiserror::Error)]
pub enum TransportError {
    /// No socket could be opened.
    #[error("cannot connect to {}; check that the API server runs there and can be reached", reached(.peer, .source))]
    Dial {
        /// The server.
        peer: String,
        /// What the network said of each address.
        source: Arc<io::Error>,
    },
    /// The proxy before the server was not reached, or did not let us through.
    #[error("cannot reach {peer} through the proxy {proxy}: {detail}")]
    Proxy {
        /// The server.
        peer: String,
        /// The proxy, without credentials.
        proxy: String,
        /// What it did, and what to do about it.
        detail: String,
    },
    /// The connection was not established in time.
    #[error("cannot connect to {peer}: {stage} took longer than {:.1} s; the network or the server is stuck", .waited.as_secs_f64())]
    ConnectTimeout {
        /// The server.
        peer: String,
        /// How far it came.
        stage: &'static str,
        /// How long was waited.
        waited: Duration,
    },
    /// TLS was not agreed on.
    #[error("no TLS with {peer}: {source}; {advice}")]
    Tls {
        /// The server.
        peer: String,
        /// What TLS said.
        source: Arc<io::Error>,
        /// What to do about it.
        advice: &'static str,
    },
    /// The peer does not speak the protocol as it should.
    #[error("{peer} does not speak {protocol}: {detail}; check the URL of the server, and what is in front of it ({})", next(*.maybe_sent))]
    Protocol {
        /// The server.
        peer: String,
        /// What was spoken to it.
        protocol: &'static str,
        /// What it did.
        detail: String,
        /// The server may have acted on the request.
        maybe_sent: bool,
    },
    /// The server ended this one request.
    #[error("{peer} reset the stream: {reason}; {}", next(*.maybe_sent))]
    Reset {
        /// The server.
        peer: String,
        /// The reason that it gave.
        reason: String,
        /// The server may have acted on the request.
        maybe_sent: bool,
    },
    /// The connection that carried the request is gone.
    #[error("the connection to {peer} was lost: {how}; {}", next(*.maybe_sent))]
    ConnectionLost {
        /// The server.
        peer: String,
        /// How it was lost.
        how: String,
        /// The server may have acted on the request.
        maybe_sent: bool,
    },
    /// The server keeps refusing new requests on connections that it accepts.
    #[error(
        "{peer} refused the request {attempts} times without looking at it ({reason}); it is overloaded or going away, ask later"
    )]
    Refused {
        /// The server.
        peer: String,
        /// The reason that it gave last.
        reason: String,
        /// How often the request was tried.
        attempts: u32,
    },
    /// No connection had room for the request.
    #[error("no connection to {peer} had room within {:.1} s: {detail}; {}", .waited.as_secs_f64(), next(false))]
    Busy {
        /// The server.
        peer: String,
        /// What is in use.
        detail: String,
        /// How long was waited.
        waited: Duration,
    },
    /// The head of the answer did not come.
    #[error(
        "{peer} sent no answer within {:.1} s; it is stuck or overloaded, or the deadline too short; {}",
        .waited.as_secs_f64(), next(*.maybe_sent)
    )]
    HeadersTimeout {
        /// The server.
        peer: String,
        /// How long was waited.
        waited: Duration,
        /// The server may have acted on the request; not where nothing of it was, or will be, written to the socket.
        maybe_sent: bool,
    },
    /// The body of the answer does not go on.
    #[error("{peer} sent nothing more of its answer for {:.1} s; {}", .waited.as_secs_f64(), next(true))]
    BodyStalled {
        /// The server.
        peer: String,
        /// How long nothing came.
        waited: Duration,
    },
    /// The body of the request could not be read, after its head and perhaps a part of the body had left.
    #[error("the request to {peer} was given up: its own body failed ({detail}); {}", next(true))]
    Upload {
        /// The server.
        peer: String,
        /// What its source said.
        detail: String,
    },
    /// The request is not one that HTTP can carry.
    #[error("the request cannot be sent to {peer}: {detail}")]
    Invalid {
        /// The server.
        peer: String,
        /// What is wrong with it.
        detail: String,
    },
    /// This program closed the connection.
    #[error("the connection to {peer} was closed by this program; make a new one ({})", next(*.maybe_sent))]
    Closed {
        /// The server.
        peer: String,
        /// The server may have acted on the request.
        maybe_sent: bool,
    },
    /// The time within which this client may act is over: its [`Fence`](super::Fence) is closed.
    #[error(
        "{peer} is to be asked nothing more by this client: the time for which it may act is over, as when a leader's lease may \
         have lapsed; use the client of the next term ({})", next(*.maybe_sent)
    )]
    Fenced {
        /// The server.
        peer: String,
        /// The server may have acted on the request; not where nothing of it was, or will be, written to the socket.
        maybe_sent: bool,
    },
}

/// What to do next with a request on which the server may, or surely did not, act.
fn next(maybe_sent: bool) -> &'static str {
    if maybe_sent {
        "ask again if it was a read; if it was a write, the server may have acted: look first"
    } else {
        "the server has not acted: asking again is safe"
    }
}

/// A peer and what became of reaching it; an address that is the peer's own name is not said twice.
fn reached(peer: &str, source: &io::Error) -> String {
    let text = source.to_string();
    if text.starts_with(peer) { text } else { format!("{peer}: {text}") }
}

impl TransportError {
    /// The server that was asked.
    pub fn peer(&self) -> &str {
        match self {
            Self::Dial { peer, .. }
            | Self::Proxy { peer, .. }
            | Self::ConnectTimeout { peer, .. }
            | Self::Tls { peer, .. }
            | Self::Protocol { peer, .. }
            | Self::Reset { peer, .. }
            | Self::ConnectionLost { peer, .. }
            | Self::Refused { peer, .. }
            | Self::Busy { peer, .. }
            | Self::HeadersTimeout { peer, .. }
            | Self::BodyStalled { peer, .. }
            | Self::Upload { peer, .. }
            | Self::Invalid { peer, .. }
            | Self::Closed { peer, .. }
            | Self::Fenced { peer, .. } => peer,
        }
    }

    /// Whether the server may have acted on the request; if not, asking again is safe whatever it was.
    pub fn maybe_sent(&self) -> bool {
        match self {
            Self::Dial { .. }
            | Self::Proxy { .. }
            | Self::ConnectTimeout { .. }
            | Self::Tls { .. }
            | Self::Refused { .. }
            | Self::Busy { .. }
            | Self::Invalid { .. } => false,
            Self::BodyStalled { .. } | Self::Upload { .. } => true,
            Self::Protocol { maybe_sent, .. }
            | Self::Reset { maybe_sent, .. }
            | Self::ConnectionLost { maybe_sent, .. }
            | Self::HeadersTimeout { maybe_sent, .. }
            | Self::Closed { maybe_sent, .. }
            | Self::Fenced { maybe_sent, .. } => *maybe_sent,
        }
    }

    /// What happened, without what to do next about a write.
    pub fn cause(&self) -> String {
        let (text, next) = (self.to_string(), next(self.maybe_sent()));
        let bare = text.strip_suffix(&format!("; {next}")).or_else(|| text.strip_suffix(&format!(" ({next})")));
        bare.map(str::to_owned).unwrap_or(text)
    }

    /// This, met in the last of so many `attempts` to have a request looked at.
    pub(super) fn refused(self, peer: String, attempts: u32) -> Self {
        let reason = match self {
            Self::Reset { reason, .. } => reason,
            Self::ConnectionLost { how, .. } => format!("the connection to it was lost: {how}"),
            other => other.to_string(),
        };
        Self::Refused { peer, reason, attempts }
    }

    /// The error of a failed TLS handshake.
    pub(super) fn tls(peer: String, source: io::Error) -> Self {
        let advice = match source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::InvalidCertificate(problem)) => match problem {
                // The latter where another authority of the same name is trusted.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    "no authority that the configuration trusts signed the server's certificate: \
                     check certificate-authority in the kubeconfig"
                }
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    "the server's certificate is for another name: use that one as server or as tls-server-name"
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "the server's certificate has expired: renew it, or check this machine's clock"
                }
                _ => "the server's certificate is not valid: renew it",
            },
            Some(rustls::Error::AlertReceived(_)) => {
                "the server broke it off: check the client certificate in the kubeconfig"
            }
            Some(rustls::Error::InvalidMessage(_)) => "the server does not speak TLS there: check port and scheme",
            _ => "the connection ended before TLS was agreed: check what is in front of the server",
        };
        Self::Tls { peer, source: Arc::new(source), advice }
    }
}

/// The innermost cause of `error`, which says most.
pub(super) fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

debug_as_message!(TransportError);
