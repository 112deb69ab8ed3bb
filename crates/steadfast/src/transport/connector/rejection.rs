//! Detection of rejected client certificates. With TLS 1.3 the server verifies them after the client's handshake has
//! finished.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::AlertDescription;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::transport::socket::{Stream, Traffic};

/// TLS stream that records a rejection by the server in its traffic.
pub(super) struct RejectionRecorder<S> {
    stream: S,
    traffic: Arc<Traffic>,
    /// True after the server has sent data, which it sends only to accepted clients.
    is_accepted: bool,
}

impl<S: Stream> RejectionRecorder<S> {
    /// Wraps `stream` after its handshake.
    pub(super) fn new(stream: S, traffic: Arc<Traffic>) -> Self {
        Self { stream, traffic, is_accepted: false }
    }

    fn record<T>(&self, done: &Poll<io::Result<T>>) {
        let Poll::Ready(Err(error)) = done else { return };
        let tls_error = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        // An alert after data from the server reports a failure of the connection, not a rejection of the certificate.
        if let Some(received @ rustls::Error::AlertReceived(alert)) = tls_error
            && !self.is_accepted
            && is_rejection(*alert)
        {
            self.traffic.record_tls_rejection(received.clone());
        }
    }
}

/// Returns true if the alert rejects the client's certificate, or its absence.
fn is_rejection(alert: AlertDescription) -> bool {
    // TLS libraries choose different alerts for one reason, such as `bad_certificate` for an unknown authority.
    matches!(
        alert,
        AlertDescription::AccessDenied
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRequired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError
            | AlertDescription::HandshakeFailure
            | AlertDescription::UnknownCA
            | AlertDescription::UnsupportedCertificate
    )
}

impl<S: Stream> AsyncRead for RejectionRecorder<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        self.record(&read);
        // Only received data proves acceptance: bytes can be written before a rejection arrives.
        self.is_accepted |= into.filled().len() > before;
        read
    }
}

impl<S: Stream> AsyncWrite for RejectionRecorder<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.record(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.record(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.record(&flushed);
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
