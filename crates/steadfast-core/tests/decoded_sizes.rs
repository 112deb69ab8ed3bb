//! Comparison of the library's memory accounting with an allocator.
//!
//! The only test of its process, since the allocator counts for all threads.

use std::alloc::System;
use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::core::{DynamicObject, PartialObjectMeta};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use steadfast_core::decode::{Cacheable, Decoder, Encoding, RawObject, list_item};
use steadfast_core::frame::Item;
use steadfast_core::protobuf::MessageType;
use steadfast_core::{Lazy, WithSize};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Tolerated relative difference.
const TOLERANCE: f64 = 0.1;

/// Splits a file of the bench's generator into records.
fn records(mut rest: &'static [u8]) -> Vec<Bytes> {
    let mut records = Vec::new();
    while let Some((header, tail)) = rest.split_first_chunk::<12>() {
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let (record, tail) = tail.split_at(length);
        records.push(Bytes::from_static(record));
        rest = tail;
    }
    records
}

fn pods(encoding: Encoding) -> Vec<Item> {
    let message = MessageType::of_kind("v1", "Pod").expect("a built-in kind");
    match encoding {
        Encoding::Json => {
            records(include_bytes!("../../steadfast-guard/sample/pods.json")).into_iter().map(Item::from).collect()
        }
        Encoding::Protobuf => records(include_bytes!("../../steadfast-guard/sample/pods.protobuf"))
            .into_iter()
            .map(|record| Item::of_message(record, message))
            .collect(),
    }
}

/// Returns the metadata of pods, as a server sends it for a metadata-only request.
fn metadata_of_pods() -> Vec<Item> {
    let metadata = |pod: Bytes| {
        let pod: Value = serde_json::from_slice(&pod).expect("a pod");
        let metadata = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": pod["metadata"],
        });
        Item::from(Bytes::from(metadata.to_string()))
    };
    records(include_bytes!("../../steadfast-guard/sample/pods.json")).into_iter().map(metadata).collect()
}

fn secrets() -> Vec<Item> {
    let secret = |number: usize| {
        let data = (0..number).map(|entry| (format!("entry-{entry}"), json!("c2VjcmV0".repeat(10 * (entry + 1)))));
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": { "name": format!("secret-{number}"), "namespace": "team-1", "uid": format!("u-{number}"), "resourceVersion": "1" },
            "data": data.collect::<serde_json::Map<_, _>>(),
        });
        Item::from(Bytes::from(object.to_string()))
    };
    (1..40).map(secret).collect()
}

/// Returns custom resources with lists of all lengths.
fn lists() -> Vec<Item> {
    let list = |number: usize| {
        let object = json!({
            "apiVersion": "example.org/v1", "kind": "Thing",
            "metadata": { "name": format!("thing-{number}"), "namespace": "team-1", "uid": format!("u-{number}"), "resourceVersion": "1" },
            "spec": (0..20).map(|turn| vec![turn; (number + turn) % 12]).collect::<Vec<_>>(),
        });
        Item::from(Bytes::from(object.to_string()))
    };
    (1..40).map(list).collect()
}

/// Returns the accounted bytes of objects of the form `K`, and the allocator's count.
fn accounted_and_counted<K: Cacheable>(encoding: Encoding, items: &[Item]) -> (f64, f64) {
    let raw: Vec<RawObject> = items.iter().map(|item| list_item(encoding, item, None).expect("an object")).collect();
    let mut decoder = Decoder::default();
    // Allocates the data that all objects share, and the buffer.
    let first = decoder.decode_with_size::<K>(&raw[0]).expect("an object within the limits");
    let mut kept: Vec<Arc<K>> = Vec::with_capacity(raw.len());
    let mut accounted = 0;
    let region = Region::new(ALLOCATOR);
    for raw in &raw {
        let (object, beyond) = decoder.decode_with_size::<K>(raw).expect("an object within the limits");
        let WithSize { object, bytes, .. } = WithSize::new(object, beyond);
        accounted += bytes;
        kept.push(object);
    }
    let change = region.change();
    let counted = change.bytes_allocated as f64 - change.bytes_deallocated as f64;
    drop((first, kept));
    (accounted as f64, counted)
}

#[test]
fn accounted_bytes_match_the_allocator() {
    let both = [Encoding::Json, Encoding::Protobuf];
    let mut found = Vec::new();
    for encoding in both {
        found.push((format!("pods, {encoding:?}"), accounted_and_counted::<Pod>(encoding, &pods(encoding))));
        found.push((format!("lazy pods, {encoding:?}"), accounted_and_counted::<Lazy<Pod>>(encoding, &pods(encoding))));
        found.push((
            format!("dynamic pods, {encoding:?}"),
            accounted_and_counted::<DynamicObject>(encoding, &pods(encoding)),
        ));
    }
    let metadata = accounted_and_counted::<PartialObjectMeta<Pod>>(Encoding::Json, &metadata_of_pods());
    found.push(("metadata of pods".to_owned(), metadata));
    found.push(("secrets".to_owned(), accounted_and_counted::<Secret>(Encoding::Json, &secrets())));
    found.push(("lists".to_owned(), accounted_and_counted::<DynamicObject>(Encoding::Json, &lists())));
    found.push(("dynamic secrets".to_owned(), accounted_and_counted::<DynamicObject>(Encoding::Json, &secrets())));
    for (what, (accounted, counted)) in &found {
        println!(
            "{what}: {accounted} bytes accounted, {counted} counted, {:+.1} %",
            (accounted / counted - 1.0) * 100.0
        );
    }
    for (what, (accounted, counted)) in found {
        assert!(
            (accounted / counted - 1.0).abs() <= TOLERANCE,
            "{what}: {accounted} bytes accounted, {counted} counted"
        );
    }
}
