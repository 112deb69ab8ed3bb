//! Errors of requests and responses.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::CertificateError;

/// Reason that a request has no response, or that a response was interrupted.
///
/// [`maybe_sent`](Self::maybe_sent) returns true if the server may have executed the request, and the message contains
/// advice for that case. [`cause`](Self::cause) is the message without the advice, for reads that are retried anyway.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// No socket could be opened.
    #[error("cannot connect to {}; check that the API server runs there and can be reached", reached(.peer, .source))]
    Dial {
        /// Server.
        peer: String,
        /// Network errors of each address.
        source: Arc<io::Error>,
    },
    /// The proxy was not reachable or rejected the tunnel.
    #[error("cannot reach {peer} through the proxy {proxy}: {detail}")]
    Proxy {
        /// Server.
        peer: String,
        /// Proxy, without credentials.
        proxy: String,
        /// Response of the proxy, and advice.
        detail: String,
    },
    /// The connection was not established before the timeout.
    #[error("cannot connect to {peer}: {stage} took longer than {:.1} s; the network or the server does not respond", .waited.as_secs_f64())]
    ConnectTimeout {
        /// Server.
        peer: String,
        /// Step in progress at the timeout.
        stage: &'static str,
        /// Time waited.
        waited: Duration,
    },
    /// The TLS handshake failed.
    #[error("the TLS handshake with {peer} failed: {source}; {advice}")]
    Tls {
        /// Server.
        peer: String,
        /// TLS error.
        source: Arc<io::Error>,
        /// Advice.
        advice: &'static str,
    },
    /// The peer violated the protocol.
    #[error("{peer} violated {protocol}: {detail}; check the URL of the server and the proxies in front of it ({})", next(*.maybe_sent))]
    Protocol {
        /// Server.
        peer: String,
        /// Protocol used.
        protocol: &'static str,
        /// Details of the violation.
        detail: String,
        /// True if the server may have executed the request.
        maybe_sent: bool,
    },
    /// The server reset the request's stream.
    #[error("{peer} reset the stream: {reason}; {}", next(*.maybe_sent))]
    Reset {
        /// Server.
        peer: String,
        /// Reason given by the server.
        reason: String,
        /// True if the server may have executed the request.
        maybe_sent: bool,
    },
    /// The connection of the request was lost.
    #[error("the connection to {peer} was lost: {how}; {}", next(*.maybe_sent))]
    ConnectionLost {
        /// Server.
        peer: String,
        /// Cause of the loss.
        how: String,
        /// True if the server may have executed the request.
        maybe_sent: bool,
    },
    /// The server accepts connections but repeatedly rejects new requests.
    #[error(
        "{peer} rejected the request {attempts} times without processing it ({reason}); the server is overloaded or shutting down, retry later"
    )]
    Refused {
        /// Server.
        peer: String,
        /// Last reason given by the server.
        reason: String,
        /// Number of attempts.
        attempts: u32,
    },
    /// No connection had capacity for the request.
    #[error("no connection to {peer} had capacity within {:.1} s: {detail}; {}", .waited.as_secs_f64(), next(false))]
    Busy {
        /// Server.
        peer: String,
        /// Connections and streams in use.
        detail: String,
        /// True if the server has not responded to a new connection for this request for at least half of `waited`.
        is_opening: bool,
        /// Time waited.
        waited: Duration,
    },
    /// The response head did not arrive before the timeout.
    #[error(
        "{peer} sent no response within {:.1} s; it is stuck or overloaded, or the deadline is too short; {}",
        .waited.as_secs_f64(), next(*.maybe_sent)
    )]
    HeadersTimeout {
        /// Server.
        peer: String,
        /// Time waited.
        waited: Duration,
        /// True if the server may have executed the request; false if no byte of it was, or will be, written to the
        /// socket.
        maybe_sent: bool,
    },
    /// The response body made no progress before the timeout.
    #[error("{peer} sent no further response data for {:.1} s; {}", .waited.as_secs_f64(), next(true))]
    BodyStalled {
        /// Server.
        peer: String,
        /// Time without progress.
        waited: Duration,
    },
    /// The request body could not be read, after the head and possibly a part of the body was sent.
    #[error("the request to {peer} was cancelled: its body failed ({detail}); {}", next(true))]
    Upload {
        /// Server.
        peer: String,
        /// Error of the body's source.
        detail: String,
    },
    /// The request is not valid HTTP.
    #[error("the request cannot be sent to {peer}: {detail}")]
    Invalid {
        /// Server.
        peer: String,
        /// Reason.
        detail: String,
    },
    /// This process closed the connection.
    #[error("the connection to {peer} was closed by this program; create a new connection ({})", next(*.maybe_sent))]
    Closed {
        /// Server.
        peer: String,
        /// True if the server may have executed the request.
        maybe_sent: bool,
    },
    /// The client's permission to send has expired: its [`Fence`](super::Fence) is closed.
    #[error(
        "this client may send no further requests to {peer}: its permission has expired, for example because a leader's lease \
         may have expired; use the client of the next term ({})", next(*.maybe_sent)
    )]
    Fenced {
        /// Server.
        peer: String,
        /// True if the server may have executed the request; false if no byte of it was, or will be, written to the
        /// socket.
        maybe_sent: bool,
    },
}

