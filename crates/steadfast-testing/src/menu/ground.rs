//! Where scenarios play: in memory in virtual time, or over TCP and TLS in real time.

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "breach")]
use steadfast::Breach;
use steadfast::environment::Helpers;
use steadfast_apiserver::ApiServer;

use super::plan::Plan;
use crate::Form;

type Adjust = dyn Fn(&mut Plan) + Send + Sync;
type Sabotage = dyn Fn(&ApiServer) + Send + Sync;

/// Where scenarios play, and what of library and server is broken there on purpose: nothing, unless it is said.
#[derive(Clone)]
pub struct Ground {
    /// What decides UIDs, jitter, times and places.
    pub(super) seed: u64,
    pub(super) in_memory: bool,
    pub(super) form: Form,
    #[cfg(feature = "breach")]
    pub(super) breach: Option<Breach>,
    pub(super) helpers: Helpers,
    adjust: Arc<Adjust>,
    pub(super) sabotage: Arc<Sabotage>,
}

impl Ground {
    /// Pipes in memory, everything on the current runtime and in its time, which may be paused: the same each time.
    pub fn in_memory(seed: u64) -> Self {
        Self::of(seed, true)
    }

    /// TCP and TLS on the loopback interface, in real time, on threads of the library's own.
    pub fn over_tcp(seed: u64) -> Self {
        Self::of(seed, false)
    }

    fn of(seed: u64, in_memory: bool) -> Self {
        Self {
            seed,
            in_memory,
            form: Form::default(),
            #[cfg(feature = "breach")]
            breach: None,
            helpers: Helpers::default(),
            adjust: Arc::new(|_| {}),
            sabotage: Arc::new(|_| {}),
        }
    }

    /// Informers keep and request objects in this form.
    #[must_use]
    pub fn in_form(mut self, form: Form) -> Self {
        self.form = form;
        self
    }

    /// In memory, others help to decode whatever comes, in turns that the seed decides.
    #[must_use]
    pub fn helped(mut self) -> Self {
        self.helpers = Helpers { threads: 3, worth: 1 };
        self
    }

    /// Informers commit this breach: a library that is broken on purpose.
    #[cfg(feature = "breach")]
    #[must_use]
    pub fn breaching(mut self, breach: Breach) -> Self {
        self.breach = Some(breach);
        self
    }

    /// Every plan is changed in this way: times and limits that are not those of the contract.
    #[must_use]
    pub fn adjusting(mut self, adjust: impl Fn(&mut Plan) + Send + Sync + 'static) -> Self {
        self.adjust = Arc::new(adjust);
        self
    }

    /// Every server is treated in this way as soon as it is there: a server that is broken on purpose.
    #[must_use]
    pub fn sabotaging(mut self, sabotage: impl Fn(&ApiServer) + Send + Sync + 'static) -> Self {
        self.sabotage = Arc::new(sabotage);
        self
    }

    /// Whether time is real, so that a busy machine has a say in it.
    pub fn is_real(&self) -> bool {
        !self.in_memory
    }

    pub(super) fn adjusted(&self, mut plan: Plan) -> Plan {
        (self.adjust)(&mut plan);
        plan
    }
}

impl fmt::Debug for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.in_memory { "in_memory" } else { "over_tcp" };
        write!(f, "Ground::{place}({})", self.seed)
    }
}
