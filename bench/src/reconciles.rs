//! Comparison of controllers: reconciles per second, the cost of each, the memory, and the delay from a change to its
//! reconcile. In most rows, the reconciles do nothing or only wait; in one row, they write.
//!
//! Each controller is a separate program, which contains no code of another library. It has its own embedded server
//! with the same objects. The controllers write equal values, so on a shared server the writes of the second controller
//! would change nothing. Except in the row with writes, keys are enqueued within the process, so that the server is not
//! measured. The threads that run the reconciles enqueue the keys. One more row measures a single key that another
//! thread enqueues, like the thread that reads changes from a connection.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use steadfast_apiserver::ApiServer;
use steadfast_testing::config_map;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::BenchError;
use crate::median::median;

/// Minimum number of reconciles per row.
const MIN_RECONCILES: usize = 200_000;

/// Number of reconciles for a single key, which run one after the other.
const SINGLE_KEY_RECONCILES: usize = 20_000;

/// Number of writes per object in the row of reconciles that write.
const WRITES_PER_OBJECT: usize = 5;

/// Number of runs per row of delays; the table shows the median. A run has 100 changes, so its p99 is a single change.
const RUNS_PER_DELAY_ROW: usize = 9;

/// Timeout, longer than any measurement.
const ROW_TIMEOUT: Duration = Duration::from_mins(2);

