//! The use of an HTTP/1.1 connection by one request at a time.

use std::time::Duration;

use hyper::client::conn::http1::SendRequest;
use kube::client::Body;

use super::end::End;
use super::lease::Lease;
use crate::environment::SharedEnvironment;

/// How long a connection may take to be ready again after an answer has ended.
const TURNING: Duration = Duration::from_secs(1);

/// The use of a connection by one request, which nobody may share.
pub(super) struct Turn {
    pub(super) lease: Option<Lease>,
    pub(super) sender: Option<SendRequest<Body>>,
}

impl Turn {
    /// The answer was read to its end: the connection is for others as soon as its driver says so.
    pub(super) fn over(mut self, environment: &SharedEnvironment) {
        let (Some(lease), Some(mut sender)) = (self.lease.take(), self.sender.take()) else { return };
        if sender.is_ready() {
            lease.connection.give_back(sender);
            return;
        }
        let given_up = environment.sleep_until(environment.now() + TURNING);
        environment.spawn(Box::pin(async move {
            let ready = tokio::select! {
                biased;
                ready = sender.ready() => ready.is_ok(),
                () = given_up => false,
            };
            if ready {
                lease.connection.give_back(sender);
            } else {
                lease.connection.end(End::Drained);
            }
        }));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(lease) = &self.lease {
            // What still comes of the answer stands in the way of any other.
            lease.connection.end(End::Abandoned);
        }
    }
}