/// Returns advice for a request that the server may have executed, or certainly did not.
fn next(maybe_sent: bool) -> &'static str {
    if maybe_sent {
        "a read can be retried; after a write, check the object first, because the server may have executed the request"
    } else {
        "the server did not execute the request; a retry is safe"
    }
}

/// Formats a peer and the result of the dial. An address equal to the peer's name is not repeated.
fn reached(peer: &str, source: &io::Error) -> String {
    let text = source.to_string();
    if text.starts_with(peer) { text } else { format!("{peer}: {text}") }
}

impl TransportError {
    /// Returns the server of the request.
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

    /// Returns true if the server may have executed the request. If false, a retry is safe for any method.
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

    /// Returns the message without the advice about writes.
    pub fn cause(&self) -> String {
        let (text, next) = (self.to_string(), next(self.maybe_sent()));
        let bare = text.strip_suffix(&format!("; {next}")).or_else(|| text.strip_suffix(&format!(" ({next})")));
        bare.map(str::to_owned).unwrap_or(text)
    }

    /// Converts the error of the last of `attempts` rejected attempts.
    pub(super) fn refused(self, peer: String, attempts: u32) -> Self {
        let reason = match self {
            Self::Reset { reason, .. } => reason,
            Self::ConnectionLost { how, .. } => format!("the connection was lost: {how}"),
            other => other.to_string(),
        };
        Self::Refused { peer, reason, attempts }
    }

    /// Returns the error of a failed TLS handshake.
    pub(super) fn tls(peer: String, source: io::Error) -> Self {
        let advice = match source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::InvalidCertificate(problem)) => match problem {
                // `BadSignature` occurs if another authority of the same name is trusted.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    "no authority that the configuration trusts signed the server's certificate: \
                     check certificate-authority in the kubeconfig"
                }
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    "the server's certificate is for another name: use the name of the certificate as server or as tls-server-name"
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "the server's certificate has expired: renew it, or check this machine's clock"
                }
                _ => "the server's certificate is not valid: renew it",
            },
            Some(rustls::Error::AlertReceived(_)) => {
                "the server rejected the handshake: check the client certificate in the kubeconfig"
            }
            Some(rustls::Error::InvalidMessage(_)) => {
                "the server does not use TLS at this address: check port and scheme"
            }
            _ => "the connection ended during the TLS handshake: check the proxies in front of the server",
        };
        Self::Tls { peer, source: Arc::new(source), advice }
    }
}

debug_as_message!(TransportError);
