//! Queue of one handler that processes each change before the next one arrives.

use std::sync::Arc;

use steadfast_core::event::{Change, Rules};
use steadfast_core::queue::DeliveryQueue;
use steadfast_core::store::Store;
use steadfast_core::time::Instant;

use super::store::{WATCHED, identity};
use crate::meter::Meter;

/// Returns updates of different objects.
fn changes(count: usize) -> Vec<Change<u64>> {
    let object = Arc::default();
    let mut store = Store::new(Rules::default());
    let mut changes = Vec::new();
    // The second round consists of updates, since the objects exist by then.
    for version in 0..2 {
        changes.clear();
        for number in 0..count {
            store.apply(identity(number, version), Ok(Arc::clone(&object)), &WATCHED, |change| changes.push(change));
        }
    }
    changes
}

pub(super) fn push(meter: &mut Meter, count: usize) {
    let mut queue = DeliveryQueue::new();
    for change in changes(count) {
        meter.count(|| queue.push(change, Instant::ZERO));
        // Emptied outside of the measurement, so that each push meets an empty queue.
        let delivery = queue.pop().expect("a pushed change");
        queue.done(&delivery.key);
    }
}

pub(super) fn pop(meter: &mut Meter, count: usize) {
    let mut queue = DeliveryQueue::new();
    for change in changes(count) {
        queue.push(change, Instant::ZERO);
        let delivery = meter.count(|| {
            let delivery = queue.pop();
            if let Some(delivery) = &delivery {
                queue.done(&delivery.key);
            }
            delivery
        });
        assert_eq!(delivery.map(|delivery| delivery.event.name()), Some("Updated"));
    }
}
