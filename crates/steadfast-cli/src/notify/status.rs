//! `status`: prints the state of the program that runs a configuration, or of its state folder.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use steadfast_notify::engine_event::escaped;
use steadfast_notify::{Plan, state_folder};
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
    let lock_holder =
        state_folder::lock_holder(&plan.state_folder).map_err(|error| state_folder_error(&plan, &error))?;
    let mirror_memory =
        state_folder::read_mirror_memory(&plan.state_folder).map_err(|error| state_folder_error(&plan, &error))?;
    let dead_letters = match std::fs::read_to_string(&plan.dead_letters) {
        Ok(text) => text.lines().count(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(error) => return Err(Failure::run(format!("{}: {error}", plan.dead_letters.display()))),
    };
    let pending_approvals = mirror_memory.approvals();
    let acting_process = lock_holder.as_ref().map(|(process, _)| process);
    let mut status = json!({
        "acting": acting_process, "dead_letters": dead_letters, "pending_approvals": pending_approvals,
    });
    // Only a process with `--metrics` has recorded an address.
    if let Some((_, Some(address))) = lock_holder {
        status["now"] = request_status(address).await?;
    }
    match output {
        Output::Json => print(&format!("{status:#}\n")),
        Output::Text => print(&status_text(&status)),
    }
}

fn state_folder_error(plan: &Plan, error: &std::io::Error) -> Failure {
    Failure::run(format!("{}: {error}; this is the state folder of the configuration", plan.state_folder.display()))
}

async fn request_status(address: SocketAddr) -> Result<Value, Failure> {
    let status_error =
        |reason: String| Failure::run(format!("the status of the program at {address} cannot be read: {reason}"));
    let request = format!("GET /status HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    // The peer is the process that recorded this address in the state folder, so its response has no size limit.
    let response = timeout(STATUS_TIMEOUT, exchange(address, &request, u64::MAX)).await;
    let response = response.map_err(|_| status_error(format!("no response within {} s", STATUS_TIMEOUT.as_secs())))?;
    let response = response.map_err(|error| status_error(error.to_string()))?;
    let body = response.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).map_err(|error| status_error(error.to_string()))
}

/// Formats the status as text.
fn status_text(status: &Value) -> String {
    let mut text = match status["acting"].as_str() {
        Some(process) if status["now"].is_null() => {
            format!("{process} runs this configuration; start it with --metrics for details\n")
        }
        Some(process) => format!("{process} runs this configuration\n"),
        None => "no process runs this configuration\n".to_owned(),
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let now = &status["now"];
    if let Some(role) = now["replica"]["role"].as_str() {
        let (since, replica) = (now["replica"]["since_seconds"].as_f64().unwrap_or_default(), &now["replica"]);
        let holder = replica["holder"].as_str().map_or("no replica".to_owned(), escaped);
        let reason = replica["failing"].as_str().map(|reason| format!("; {}", escaped(reason))).unwrap_or_default();
        let _ = writeln!(text, "{role} for {since:.1} s; the lease is held by {holder}{reason}");
    }
    if now["changes"].is_u64() {
        let _ = writeln!(
            text,
            "{} changes evaluated, {} sent, {} not resent because they were unchanged",
            now["changes"], now["messages"], now["unchanged"]
        );
    }
    for (rule, times) in now["failed"].as_object().into_iter().flatten() {
        let _ = writeln!(text, "rule {rule}: could not be evaluated {times} times");
    }
    for cluster in list(&now["clusters"]) {
        let cluster_name = name(&cluster["cluster"]);
        if let (Some(reason), Some(since)) = (cluster["reason"].as_str(), cluster["since_seconds"].as_f64()) {
            let _ = writeln!(text, "cluster {cluster_name}: {} for {since:.1} s: {reason}", name(&cluster["state"]));
        } else {
            let _ = writeln!(text, "cluster {cluster_name}: {}", name(&cluster["state"]));
        }
        for missing in list(&cluster["missing"]) {
            let (rule, resource, reason) =
                (name(&missing["rule"]), name(&missing["resource"]), name(&missing["reason"]));
            let _ = writeln!(text, "rule {rule}: {resource} of {cluster_name}: missing: {reason}");
        }
    }
    for (task, times) in now["restarts"].as_object().into_iter().flatten().filter(|(_, times)| **times != 0) {
        let _ = writeln!(text, "task {task}: ended unexpectedly {times} times, and was restarted");
    }
    for source in list(&now["sources"]) {
        let reason = source["reason"]
            .as_str()
            .filter(|reason| !reason.is_empty())
            .map(|reason| format!(": {reason}"))
            .unwrap_or_default();
        let version_suffix = source["version"].as_str().map(|version| format!(" at {version}")).unwrap_or_default();
        let (rule, description, state) = (name(&source["rule"]), name(&source["of"]), name(&source["state"]));
        let _ = writeln!(text, "rule {rule}: {description}: {state}{version_suffix}{reason}");
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
        for (namespace, throttled) in sink["throttled"].as_object().into_iter().flatten() {
            let namespace = escaped(namespace);
            let _ = writeln!(
                text,
                "  {throttled} changes of namespace {namespace} are throttled: the namespace has reached its share of the queue"
            );
        }
        if let Some(paused) = sink["paused_seconds"].as_f64() {
            let _ = writeln!(text, "  paused for another {paused:.0} s: the receiver limits its requests");
        }
        if let Some(reason) = sink["failing"].as_str() {
            let _ = writeln!(text, "  failing: {}", escaped(reason));
        }
    }
    for mirror in list(&now["mirrors"]) {
        let last_read = mirror["last_read_seconds"].as_f64();
        let last_read = last_read.map(|seconds| format!(", read {seconds:.1} s ago")).unwrap_or_default();
        let (entries, skipped, state) = (&mirror["entries"], &mirror["skipped"], escaped(&name(&mirror["reason"])));
        let mirror_name = name(&mirror["mirror"]);
        let _ = writeln!(text, "mirror {mirror_name}: {state}{last_read}; {entries} entries, {skipped} skipped");
        for (entry, reason) in mirror["skipped_entries"].as_object().into_iter().flatten() {
            let _ = writeln!(text, "  {} is skipped: {}", escaped(entry), escaped(&name(reason)));
        }
    }
    for (mirror, requests) in status["pending_approvals"].as_object().into_iter().flatten() {
        for request in list(requests) {
            let names = list(&request["names"]).iter().map(name).collect::<Vec<_>>().join(", ");
            let (id, group, serving) = (name(&request["id"]), name(&request["group"]), &request["of"]);
            let _ = writeln!(
                text,
                "mirror {mirror}: removing {} (of {serving} entries of {group:?}) needs approval: `steadfast notify approve -c FILE {mirror} {id}`",
                escaped(&names)
            );
        }
    }
    if status["dead_letters"] != 0 {
        let _ = writeln!(text, "{} dead letters: `steadfast notify redrive` tries them again", status["dead_letters"]);
    }
    text
}
