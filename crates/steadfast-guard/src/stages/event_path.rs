//! The whole path of an event: from its chunk to the end of a handler call, including the drop of the previous object.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use steadfast_core::WithSize;
use steadfast_core::decode::{self, DecodeOptions, Decoder, Encoding, WatchRecord};
use steadfast_core::frame::{StreamFramer, StreamRecord};
use steadfast_core::queue::DeliveryQueue;
use steadfast_core::reflector::{Record, RecordAction};
use steadfast_core::time::Instant;

use super::decoding::{MAX_OBJECT_BYTES, wanted};
use super::reflector::watching;
use super::store::{WATCHED, filled};
use crate::meter::Meter;
use crate::sample;

/// Performs the steps of the driver, with the default settings.
pub(super) fn event(meter: &mut Meter, encoding: Encoding, count: usize) {
    measure(meter, encoding, Decoder::new(DecodeOptions::default()), count);
}

/// Performs the steps of the driver, in a cache that decodes on demand.
pub(super) fn event_on_demand(meter: &mut Meter, encoding: Encoding, count: usize) {
    measure(meter, encoding, super::decoding::decoder_on_demand(), count);
}

fn measure(meter: &mut Meter, encoding: Encoding, mut decoder: Decoder, count: usize) {
    let mut store = filled(&Arc::new(Pod::default()));
    let mut queue = DeliveryQueue::new();
    let mut framer = StreamFramer::new(encoding, MAX_OBJECT_BYTES);
    let (mut reflector, watch) = watching();
    let wanted = wanted();
    // Load each pod of the sample once: an event then updates a cached object.
    let warmup = sample::pods();
    for (turn, chunk) in sample::events(encoding, warmup + count).into_iter().enumerate() {
        let handle = || {
            framer.feed(chunk);
            let Some(StreamRecord::Complete(line)) = framer.next() else { return None };
            let Ok(WatchRecord::Object { kind, object: raw }) = decode::watch_record(encoding, &line, Some(&wanted))
            else {
                return None;
            };
            // The order is that of the driver: the reflector decides before the object is decoded.
            if reflector.record(Instant::ZERO, watch, Record::Object(kind, &raw.identity)) != RecordAction::Apply {
                return None;
            }
            let pod = WithSize::<Pod>::decode(&raw, &mut decoder).ok()?;
            let (version, mut changes) = (raw.identity.version.clone(), Vec::new());
            store.apply(raw.identity, Ok(pod), &WATCHED, |change| changes.push(change));
            store.advance(version);
            // Published before the delivery: a handler must find its event in the cache (C6).
            store.publish();
            for change in changes {
                queue.push(change, Instant::ZERO);
            }
            let delivery = queue.pop()?;
            let event = delivery.event.private();
            let name = event.object().metadata.name.as_ref().map(|_| event.name());
            queue.done(&delivery.key);
            name
        };
        if turn < warmup {
            assert_eq!(handle(), Some("Added"));
        } else {
            assert_eq!(meter.count(handle), Some("Updated"));
        }
    }
}
