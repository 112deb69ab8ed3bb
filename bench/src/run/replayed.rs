//! The rounds over the replaying server, at one size.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;
use tokio::time::sleep;

use super::contestant::{ALL, Contestant};
use super::outcome::Outcomes;
use super::process::{Process, control};
use crate::Trouble;

/// One size.
pub(super) struct Plan<'a> {
    pub(super) size: usize,
    pub(super) rounds: usize,
    /// How many events follow the sync; none at all where this is 0, nor anything else.
    pub(super) events: usize,
    pub(super) only: Option<&'a str>,
}

/// How long memory may settle.
const SETTLE: Duration = Duration::from_secs(1);
/// How many changes a second the latency is measured at, and how many there are.
const LATENCY: (usize, usize) = (1_000, 3_000);
/// How many changes a second reads compete with, for how many seconds.
const WRITES: (usize, usize) = (20_000, 2);
/// The part of the objects that changes before a relist: one in so many.
const RELISTED: usize = 100;

/// Runs all contestants in turn, as often as there are rounds, beginning with another one each time.
pub(super) async fn run(
    plan: &Plan<'_>,
    out: &Path,
    data: &Path,
    go: &Path,
    outcomes: &mut Outcomes,
) -> Result<(), Trouble> {
    let kubeconfig = out.join("kubeconfig");
    let mut serve = Command::new(std::env::current_exe()?);
    serve.arg("serve").arg("--count").arg(plan.size.to_string()).arg("--data").arg(data);
    serve.arg("--kubeconfig").arg(&kubeconfig);
    let mut server = Process::start(serve)?;
    let address = server.line().await?;
    let chosen: Vec<&Contestant> =
        ALL.iter().filter(|contestant| plan.only.is_none_or(|part| contestant.name.contains(part))).collect();
    for round in 0..plan.rounds {
        for place in 0..chosen.len() {
            let contestant = chosen[(place + round) % chosen.len()];
            eprintln!("round {} of {}, {} objects: {}", round + 1, plan.rounds, plan.size, contestant.name);
            let client = Process::start(contestant.command(go, &kubeconfig, plan.size)?)?;
            let session = Session { plan, contestant, client, address: &address, outcomes };
            if let Err(error) = session.run().await {
                // One that fails is no reason to lose the others' figures, and none to hide that it did.
                eprintln!("{} with {} objects, round {}: {error}", contestant.name, plan.size, round + 1);
                outcomes.failed(contestant.name, plan.size, &error.to_string());
            }
        }
    }
    Ok(())
}

struct Session<'a> {
    plan: &'a Plan<'a>,
    contestant: &'a Contestant,
    client: Process,
    address: &'a str,
    outcomes: &'a mut Outcomes,
}

impl Session<'_> {
    async fn run(mut self) -> Result<(), Trouble> {
        let synced = self.client.answer("synced").await?;
        self.note("sync", "s", &synced["seconds"]);
        self.note("sync, processor", "s", &synced["cpu"]);
        let fields = self.client.ask("fields").await?;
        self.note("read a field of each", "s", &fields["seconds"]);
        sleep(SETTLE).await;
        let memory = self.client.ask("memory").await?;
        let per_object =
            |figure: &Value| Value::from(figure.as_f64().unwrap_or_default() / self.plan.size as f64 / 1e3);
        let (settled, peak) = (per_object(&memory["resident"]), per_object(&memory["peak"]));
        self.note("resident", "KB an object", &settled);
        self.note("resident, peak of the sync", "KB an object", &peak);
        if self.plan.events == 0 {
            return Ok(());
        }
        let events = self.after(&format!("burst {}", self.plan.events)).await?;
        let seconds = events["seconds"].as_f64().unwrap_or(f64::NAN);
        self.note("events", "a second", &Value::from(self.plan.events as f64 / seconds));
        let each = events["cpu"].as_f64().unwrap_or(f64::NAN) / self.plan.events as f64 * 1e6;
        self.note("processor an event", "µs", &Value::from(each));
        let memory = self.client.ask("memory").await?;
        let after = per_object(&memory["resident"]);
        self.note("resident, after the events", "KB an object", &after);
        let latency = self.after(&format!("paced {} {}", LATENCY.1, LATENCY.0)).await?;
        self.note("write to handler, p50", "µs", &latency["p50_us"]);
        self.note("write to handler, p99", "µs", &latency["p99_us"]);
        self.reads().await?;
        self.relist().await
    }

    /// Reads while others write.
    async fn reads(&mut self) -> Result<(), Trouble> {
        let (rate, seconds) = WRITES;
        let end = control(self.address, &format!("paced {} {rate}", rate * (seconds + 1))).await?;
        let reads = self.client.ask(&format!("reads {seconds}")).await?;
        for (name, unit, key) in [
            ("reads beside writes", "a second", "per_second"),
            ("get, p50", "ns", "get_p50_ns"),
            ("get, p99", "ns", "get_p99_ns"),
            ("list a namespace, p50", "µs", "list_p50_us"),
            ("list a namespace, p99", "µs", "list_p99_us"),
        ] {
            self.note(name, unit, &reads[key]);
        }
        self.client.tell(&format!("until {end}")).await?;
        self.client.answer("armed").await?;
        self.client.answer("until").await.map(drop)
    }

    /// A relist, and the most memory that it took.
    async fn relist(&mut self) -> Result<(), Trouble> {
        sleep(SETTLE).await;
        self.client.ask("reset-peak").await?;
        let before = self.client.ask("memory").await?["resident"].as_f64().unwrap_or(f64::NAN);
        let relist = self.after(&format!("expire {}", self.plan.size.div_ceil(RELISTED))).await?;
        self.note("relist, processor", "s", &relist["cpu"]);
        let peak = self.client.ask("memory").await?["peak"].as_f64().unwrap_or(f64::NAN);
        self.note("relist, peak to settled", "times", &Value::from(peak / before));
        Ok(())
    }

    /// Tells the server `line`, and waits until the client has seen all that comes of it.
    async fn after(&mut self, line: &str) -> Result<Value, Trouble> {
        let what = line.split(' ').next().unwrap_or(line);
        let count: u64 = line.split(' ').nth(1).unwrap_or_default().parse()?;
        let end = control(self.address, "burst 0").await? + count;
        self.client.tell(&format!("until {end}")).await?;
        self.client.answer("armed").await?;
        let reached = control(self.address, line).await?;
        if reached != end {
            return Err(format!("after {what} the version is {reached}, not {end}").into());
        }
        self.client.answer("until").await
    }

    fn note(&mut self, what: &'static str, unit: &'static str, value: &Value) {
        if let Some(value) = value.as_f64().filter(|value| value.is_finite()) {
            self.outcomes.add(self.contestant, self.plan.size, what, unit, value);
        }
    }
}
