//! Exclusive use of an HTTP/1.1 connection by one request.

use std::time::Duration;

use hyper::client::conn::http1::SendRequest;
use kube::client::Body;

use super::end::End;
use super::stream_slot::StreamSlot;
use crate::environment::SharedEnvironment;

/// Maximum time for a connection to become ready after a response.
const READY_TIMEOUT: Duration = Duration::from_secs(1);

/// Exclusive use of a connection by one request.
pub(super) struct Http1Slot {
    pub(super) stream_slot: Option<StreamSlot>,
    pub(super) sender: Option<SendRequest<Body>>,
}

impl Http1Slot {
    /// Ends the use after a complete response. Other requests can use the connection once its driver is ready.
    pub(super) fn finish(mut self, environment: &SharedEnvironment) {
        let (Some(stream_slot), Some(mut sender)) = (self.stream_slot.take(), self.sender.take()) else { return };
        if sender.is_ready() {
            stream_slot.connection.give_back(sender);
            return;
        }
        // The driver may still have to process the end of the response, or a `Connection: close`.
        let given_up = environment.sleep_until(environment.now() + READY_TIMEOUT);
        environment.spawn(Box::pin(async move {
            let ready = tokio::select! {
                biased;
                ready = sender.ready() => ready.is_ok(),
                () = given_up => false,
            };
            if ready {
                stream_slot.connection.give_back(sender);
            } else {
                stream_slot.connection.end(End::Drained);
            }
        }));
    }
}

impl Drop for Http1Slot {
    fn drop(&mut self) {
        if let Some(stream_slot) = &self.stream_slot {
            // The rest of the response would block any other request.
            stream_slot.connection.end(End::Abandoned);
        }
    }
}
