//! Interceptor: a callback that delays or resets requests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::records::RequestRecord;

/// Stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestStage {
    /// The request has arrived and is about to be processed.
    Arrived,
    /// The request is processed, and no part of the response has been sent.
    Processed,
}

/// Decision of an interceptor about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterceptAction {
    /// The request continues.
    Continue,
    /// The request continues after this delay, if its client still waits.
    Delay(Duration),
    /// The connection is reset, including its other streams. A request at [`RequestStage::Arrived`] is not processed. A
    /// request at [`RequestStage::Processed`] is processed, but its client receives no response.
    Reset,
}

type Interceptor = dyn Fn(&RequestRecord, RequestStage) -> InterceptAction + Send + Sync;

/// The registered callback, if any.
#[derive(Default)]
pub(crate) struct Interception(Mutex<Option<Arc<Interceptor>>>);

impl Interception {
    pub(crate) fn set(&self, interceptor: Option<Arc<Interceptor>>) {
        *self.0.lock() = interceptor;
    }

    /// Returns the decision about a request. Without a callback, the request continues.
    pub(crate) fn decide(&self, request: &RequestRecord, stage: RequestStage) -> InterceptAction {
        // The callback may switch faults, so no lock is held during the call.
        let interceptor = self.0.lock().clone();
        interceptor.map_or(InterceptAction::Continue, |interceptor| interceptor(request, stage))
    }
}

impl fmt::Debug for Interception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_set = self.0.lock().is_some();
        f.debug_tuple("Interception").field(&is_set).finish()
    }
}
