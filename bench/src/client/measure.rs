//! Measurements of this process.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use steadfast_bench_controllers::{memory, processor_time};

use super::cache::ClientCache;
use crate::BenchError;

/// Resets the maximum of the resident memory.
pub(super) fn reset_peak() -> Result<(), BenchError> {
    // The value 5 resets `VmHWM` (proc_pid_clear_refs(5)).
    Ok(std::fs::write("/proc/self/clear_refs", "5")?)
}

/// Number of gets of each kind between two checks of the time limit. One list of a namespace follows them.
const GETS_PER_BATCH: usize = 1000;

/// One of this number of gets is timed, because reading the clock costs as much as a get.
const GETS_PER_TIMED_GET: usize = 16;

/// Gets objects in a fixed order for a while, alternating between names and prepared keys, and lists a namespace from
/// time to time.
pub(super) fn measure_reads(cache: &dyn ClientCache, limit: Duration) -> Value {
    let names = cache.names();
    let get_by_key = cache.prepared_lookup();
    let get_by_name = |index: usize| {
        let (namespace, name): &(String, String) = &names[index];
        cache.has(namespace, name)
    };
    let (mut gets, mut found, mut index) = (0, 0, 0);
    let (mut name_times, mut key_times, mut list_times) = (Vec::new(), Vec::new(), Vec::new());
    let started = Instant::now();
    while started.elapsed() < limit {
        let lookups: [(&dyn Fn(usize) -> bool, _); 2] =
            [(&get_by_name, &mut name_times), (&get_by_key, &mut key_times)];
        for (get, get_times) in lookups {
            for number in 0..GETS_PER_BATCH {
                // A prime stride visits all objects in an order that defeats the caches of the processor, as random
                // reads do.
                index = (index + 7919) % names.len();
                let before = number.is_multiple_of(GETS_PER_TIMED_GET).then(Instant::now);
                found += usize::from(get(index));
                get_times.extend(before.map(|before| before.elapsed().as_nanos() as u64));
            }
            gets += GETS_PER_BATCH;
        }
        let before = Instant::now();
        // The generator spreads the objects over namespaces of this pattern, so that this namespace is never empty.
        let objects = cache.namespace_len("team-7");
        list_times.push(before.elapsed().as_nanos() as u64);
        assert!(objects > 0, "the namespace team-7 is empty");
    }
    let per_second = gets as f64 / started.elapsed().as_secs_f64();
    for times in [&mut name_times, &mut key_times, &mut list_times] {
        times.sort_unstable();
    }
    let (p50, p99) = (|times: &[u64]| times[times.len() / 2], |times: &[u64]| times[times.len() * 99 / 100]);
    json!({
        "phase": "reads", "per_second": per_second, "found": found == gets,
        "get_p50_ns": p50(&name_times), "get_p99_ns": p99(&name_times),
        "get_by_key_p50_ns": p50(&key_times), "get_by_key_p99_ns": p99(&key_times),
        "list_p50_us": p50(&list_times) as f64 / 1e3, "list_p99_us": p99(&list_times) as f64 / 1e3,
    })
}

/// The access pattern `hot` reads one of this number of objects.
const HOT_OBJECT_STRIDE: usize = 100;

/// Reads one field of an object, `reads` times. With the access pattern `all`, each pass lists all objects, reads them
/// and drops the list. The pattern `hot` reads random objects of a fixed hundredth. The pattern `random` reads random
/// objects of the whole cache.
pub(super) fn visit(cache: &dyn ClientCache, pattern: &str, reads: usize) -> Result<Value, BenchError> {
    let objects = cache.len();
    let candidates: Vec<usize> = match pattern {
        "all" | "random" => (0..objects).collect(),
        "hot" => (0..objects).step_by(HOT_OBJECT_STRIDE).collect(),
        _ => return Err(format!("unknown access pattern: {pattern}; use `all`, `hot` or `random`").into()),
    };
    let node = cache.prepared_node_lookup();
    let started = processor_time()?;
    let mut made = 0;
    if pattern == "all" {
        while made < reads {
            assert!(cache.distinct_nodes() > 0, "no object has a node");
            made += objects;
        }
    } else {
        // A generator with a fixed seed (Knuth's MMIX), so that all programs read the same objects in the same order.
        let mut state = 1_u64;
        while made < reads {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let index = candidates[(state >> 33) as usize % candidates.len()];
            assert!(node(index), "object {index} has no node");
            made += 1;
        }
    }
    let mut response = memory()?;
    response["phase"] = json!("visit");
    response["read_ns"] = json!((processor_time()? - started) / made as f64 * 1e9);
    Ok(response)
}
