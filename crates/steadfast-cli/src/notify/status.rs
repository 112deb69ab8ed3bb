//! `status`: prints the state of the program that acts by a configuration, or of its state folder.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use steadfast_notify::engine_event::escaped;
use steadfast_notify::{Plan, state};
use tokio::time::timeout;

use crate::cli::Output;
use crate::console::print;
use crate::exchange::exchange;
use crate::failure::Failure;

/// Timeout of the request to the running program.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// Prints the status.
pub(super) async fn status(file: &Path, output: Output) -> Result<ExitCode, Failure> {
    let plan = Plan::load(file).map_err(Failure::config)?;
    let acting = state::acting(&plan.state).map_err(|error| cannot(&plan, &error))?;
    let remembered = state::remembered(&plan.state).map_err(|error| cannot(&plan, &error))?;
    let letters = match std::fs::read_to_string(&plan.dead_letters) {
        Ok(text) => text.lines().count(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(error) => return Err(Failure::run(format!("{}: {error}", plan.dead_letters.display()))),
    };
    let asks = remembered.all_asks();
    let mut told = json!({"acting": acting.as_ref().map(|(who, _)| who), "dead_letters": letters, "asks": asks});
    // Only a process with `--metrics` has recorded an address.
    if let Some((_, Some(address))) = acting {
        told["now"] = ask(address).await?;
    }
    match output {
        Output::Json => print(&format!("{told:#}\n")),
        Output::Text => print(&words(&told)),
    }
}

fn cannot(plan: &Plan, error: &std::io::Error) -> Failure {
    Failure::run(format!("{}: {error}; this is the state folder of the configuration", plan.state.display()))
}

async fn ask(address: SocketAddr) -> Result<Value, Failure> {
    let wrong = |why: String| Failure::run(format!("the status of the program at {address} cannot be read: {why}"));
    let request = format!("GET /status HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    // The peer is the process that recorded this address in the state folder, so its response has no size limit.
    let response = timeout(STATUS_TIMEOUT, exchange(address, &request, u64::MAX)).await;
    let response = response.map_err(|_| wrong(format!("no response within {} s", STATUS_TIMEOUT.as_secs())))?;
    let response = response.map_err(|error| wrong(error.to_string()))?;
    let body = response.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).map_err(|error| wrong(error.to_string()))
}

/// Formats the status as text.
fn words(told: &Value) -> String {
    let mut text = match told["acting"].as_str() {
        Some(who) if told["now"].is_null() => {
            format!("{who} acts by this configuration; start it with --metrics for details\n")
        }
        Some(who) => format!("{who} acts by this configuration\n"),
        None => "no process acts by this configuration\n".to_owned(),
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let now = &told["now"];
    if let Some(role) = now["replica"]["role"].as_str() {
        let (since, replica) = (now["replica"]["since_seconds"].as_f64().unwrap_or_default(), &now["replica"]);
        let holder = replica["holder"].as_str().map_or("no replica".to_owned(), escaped);
        let why = replica["failing"].as_str().map(|why| format!("; {}", escaped(why))).unwrap_or_default();
        let _ = writeln!(text, "{role} for {since:.1} s; the lease is held by {holder}{why}");
    }
    if now["changes"].is_u64() {
        let _ = writeln!(
            text,
            "{} changes evaluated, {} sent, {} not resent because they were unchanged",
            now["changes"], now["fired"], now["unchanged"]
        );
    }
    for (rule, times) in now["failed"].as_object().into_iter().flatten() {
        let _ = writeln!(text, "rule {rule}: could not be evaluated {times} times");
    }
    for cluster in list(&now["clusters"]) {
        let of = name(&cluster["cluster"]);
        if let (Some(why), Some(since)) = (cluster["why"].as_str(), cluster["since_seconds"].as_f64()) {
            let _ = writeln!(text, "cluster {of}: {} for {since:.1} s: {why}", name(&cluster["state"]));
        } else {
            let _ = writeln!(text, "cluster {of}: {}", name(&cluster["state"]));
        }
        for missing in list(&cluster["missing"]) {
            let (rule, resource, why) = (name(&missing["rule"]), name(&missing["resource"]), name(&missing["why"]));
            let _ = writeln!(text, "rule {rule}: {resource} of {of}: missing: {why}");
        }
    }
    for (task, times) in now["restarts"].as_object().into_iter().flatten().filter(|(_, times)| **times != 0) {
        let _ = writeln!(text, "task {task}: ended unexpectedly {times} times, and was restarted");
    }
    for source in list(&now["sources"]) {
        let why =
            source["why"].as_str().filter(|why| !why.is_empty()).map(|why| format!(": {why}")).unwrap_or_default();
        let at = source["version"].as_str().map(|version| format!(" at {version}")).unwrap_or_default();
        let (rule, of, state) = (name(&source["rule"]), name(&source["of"]), name(&source["state"]));
        let _ = writeln!(text, "rule {rule}: {of}: {state}{at}{why}");
    }
    for sink in list(&now["sinks"]) {
        let (delivered, dead, waiting) = (&sink["delivered"], &sink["dead_letters"], &sink["waiting"]);
        let oldest = sink["oldest_seconds"].as_f64().map(|oldest| format!(", the oldest for {oldest:.1} s"));
        let oldest = oldest.unwrap_or_default();
        let _ = writeln!(
            text,
            "sink {}: {delivered} delivered, {waiting} waiting{oldest}, {dead} dead letters",
            name(&sink["sink"])
        );
        for (namespace, held) in sink["held"].as_object().into_iter().flatten() {
            let namespace = escaped(namespace);
            let _ = writeln!(
                text,
                "  {held} changes of namespace {namespace} are held back: the namespace has reached its share of the queue"
            );
        }
        if let Some(paused) = sink["paused_seconds"].as_f64() {
            let _ = writeln!(text, "  paused for another {paused:.0} s: the receiver limits its requests");
        }
        if let Some(why) = sink["failing"].as_str() {
            let _ = writeln!(text, "  failing: {}", escaped(why));
        }
    }
    for mirror in list(&now["mirrors"]) {
        let seen = mirror["seen_seconds"].as_f64().map(|seen| format!(", seen {seen:.1} s ago")).unwrap_or_default();
        let (entries, kept, how) = (&mirror["entries"], &mirror["kept"], escaped(&name(&mirror["why"])));
        let mirror_name = name(&mirror["mirror"]);
        let _ = writeln!(text, "mirror {mirror_name}: {how}{seen}; {entries} entries, {kept} left alone");
        for (entry, why) in mirror["left_alone"].as_object().into_iter().flatten() {
            let _ = writeln!(text, "  {} is left alone: {}", escaped(entry), escaped(&name(why)));
        }
    }
    for (mirror, asks) in told["asks"].as_object().into_iter().flatten() {
        for ask in list(asks) {
            let names = list(&ask["names"]).iter().map(name).collect::<Vec<_>>().join(", ");
            let (id, group, of) = (name(&ask["id"]), name(&ask["group"]), &ask["of"]);
            let _ = writeln!(
                text,
                "mirror {mirror}: removing {} (of {of} entries of {group:?}) needs approval: `steadfast notify approve -c FILE {mirror} {id}`",
                escaped(&names)
            );
        }
    }
    if told["dead_letters"] != 0 {
        let _ = writeln!(text, "{} dead letters: `steadfast notify redrive` tries them again", told["dead_letters"]);
    }
    text
}
