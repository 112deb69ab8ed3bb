use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use steadfast_core::decode::{Cacheable, DecodeOptions, Decoder, Encoding, RawObject, list_item};
use steadfast_core::event::{Rules, StateSource};
use steadfast_core::random::Random;
use steadfast_core::{Object, WithSize};

use super::*;

const WATCHED: StateSource = StateSource::Watched { deletion: None };

/// Assumed memory of a decoded object in bytes, so that 32 objects trigger a sweep.
const FORM_BYTES: usize = 1024 * 1024;

/// Cache with its driver and its readers, in virtual time.
struct CacheModel {
    store: Store<ConfigMap>,
    decoder: Decoder,
    reports: Arc<DecodeReports>,
    is_woken: Arc<AtomicBool>,
    decodes: Arc<AtomicUsize>,
    forms: DecodedForms,
    now: Instant,
    versions: u64,
    /// Texts of the cached objects; `None` for a deleted object.
    texts: Vec<Option<String>>,
    events: usize,
    reads: usize,
    max_bytes: usize,
}

impl CacheModel {
    fn new(objects: usize) -> Self {
        let (reports, is_woken, decodes) =
            (Arc::<DecodeReports>::default(), Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (added, woken, counter) = (reports.clone(), is_woken.clone(), decodes.clone());
        let report = move |key: &ObjectKey, bytes: usize| {
            counter.fetch_add(1, Ordering::Relaxed);
            woken.fetch_or(added.add(key, bytes), Ordering::Relaxed);
        };
        let mut model = Self {
            store: Store::new(Rules::default()),
            decoder: Decoder::new(DecodeOptions::default()).on_demand(0, Arc::new(report)),
            reports,
            is_woken,
            decodes,
            forms: DecodedForms::default(),
            now: Instant::ZERO,
            versions: 0,
            texts: vec![None; objects],
            events: 0,
            reads: 0,
            max_bytes: 0,
        };
        (0..objects).for_each(|number| model.write(number));
        model
    }

    fn raw(&mut self, number: usize) -> RawObject {
        self.versions += 1;
        let version = self.versions;
        let json = format!(
            r#"{{"metadata":{{"namespace":"shop","name":"web-{number}","uid":"u-{number}",
            "resourceVersion":"{version}"}},"data":{{"text":"{number} {version}"}}}}"#
        );
        list_item(Encoding::Json, &Bytes::from(json).into(), None).expect("a config map")
    }

    /// Processes a watch event as the driver does.
    fn write(&mut self, number: usize) {
        let raw = self.raw(number);
        let (object, _) = self.decoder.decode_with_size::<ConfigMap>(&raw).expect("a config map");
        self.texts[number] = Some(text(&object).to_owned());
        let mut object = WithSize::new(object, 0);
        object.bytes = FORM_BYTES;
        let on_demand = ConfigMap::on_demand(&raw, FORM_BYTES, &mut self.decoder);
        let object = object.cached_as(on_demand);
        self.forms.event(&raw.identity.key, &object, self.now);
        self.store.apply(raw.identity, Ok(object), &WATCHED, drop);
        self.store.publish();
        self.events += 1;
    }

    fn delete(&mut self, number: usize) {
        if self.texts[number].take().is_some() {
            let identity = self.raw(number).identity;
            self.store.remove(&identity.key, &identity.uid, &WATCHED, drop);
            self.store.publish();
        }
    }

    /// Reads an object, and checks the text. The handle keeps its decoded form.
    fn read(&mut self, number: usize) -> Option<Object<ConfigMap>> {
        let found = self.store.reader().get(Some("shop"), &format!("web-{number}")).found();
        assert_eq!(found.as_ref().map(|object| text(object)), self.texts[number].as_deref());
        self.reads += 1;
        if self.is_woken.swap(false, Ordering::Relaxed) {
            self.forms.reported(&self.reports, self.now);
        }
        self.max_bytes = self.max_bytes.max(self.reports.bytes());
        found
    }

    /// Runs one step if one is due. Returns false if none is.
    fn step(&mut self) -> bool {
        let is_due = self.forms.has_step() || self.forms.next().is_some_and(|next| next <= self.now);
        if is_due {
            let before = self.forms.visits;
            if self.forms.step(&self.reports, &mut self.store, self.now) {
                self.store.publish();
            }
            assert!(self.forms.visits - before <= MAX_VISITS_PER_STEP);
        }
        is_due
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        while self.step() {}
    }

    /// Checks that all decoded forms are dropped after some minutes without reads.
    fn check_all_dropped(&mut self) {
        for _ in 0..40 {
            self.wait(Duration::from_secs(5));
        }
        assert_eq!(self.forms.next(), None, "no sweep without decoded forms");
        assert_eq!(self.reports.bytes(), 0);
        for number in 0..self.texts.len() {
            let key = ObjectKey::namespaced("shop", format!("web-{number}"));
            assert_eq!(self.store.sweep_decoded(&key), None, "{key} has a decoded form that no sweep drops");
        }
        assert!(self.forms.fresh.is_empty() && self.forms.kept.is_empty() && self.forms.forms.is_empty());
    }

    fn decodes(&self) -> usize {
        self.decodes.load(Ordering::Relaxed)
    }
}