/// Selection of the measurements.
#[derive(clap::Args)]
pub(crate) struct ReconcilesArgs {
    /// Numbers of keys, one row each
    #[arg(long, value_delimiter = ',', default_values_t = [1, 100, 10_000, 100_000])]
    keys: Vec<usize>,
    /// Runs only the rows whose title contains one of these texts, for example `written`
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Number of runs per throughput row; the programs run in turn, and the table shows medians
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// `controller-steadfast` of an earlier commit, measured as a further program in each row
    #[arg(long)]
    earlier: Option<PathBuf>,
    /// Folder of programs and files
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

/// One row of the measurement, for each controller.
struct Row {
    title: String,
    keys: usize,
    arguments: Vec<String>,
    /// True if the row measures the delay from a change to its reconcile, and not the throughput.
    measures_delay: bool,
}

/// Runs all measurements, and writes a table.
pub(crate) async fn run(args: ReconcilesArgs) -> Result<(), BenchError> {
    std::fs::create_dir_all(&args.out)?;
    let out = args.out.canonicalize()?;
    let [go_program, steadfast, kube_runtime] = build_programs(&out).await?;
    let mut programs: Vec<(&str, PathBuf, &[&str])> = vec![
        ("steadfast", steadfast, &[]),
        ("kube-runtime", kube_runtime, &[]),
        ("controller-runtime", go_program, &["reconcile"]),
    ];
    if let Some(earlier) = &args.earlier {
        programs.insert(0, ("steadfast earlier", earlier.canonicalize()?, &[]));
    }
    let mut throughput_table = String::from(
        "| | | reconciles per second | CPU time per reconcile | thread switches per reconcile | resident | without files | peak |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let mut delay_table = String::from("| | change to reconcile, p50 | p99 |\n|---|---|---|\n");
    let is_selected =
        |row: &Row| args.rows.is_empty() || args.rows.iter().any(|text| row.title.contains(text.as_str()));
    for row in rows(&args.keys).into_iter().filter(is_selected) {
        let run_count = if row.measures_delay { RUNS_PER_DELAY_ROW } else { args.runs.max(1) };
        let mut runs_by_program: Vec<Vec<Vec<Value>>> = vec![Vec::new(); programs.len()];
        // The programs run in turn, so that a change of the machine's load affects all of them.
        for _ in 0..run_count {
            for ((name, program, extra_args), runs) in programs.iter().zip(&mut runs_by_program) {
                let run = run_row(&out, &row, program, extra_args).await.map_err(|error| format!("{name}: {error}"))?;
                if let Some(responses) = run {
                    eprintln!("{}, {name}: {responses:?}", row.title);
                    runs.push(responses);
                }
            }
        }
        for ((name, ..), runs) in programs.iter().zip(&runs_by_program) {
            let table = if row.measures_delay { &mut delay_table } else { &mut throughput_table };
            // A row that times out has no result at all, because a median of fewer runs would not be comparable.
            if runs.len() < run_count {
                writeln!(table, "| {} | {name} | not in {} s |", row.title, ROW_TIMEOUT.as_secs())?;
            } else if row.measures_delay {
                let (p50, p99) = (median_and_range(runs, "p50_us"), median_and_range(runs, "p99_us"));
                writeln!(table, "| {}, {name} | {p50} | {p99} |", row.title)?;
            } else {
                writeln!(table, "| {} | {name} | {} |", row.title, throughput_cells(runs))?;
            }
        }
    }
    println!("{throughput_table}\n{delay_table}");
    Ok(())
}

/// Runs `program` for the row on its own server. Returns its output, or `None` after the timeout.
async fn run_row(out: &Path, row: &Row, program: &Path, extra_args: &[&str]) -> Result<Option<Vec<Value>>, BenchError> {
    // Each run has its own server, so that all runs start with equal versions and watch caches.
    let server = ApiServer::builder().start().await?;
    for number in 0..row.keys {
        server.create(&config_map(&format!("map-{number}"), "1"))?;
    }
    let kubeconfig = out.join("reconciles.kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig())?;
    let mut command = Command::new(program);
    command.args(extra_args).arg("--kubeconfig").arg(&kubeconfig).arg("--keys").arg(row.keys.to_string());
    // The dropped future kills the process: `kill_on_drop` is set.
    timeout(ROW_TIMEOUT, run_to_end(command.args(&row.arguments))).await.ok().transpose()
}

/// Returns a field of the output of a phase.
fn phase_field(responses: &[Value], phase: &str, field: &str) -> Option<f64> {
    responses.iter().find(|response| response["phase"] == phase)?[field].as_f64()
}

/// Returns the reconciles per second, the cost of each, and the memory: the median of each figure over `runs`.
fn throughput_cells(runs: &[Vec<Value>]) -> String {
    // If the reconciles write, the figures are per write. All controllers make the same number of writes, but not the
    // same number of reconciles.
    let reconcile_count = |run: &[Value]| {
        let written = phase_field(run, "calls", "writes").filter(|written| *written > 0.0);
        written.or_else(|| phase_field(run, "calls", "calls")).unwrap_or_default()
    };
    let per_reconcile =
        |run: &[Value], field| phase_field(run, "calls", field).unwrap_or_default() / reconcile_count(run);
    let megabytes = |field| median(runs, |run| phase_field(run, "memory", field).unwrap_or_default() / 1e6);
    format!(
        "{:.0} | {:.2} µs | {:.2} | {:.1} MB | {:.1} MB | {:.1} MB",
        median(runs, |run| 1.0 / per_reconcile(run, "seconds")),
        median(runs, |run| per_reconcile(run, "processor") * 1e6),
        median(runs, |run| per_reconcile(run, "switches")),
        megabytes("resident"),
        megabytes("own"),
        megabytes("peak"),
    )
}

/// Returns the median of several runs for a field, with the minimum and the maximum, in milliseconds.
fn median_and_range(runs: &[Vec<Value>], field: &str) -> String {
    let mut values: Vec<f64> =
        runs.iter().filter_map(|responses| phase_field(responses, "changes during backlog", field)).collect();
    values.sort_by(f64::total_cmp);
    match (values.first(), values.get(values.len() / 2), values.last()) {
        (Some(min), Some(middle), Some(max)) => {
            format!("{:.2} ms ({:.2} to {:.2})", middle / 1e3, min / 1e3, max / 1e3)
        }
        _ => "not reported".to_owned(),
    }
}

/// Builds the programs for controller-runtime, Steadfast and kube-runtime. The Rust programs have the build profile of
/// this program.
async fn build_programs(out: &Path) -> Result<[PathBuf; 3], BenchError> {
    let go_program = out.join("bench-go");
    let mut build = Command::new("go");
    build.args(["build", "-C", "bench/go", "-o"]).arg(&go_program).arg(".");
    if !build.status().await?.success() {
        return Err("building bench/go failed (it needs Go)".into());
    }
    let current_program = std::env::current_exe()?;
    let programs = current_program.parent().ok_or("the program has no folder")?;
    let target = programs.parent().ok_or("the program is not in a target folder")?;
    let mut build = Command::new("cargo");
    build.args(["build", "--manifest-path", "bench/Cargo.toml", "--package", "steadfast-bench-controllers"]);
    build.arg("--target-dir").arg(target);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    if !build.status().await?.success() {
        return Err("building bench/controllers failed".into());
    }
    Ok([go_program, programs.join("controller-steadfast"), programs.join("controller-kube-runtime")])
}

fn rows(keys: &[usize]) -> Vec<Row> {
    let argument = |name: &str, value: usize| vec![format!("--{name}"), value.to_string()];
    let idle = keys.iter().map(|&keys| {
        let rounds = if keys == 1 { SINGLE_KEY_RECONCILES } else { MIN_RECONCILES.div_ceil(keys) };
        let arguments = [argument("rounds", rounds), argument("concurrency", 16)].concat();
        Row { title: format!("{keys} keys"), keys, arguments, measures_delay: false }
    });
    let outside = keys.iter().copied().filter(|keys| *keys == 1).map(|keys| {
        let arguments =
            [argument("rounds", SINGLE_KEY_RECONCILES), argument("concurrency", 16), vec!["--outside".to_owned()]]
                .concat();
        Row {
            title: "1 key, enqueued by a thread that runs no reconciles".into(),
            keys,
            arguments,
            measures_delay: false,
        }
    });
    // A larger number of keys would only prolong the rows with waits.
    let max_keys = keys.iter().copied().max().unwrap_or(1).min(10_000);
    let waiting = Row {
        title: format!("{max_keys} keys, each reconcile waits 10 ms, 1,000 at a time"),
        keys: max_keys,
        arguments: [argument("rounds", 5), argument("concurrency", 1000), argument("wait-us", 10_000)].concat(),
        measures_delay: false,
    };
    let changed = Row {
        title: format!("{max_keys} keys queued at the start, each reconcile waits 1 ms, 10 at a time"),
        keys: max_keys,
        arguments: [
            argument("changes-during-backlog", max_keys.min(100)),
            argument("concurrency", 10),
            argument("wait-us", 1000),
        ]
        .concat(),
        measures_delay: true,
    };
    let written = Row {
        title: format!("{max_keys} keys, each written {WRITES_PER_OBJECT} times by its reconciles, 16 at a time"),
        keys: max_keys,
        arguments: [argument("writes", WRITES_PER_OBJECT), argument("concurrency", 16)].concat(),
        measures_delay: false,
    };
    idle.chain(outside).chain([waiting, written, changed]).collect()
}

/// Runs a process to its end, and returns its output lines.
async fn run_to_end(command: &mut Command) -> Result<Vec<Value>, BenchError> {
    let mut child = command.stdout(std::process::Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("a process without a pipe")?).lines();
    let mut responses = Vec::new();
    while let Some(line) = lines.next_line().await? {
        responses.push(serde_json::from_str(&line)?);
    }
    let status = child.wait().await?;
    if status.success() { Ok(responses) } else { Err(format!("the program ended with {status}").into()) }
}
