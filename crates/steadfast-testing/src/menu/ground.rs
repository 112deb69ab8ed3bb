//! Where scenarios play: in memory in virtual time, or over TCP and TLS in real time.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::{Informer, InformerError, InformerFactory, Scope};
use steadfast_apiserver::ApiServer;

use super::plan::Plan;

type Start = dyn Fn(&InformerFactory, Scope) -> Result<Informer<ConfigMap>, InformerError> + Send + Sync;
type Adjust = dyn Fn(&mut Plan) + Send + Sync;
type Sabotage = dyn Fn(&ApiServer) + Send + Sync;

/// Where scenarios play, and what of library and server is broken there on purpose: nothing, unless it is said.
#[derive(Clone)]
pub struct Ground {
    /// What decides UIDs, jitter, times and places.
    pub(super) seed: u64,
    pub(super) in_memory: bool,
    pub(super) lazy: bool,
    pub(super) start: Arc<Start>,
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
            lazy: false,
            start: Arc::new(InformerFactory::informer),
            adjust: Arc::new(|_| {}),
            sabotage: Arc::new(|_| {}),
        }
    }

    /// Where several faults play together, informers keep objects as the server wrote them, and decode them when they are
    /// read.
    #[must_use]
    pub fn lazily(mut self) -> Self {
        self.lazy = true;
        self
    }

    /// Informers are started in this way: a library that is broken on purpose.
    #[must_use]
    pub fn starting(
        mut self,
        start: impl Fn(&InformerFactory, Scope) -> Result<Informer<ConfigMap>, InformerError> + Send + Sync + 'static,
    ) -> Self {
        self.start = Arc::new(start);
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
