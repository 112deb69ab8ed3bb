//! One who is asked at each request what is to become of it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::records::RequestRecord;

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Moment {
    /// It has arrived, and is about to be acted on.
    Before,
    /// The server has done what it is for, and nothing of the answer was sent yet.
    After,
}

/// What is to become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on.
    Goes,
    /// It goes on so much later, if its client still waits for it then.
    Waits(Duration),
    /// Its connection is reset, with whatever else is under way on it: what was not done yet is not done, and what was done is
    /// not answered.
    Lost,
}

type Interceptor = dyn Fn(&RequestRecord, Moment) -> Fate + Send + Sync;

/// Who is asked, if anybody.
#[derive(Default)]
pub(crate) struct Interception(Mutex<Option<Arc<Interceptor>>>);

impl Interception {
    pub(crate) fn set(&self, interceptor: Option<Arc<Interceptor>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = interceptor;
    }

    /// What is to become of a request; without anybody to ask it goes on.
    pub(crate) fn ask(&self, request: &RequestRecord, moment: Moment) -> Fate {
        // Whoever is asked may switch faults, so nothing is locked meanwhile.
        let interceptor = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        interceptor.map_or(Fate::Goes, |interceptor| interceptor(request, moment))
    }
}

impl fmt::Debug for Interception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_set = self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        f.debug_tuple("Interception").field(&is_set).finish()
    }
}
