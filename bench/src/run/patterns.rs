//! CPU time and memory of cache reads with different access patterns: a loop over all objects, reads of the same
//! hundredth of the objects, and reads of random objects. Also the sync and the events, with a handler that reads one
//! field of each object.
//!
//! All times are CPU time of the client, so that other programs on the machine affect them little.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;
use tokio::time::sleep;

use super::client_variant::{self, ClientVariant};
use super::number::format_number;
use super::process::{Process, send_control};
use super::workspace::Workspace;
use crate::BenchError;
use crate::median::median;

/// Settings of the comparison.
#[derive(clap::Args)]
pub(crate) struct PatternsArgs {
    /// Number of objects
    #[arg(long, default_value_t = 20_000)]
    objects: usize,
    /// Number of runs; the table has medians
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Client, by its name in the tables
    #[arg(long, default_value = "steadfast, protobuf, streamed")]
    client: String,
    /// Additional arguments of the client: one more column shows the client with these arguments
    #[arg(long, value_delimiter = ' ', allow_hyphen_values = true)]
    added_arguments: Vec<String>,
    /// Benchmark program of an earlier commit, for one more column
    #[arg(long)]
    earlier: Option<PathBuf>,
    /// Seconds to wait after the last read of each access pattern; the memory after this wait is one more row
    #[arg(long, default_value_t = 0)]
    idle: u64,
    /// Seed of the generated data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder of the data
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

/// Time for memory to settle, which includes the drop of unused objects.
const SETTLE: Duration = Duration::from_secs(3);

/// Access patterns. Each has the three steps `first`, `second` and `later`, with these numbers of reads, in tenths of
/// the number of objects. Three steps are necessary because the first two passes decode objects.
const ACCESS_PATTERNS: [(&str, [usize; 3]); 3] =
    [("all", [10, 10, 90]), ("hot", [1, 1, 100]), ("random", [10, 10, 90])];

/// Figures of all runs, by number of the column and name of the figure.
type PatternFigures = BTreeMap<(usize, String), Vec<f64>>;

/// Runs the programs in turn, and prints a table.
pub(crate) async fn run(args: PatternsArgs) -> Result<(), BenchError> {
    let workspace = Workspace::prepare(&args.out, args.seed, args.earlier.clone()).await?;
    let variant = client_variant::client_named(&args.client)?;
    let data = workspace.generate(args.objects).await?;
    let kubeconfig = workspace.out.join("kubeconfig-patterns");
    let (_server, address) = Process::serve(args.objects, &data, &kubeconfig).await?;
    let mut columns = vec![Column { title: "this commit".to_owned(), program: None, extra: Vec::new() }];
    if !args.added_arguments.is_empty() {
        let title = args.added_arguments.join(" ");
        columns.push(Column { title, program: None, extra: args.added_arguments.clone() });
    }
    if let Some(earlier) = &args.earlier {
        columns.push(Column { title: "earlier".to_owned(), program: Some(earlier.clone()), extra: Vec::new() });
    }
    let mut run =
        PatternsRun { workspace, variant, objects: args.objects, kubeconfig, address, figures: PatternFigures::new() };
    for round in 0..args.runs.max(1) {
        for step in 0..columns.len() {
            // Another program starts each round, so that no program always has the same predecessor.
            let number = (step + round) % columns.len();
            run.workspace.say(&format!("run {} of {}: {}", round + 1, args.runs, columns[number].title));
            run.events(number, &columns[number]).await?;
            for (pattern, steps) in ACCESS_PATTERNS {
                run.reads(number, &columns[number], pattern, steps, args.idle).await?;
            }
        }
    }
    println!("{}", run.table(&columns)?);
    Ok(())
}

/// Column of the table: a program with additional arguments.
struct Column {
    title: String,
    /// Program of an earlier commit, or `None` for this program.
    program: Option<PathBuf>,
    extra: Vec<String>,
}

struct PatternsRun {
    workspace: Workspace,
    variant: &'static ClientVariant,
    objects: usize,
    kubeconfig: PathBuf,
    address: String,
    figures: PatternFigures,
}

impl PatternsRun {
    async fn start(&mut self, number: usize, column: &Column) -> Result<Process, BenchError> {
        let mut programs = self.workspace.programs.clone();
        if let Some(program) = &column.program {
            programs.current.clone_from(program);
        }
        let mut command: Command = self.variant.command(&programs, &self.kubeconfig, self.objects)?;
        command.args(&column.extra);
        let mut client = Process::start(command)?;
        let synced = client.expect_response("synced").await?;
        self.note(number, "sync (processor, s)", &synced["cpu"], 1.0);
        sleep(SETTLE).await;
        Ok(client)
    }

