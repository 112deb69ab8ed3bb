//! One client as a separate process. It syncs, and then executes the commands from its standard input, one per line.
//!
//! | line | effect | response, as one line of JSON |
//! |---|---|---|
//! | `memory` | | current and maximum resident memory |
//! | `reset-peak` | resets the maximum | |
//! | `until VERSION` | waits until the handler has seen the version | time since the first event, and CPU time |
//! | `stall`, `resume` | blocks or unblocks its handler | |
//! | `arm` | resets the counters | |
//! | `reached VERSION` | as `until`, but measures from the last `arm` | as `until` |
//! | `fields` | reads one field of every object's spec | duration |
//! | `visit PATTERN READS` | reads one field of at least READS objects; PATTERN is `all` (passes over all objects), `hot` (random objects of a fixed 1 %) or `random` (random objects) | processor time, memory |
//! | `checksum` | | checksum and number of all objects |
//! | `processor` | | processor time so far |
//! | `checkpointed` | waits until the whole cache is in the file of `--checkpoint` | number of written bytes |
//! | `reads SECONDS` | gets objects, and lists a namespace from time to time | number and durations of the reads |

mod baseline;
mod cache;
mod cached_form;
mod fault_client;
mod kube_runtime_client;
mod measure;
mod output;
mod progress;
mod request;
mod steadfast_client;

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use steadfast::Lazy;
use steadfast_bench_controllers::{memory, processor_time};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::sleep;

use crate::BenchError;
use cache::ClientCache;
use output::print_response;
use progress::Progress;
use request::ClientLibrary;

pub(crate) use request::ClientArgs;

/// Runs the client until its standard input is closed.
pub(crate) async fn run(args: ClientArgs) -> Result<(), BenchError> {
    let file = Kubeconfig::read_from(&args.kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    if args.fault_client {
        // This client runs until its standard input ends. It prints events instead of measurements.
        return fault_client::run(config, args.library).await;
    }
    let progress = Progress::default();
    let (started, cpu_before) = (Instant::now(), processor_time()?);
    let widgets = widgets();
    let cache: Box<dyn ClientCache> = match (args.library, args.resource.as_str()) {
        (ClientLibrary::Steadfast, "pods") if args.lazy => {
            Box::new(steadfast_client::start::<Lazy<Pod>>(config, &(), &args, &progress).await?)
        }
        (ClientLibrary::Steadfast, _) if args.lazy => {
            Box::new(steadfast_client::start::<Lazy<DynamicObject>>(config, &widgets, &args, &progress).await?)
        }
        (ClientLibrary::Steadfast, "pods") => {
            Box::new(steadfast_client::start::<Pod>(config, &(), &args, &progress).await?)
        }
        (ClientLibrary::Steadfast, _) => {
            Box::new(steadfast_client::start::<DynamicObject>(config, &widgets, &args, &progress).await?)
        }
        // The baseline has no cache, so no other command applies.
        (ClientLibrary::Baseline, _) => {
            let bytes = baseline::read(config, &args).await?;
            let (seconds, cpu) = (started.elapsed().as_secs_f64(), processor_time()? - cpu_before);
            print_response(&json!({ "phase": "synced", "seconds": seconds, "cpu": cpu, "bytes": bytes }));
            return Ok(());
        }
        (ClientLibrary::Kube, "pods") => {
            Box::new(kube_runtime_client::start::<Pod>(config, (), &args, &progress).await?)
        }
        (ClientLibrary::Kube, _) => {
            Box::new(kube_runtime_client::start::<DynamicObject>(config, widgets, &args, &progress).await?)
        }
    };
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), processor_time()? - cpu_before);
    // A sync of too few objects would look fast.
    if cache.len() != args.expect {
        return Err(format!("the store has {} objects, not {}", cache.len(), args.expect).into());
    }
    print_response(&json!({ "phase": "synced", "seconds": seconds, "cpu": cpu, "objects": cache.len() }));
    let mut cpu_before = 0.0;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let (command, argument) = line.split_once(' ').unwrap_or((&line, ""));
        match command {
            "memory" => print_response(&memory()?),
            "reset-peak" => {
                measure::reset_peak()?;
                print_response(&json!({ "phase": "reset-peak" }));
            }
            "arm" => {
                cpu_before = arm(&progress)?;
                print_response(&json!({ "phase": "arm" }));
            }
            "stall" | "resume" => {
                progress.set_stalled(command == "stall");
                print_response(&json!({ "phase": command }));
            }
            "reached" => print_response(&wait_for_version("reached", &progress, argument.parse()?, cpu_before).await?),
            "until" => {
                let cpu_before = arm(&progress)?;
                // The command is acknowledged before the wait, so that the writes start after the counters were reset.
                print_response(&json!({ "phase": "armed" }));
                print_response(&wait_for_version("until", &progress, argument.parse()?, cpu_before).await?);
            }
            "fields" => {
                let started = Instant::now();
                let distinct = cache.distinct_nodes();
                print_response(
                    &json!({ "phase": "fields", "seconds": started.elapsed().as_secs_f64(), "distinct": distinct }),
                );
            }
            "visit" => {
                let (pattern, reads) = argument.split_once(' ').unwrap_or((argument, ""));
                let reads = reads.parse()?;
                print_response(&tokio::task::block_in_place(|| measure::visit(&*cache, pattern, reads))?);
            }
            "checksum" => {
                let sum = cache.checksum()?.sum();
                print_response(&json!({ "phase": "checksum", "sum": sum, "objects": cache.len() }));
            }
            "processor" => print_response(&json!({ "phase": "processor", "seconds": processor_time()? })),
            "checkpointed" => {
                let bytes = loop {
                    let stats = cache.checkpoint_stats().ok_or("no checkpoint is written; pass --checkpoint")?;
                    // The checkpoint is written in the background, after the sync.
                    if stats.rows >= args.expect as u64 {
                        break stats.bytes;
                    }
                    sleep(Duration::from_millis(10)).await;
                };
                print_response(&json!({ "phase": "checkpointed", "bytes": bytes }));
            }
            "reads" => {
                let limit = Duration::from_secs_f64(argument.parse()?);
                // The reads block this thread for seconds. The runtime must move other tasks to other threads.
                print_response(&tokio::task::block_in_place(|| measure::measure_reads(&*cache, limit)));
            }
            _ => return Err(format!("unknown command: {line}").into()),
        }
    }
    Ok(())
}

/// Returns the custom resource of the bench.
fn widgets() -> ApiResource {
    ApiResource {
        group: "bench.steadfast.dev".into(),
        version: "v1".into(),
        api_version: "bench.steadfast.dev/v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
    }
}

/// Resets the counters, and returns the processor time so far.
fn arm(progress: &Progress) -> Result<f64, BenchError> {
    progress.reset();
    processor_time()
}

/// Waits for an object with `version` or later.
async fn wait_for_version(
    phase: &str,
    progress: &Progress,
    version: u64,
    cpu_before: f64,
) -> Result<serde_json::Value, BenchError> {
    while progress.version() < version {
        sleep(Duration::from_millis(1)).await;
    }
    let mut response = progress.take_report(phase);
    response["cpu"] = json!(processor_time()? - cpu_before);
    Ok(response)
}
