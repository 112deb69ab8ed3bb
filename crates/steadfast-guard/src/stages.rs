//! Measured stages, by name.

mod decoding;
mod event_path;
mod queue;
mod reflector;
mod store;

use steadfast_core::decode::Encoding::{Json, Protobuf};

use crate::figures::{StageReport, processor};
use crate::meter::Meter;

/// Processing step of each object or event.
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    /// Processes this number of objects or events, and checks the result.
    process: fn(&mut Meter, usize),
    /// Number of counted objects or events.
    units: usize,
}

/// Number of objects or events processed before counting starts, so that work done once per process is not counted.
const WARMUP_UNITS: usize = 8;

impl Stage {
    const fn new(name: &'static str, units: usize, process: fn(&mut Meter, usize)) -> Self {
        Self { name, process, units }
    }

    /// Runs the stage and returns its own counts.
    pub(crate) fn run(&self) -> StageReport {
        // The first run fills thread locals and lazy statics. Its costs belong to the process, not to an object.
        (self.process)(&mut Meter::off(), WARMUP_UNITS);
        let mut meter = Meter::on();
        (self.process)(&mut meter, self.units);
        let Meter { allocations, bytes, .. } = meter;
        StageReport { units: self.units, allocations, bytes, processor: processor() }
    }
}

/// All stages. Each processes enough objects for rare work, such as the split of a leaf, to count in proportion.
pub(crate) const STAGES: &[Stage] = &[
    Stage::new("json/list/frame", 200, |meter, count| decoding::frame_list(meter, Json, count)),
    Stage::new("json/list/frame and scan", 200, |meter, count| decoding::read_list(meter, Json, count)),
    Stage::new("json/list/scan", 200, |meter, count| decoding::scan_item(meter, Json, count)),
    Stage::new("json/watch/frame", 200, |meter, count| decoding::frame_watch(meter, Json, count)),
    Stage::new("json/watch/scan", 200, |meter, count| decoding::scan_event(meter, Json, count)),
    Stage::new("json/decode", 100, |meter, count| decoding::decode(meter, Json, count)),
    Stage::new("json/event, whole", 100, |meter, count| event_path::event(meter, Json, count)),
    Stage::new("protobuf/list/frame", 200, |meter, count| decoding::frame_list(meter, Protobuf, count)),
    Stage::new("protobuf/list/frame and scan", 200, |meter, count| decoding::read_list(meter, Protobuf, count)),
    Stage::new("protobuf/list/scan", 200, |meter, count| decoding::scan_item(meter, Protobuf, count)),
    Stage::new("protobuf/watch/frame", 200, |meter, count| decoding::frame_watch(meter, Protobuf, count)),
    Stage::new("protobuf/watch/scan", 200, |meter, count| decoding::scan_event(meter, Protobuf, count)),
    Stage::new("protobuf/decode", 100, |meter, count| decoding::decode(meter, Protobuf, count)),
    Stage::new("protobuf/event, whole", 100, |meter, count| event_path::event(meter, Protobuf, count)),
    Stage::new("json/event on demand, whole", 100, |meter, count| event_path::event_on_demand(meter, Json, count)),
    Stage::new("protobuf/event on demand, whole", 100, |meter, count| {
        event_path::event_on_demand(meter, Protobuf, count);
    }),
    Stage::new("json/pack", 100, |meter, count| decoding::pack(meter, Json, count)),
    Stage::new("protobuf/pack", 100, |meter, count| decoding::pack(meter, Protobuf, count)),
    Stage::new("pod/drop", 100, decoding::drop_pod),
    Stage::new("pod/first read", 100, |meter, count| decoding::read_on_demand(meter, Protobuf, count)),
    Stage::new("pod/repeated read", 100, |meter, count| decoding::read_decoded(meter, Protobuf, count)),
    Stage::new("reflector/record", 1_000, reflector::record),
    Stage::new("store/first list", 2_000, store::first_list),
    Stage::new("store/relist of the same", 2_000, store::same_list),
    Stage::new("store/edit", 1_000, store::edit),
    Stage::new("store/publish", 1_000, store::publish),
    Stage::new("store/get", 1_000, store::get),
    Stage::new("store/list a namespace", 2_000, store::namespace_listed),
    Stage::new("queue/push", 1_000, queue::push),
    Stage::new("queue/pop and done", 1_000, queue::pop),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_processes_its_input() {
        for stage in STAGES {
            (stage.process)(&mut Meter::off(), WARMUP_UNITS);
        }
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<_> = STAGES.iter().map(|stage| stage.name).collect();
        assert_eq!(names.len(), STAGES.len());
    }
}