    /// Measures the memory after a sync, and events.
    async fn events(&mut self, number: usize, column: &Column) -> Result<(), BenchError> {
        let mut client = self.start(number, column).await?;
        self.memory(number, "after the sync", &client.request("memory").await?);
        let count = self.objects;
        let end = send_control(&self.address, "burst 0").await? + count as u64;
        client.send(&format!("until {end}")).await?;
        client.expect_response("armed").await?;
        send_control(&self.address, &format!("burst {count}")).await?;
        let burst = client.expect_response("until").await?;
        self.note(number, "event (processor, µs)", &burst["cpu"], 1e6 / count as f64);
        sleep(SETTLE).await;
        self.memory(number, "after the events", &client.request("memory").await?);
        Ok(())
    }

    /// Measures reads with one access pattern: the first reads, later reads, and the memory during and after them.
    async fn reads(
        &mut self,
        number: usize,
        column: &Column,
        pattern: &str,
        steps: [usize; 3],
        idle: u64,
    ) -> Result<(), BenchError> {
        let mut client = self.start(number, column).await?;
        for (step, tenths) in ["first", "second", "later"].into_iter().zip(steps) {
            let reads = (self.objects * tenths / 10).max(1);
            let visit = client.request(&format!("visit {pattern} {reads}")).await?;
            self.note(number, &format!("{pattern}: {step} reads (processor, µs each)"), &visit["read_ns"], 1e-3);
            self.memory(number, &format!("{pattern}: after {step} reads"), &visit);
        }
        if idle > 0 {
            sleep(Duration::from_secs(idle)).await;
            self.memory(number, &format!("{pattern}: {idle} s later"), &client.request("memory").await?);
        }
        Ok(())
    }

    fn memory(&mut self, number: usize, when: &str, memory: &Value) {
        let each = 1e-3 / self.objects as f64;
        self.note(number, &format!("{when} (KB an object)"), &memory["resident"], each);
        self.note(number, &format!("{when}, peak (KB an object)"), &memory["peak"], each);
    }

    fn note(&mut self, number: usize, what: &str, value: &Value, factor: f64) {
        let value = value.as_f64().unwrap_or(f64::NAN) * factor;
        self.figures.entry((number, what.to_owned())).or_default().push(value);
    }

    fn table(&self, columns: &[Column]) -> Result<String, BenchError> {
        let titles: Vec<&str> = columns.iter().map(|column| &*column.title).collect();
        let mut table = format!("| | {} |\n|---{}|\n", titles.join(" | "), "|---".repeat(titles.len()));
        // The first program has every figure, since all programs run the same steps.
        for (_, what) in self.figures.keys().filter(|(number, _)| *number == 0) {
            write!(table, "| {what} |")?;
            for number in 0..columns.len() {
                let runs = self.figures.get(&(number, what.clone())).ok_or("a program has no such figure")?;
                let (least, most) = runs
                    .iter()
                    .fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| (low.min(*value), high.max(*value)));
                let median = median(runs, |value| *value);
                let [median, least, most] = [median, least, most].map(format_number);
                write!(table, " {median} ({least} to {most}) |")?;
            }
            table.push('\n');
        }
        Ok(table)
    }
}