fn text(object: &ConfigMap) -> &str {
    &object.data.as_ref().expect("data")["text"]
}

#[test]
fn random_reads_find_equal_objects() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut pick = |count: usize| random.draw() as usize % count;
        let mut model = CacheModel::new(100);
        let mut held: Vec<(Object<ConfigMap>, Arc<ConfigMap>, String)> = Vec::new();
        // Some seeds have few events, others have few reads, so that both ways of keeping event objects occur.
        let event_one_in = 2 + pick(20);
        for _ in 0..2_000 {
            let number = if pick(2) == 0 { pick(5) } else { pick(100) };
            match pick(event_one_in + 4) {
                0 => model.write(number),
                1 if pick(4) == 0 => model.delete(number),
                2 => drop(model.step()),
                3 if pick(20) == 0 => {
                    model.now = model.now + Duration::from_secs(pick(20) as u64);
                }
                _ => {
                    let object = model.read(number);
                    if let Some(object) = object.filter(|_| pick(10) == 0) {
                        held.push((object.clone(), object.arc().clone(), text(&object).to_owned()));
                    }
                }
            }
            if held.len() > 10 {
                drop(held.swap_remove(pick(10)));
            }
        }
        for (object, decoded, expected) in &held {
            assert!(Arc::ptr_eq(object.arc(), decoded), "seed {seed}: a handle keeps its decoded form");
            assert_eq!(text(object), expected, "seed {seed}");
        }
        model.check_all_dropped();
        let (visits, causes) = (model.forms.visits, model.reads + model.events);
        assert!(visits <= 8 * causes, "seed {seed}: {visits} visits for {causes} reads and events");
        for (object, decoded, _) in &held {
            assert!(Arc::ptr_eq(object.arc(), decoded), "seed {seed}: a handle outlives the sweeps");
        }
    }
}

#[test]
fn pass_visits_each_form_twice() {
    for objects in [1_000, 4_000] {
        let mut model = CacheModel::new(objects);
        for number in 0..objects {
            model.read(number);
            while model.step() {}
        }
        assert_eq!(model.decodes(), objects);
        assert!(model.max_bytes <= 3 * MAX_UNSWEPT_BYTES, "{} bytes", model.max_bytes);
        model.check_all_dropped();
        assert!(model.forms.visits <= 2 * objects, "{} visits for {objects} objects", model.forms.visits);
    }
}

#[test]
fn repeated_pass_decodes_objects_twice() {
    let objects = 1_000;
    let mut model = CacheModel::new(objects);
    let mut decodes = Vec::new();
    for _ in 0..10 {
        for number in 0..objects {
            model.read(number);
            while model.step() {}
        }
        decodes.push(model.decodes());
        model.wait(Duration::from_secs(20));
    }
    assert!(decodes[0] == objects && decodes[2] <= 2 * objects, "{decodes:?}");
    assert!(decodes[2..].iter().all(|count| *count == decodes[2]), "{decodes:?}");
    model.check_all_dropped();
}

#[test]
fn hot_object_stays_during_passes() {
    let mut model = CacheModel::new(1_000);
    for number in 0..1_000 {
        model.read(number);
        model.read(0);
        model.step();
    }
    let before = model.decodes();
    model.read(0);
    assert_eq!(model.decodes(), before);
    assert!(before <= 1_001, "{before} decodes: an object in use stays decoded");
}

#[test]
fn drops_of_many_forms_take_steps() {
    let mut model = CacheModel::new(1_000);
    let held: Vec<_> = (0..1_000).map(|number| model.read(number)).collect();
    model.wait(Duration::from_secs(1));
    model.now = model.now + SWEEP_INTERVAL;
    let mut steps = 0;
    while model.step() {
        steps += 1;
        // An event between two steps is published at once.
        model.write(steps);
        model.read(steps);
    }
    assert!(steps >= 1_000 / MAX_DROPS_PER_STEP, "{steps} steps");
    drop(held);
    model.check_all_dropped();
}
