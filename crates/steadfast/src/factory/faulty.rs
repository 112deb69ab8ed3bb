//! Informers with an injected fault, for tests.

#![cfg(feature = "fault-injection")]

use steadfast_core::decode::Cacheable;
use steadfast_core::fault_injection::{FaultInjection, InjectedFault};

use super::InformerBuilder;

impl<K: Cacheable> InformerBuilder<'_, K> {
    /// Injects a fault that violates the contract, for tests of the checker. `None` changes nothing.
    pub fn inject_fault(mut self, fault: impl Into<Option<InjectedFault>>) -> Self {
        self.settings.reflector.rules.faults = fault.into().map_or(FaultInjection::NONE, FaultInjection::only);
        self
    }
}
