//! Callback that decides the outcome of each request.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::records::RequestRecord;

/// Stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Moment {
    /// The request has arrived and is about to be processed.
    Before,
    /// The request is processed, and no part of the response has been sent.
    After,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The request continues.
    Goes,
    /// The request continues after this delay, if its client still waits.
    Waits(Duration),
    /// The connection is reset, including its other streams. A request at [`Moment::Before`] is not processed. A
    /// request at [`Moment::After`] is processed, but its client receives no response.
    Lost,
}

type Interceptor = dyn Fn(&RequestRecord, Moment) -> Fate + Send + Sync;

/// The registered callback, if any.
#[derive(Default)]
pub(crate) struct Interception(Mutex<Option<Arc<Interceptor>>>);

impl Interception {
    pub(crate) fn set(&self, interceptor: Option<Arc<Interceptor>>) {
        *self.0.lock() = interceptor;
    }

    /// Returns the outcome of a request; without a callback, the request continues.
    pub(crate) fn ask(&self, request: &RequestRecord, moment: Moment) -> Fate {
        // The callback may switch faults, so no lock is held during the call.
        let interceptor = self.0.lock().clone();
        interceptor.map_or(Fate::Goes, |interceptor| interceptor(request, moment))
    }
}

impl fmt::Debug for Interception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_set = self.0.lock().is_some();
        f.debug_tuple("Interception").field(&is_set).finish()
    }
}
