//! `steadfast audit`: continuously checks each API server endpoint.
//!
//! The crate `steadfast-audit` implements the checks. This module adds connections, output and metrics.
//!
//! | module | responsibility |
//! |---|---|
//! | `endpoints` | connections to the audited endpoints |
//! | `report` | one line for each start and end of a finding |
//! | `status`, `metrics` | health and metrics for monitoring |

mod endpoints;
mod metrics;
mod report;
mod status;

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kube::Resource;
use kube::core::DynamicObject;
use steadfast::unstable::catalog::ServedResource;
use steadfast_audit::{Audit, AuditEndpoint, AuditResource, AuditSettings};
use steadfast_notify::Supervisor;
use tokio::time::{interval, sleep, timeout};

use crate::cli::AuditArgs;
use crate::connect::connect;
use crate::failure::Failure;
use crate::signals::StopSignal;
use crate::{console, discovery, endpoint, fleet};
use report::FindingSink;
use status::AuditStatus;

/// Maximum number of resources, which bounds requests, memory and metrics.
const MAX_RESOURCES: usize = 64;

/// Maximum time for writing pending findings at the end.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// Interval of the check that the audit still runs.
const ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Audits until requested to stop, or until the end of `--for`.
pub(crate) async fn run(args: AuditArgs) -> Result<ExitCode, Failure> {
    let mut stop = StopSignal::listen()?;
    let status = AuditStatus::default();
    if let Some(address) = args.metrics {
        endpoint::serve(address, status.clone(), &Supervisor::new(Arc::new(console::report)))?;
    }
    let (sink, writer) = report::queue(args.output);
    let started = writer.started_count();
    let mut writing = tokio::spawn(writer.run());
    tokio::select! {
        failed = audit(&args, &status, sink) => match failed? {},
        written = &mut writing => written.map_err(Failure::run)??,
        () = stop.received() => {}
        () = time_limit(args.lasts) => {}
    }
    status.end();
    if !writing.is_finished() {
        // The writer ends when the audit has dropped its sink.
        if let Ok(written) = timeout(OUTPUT_GRACE, writing).await {
            written.map_err(Failure::run)??;
        }
    }
    let findings = started.load(Ordering::Relaxed);
    console::report(format_args!("end of the audit; findings: {findings}"));
    Ok(if args.lasts.is_some() && findings > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn time_limit(lasts: Option<Duration>) {
    match lasts {
        Some(lasts) => sleep(lasts).await,
        None => std::future::pending().await,
    }
}

/// Starts the audit, and returns only a failure.
async fn audit(args: &AuditArgs, status: &AuditStatus, sink: FindingSink) -> Result<Infallible, Failure> {
    // The value is kept until the end, because dropping it stops the embedded server.
    let fleet = if args.embedded { Some(fleet::Fleet::start(None).await?) } else { None };
    let endpoints = match &fleet {
        Some(fleet) => {
            vec![AuditEndpoint { name: "embedded server".to_owned(), connection: fleet.connect().await? }]
        }
        None => endpoints::connect(args).await?,
    };
    let resources = resources(args, &endpoints).await?;
    let addresses: Vec<&str> = endpoints.iter().map(|endpoint| endpoint.name.as_str()).collect();
    let names: Vec<&str> = resources.iter().map(|resource| resource.name.as_str()).collect();
    console::report(format_args!("auditing {} on {}", names.join(", "), addresses.join(", ")));
    let mut settings = AuditSettings::default();
    settings.period = args.period;
    settings.seed = RandomState::new().hash_one(std::process::id());
    let connections = endpoints.iter().map(|endpoint| endpoint.connection.clone()).collect();
    let audit = Audit::start(endpoints, resources, settings, move |finding| sink.accept(finding));
    status.begin(audit, connections);
    let mut ticks = interval(ALIVE_INTERVAL);
    while !status.has_ended() {
        ticks.tick().await;
    }
    Err(Failure::run("the audit ended unexpectedly; please report this as a bug"))
}

/// Returns the resources of the command line, or the default ones.
async fn resources(args: &AuditArgs, endpoints: &[AuditEndpoint]) -> Result<Vec<AuditResource>, Failure> {
    if args.resources.is_empty() {
        // Few programs cache Events, which change often.
        let resources = discovery::default_resources(None);
        let audited_resources = resources.iter().filter(|resource| resource.api_resource.plural != "events");
        return Ok(audited_resources.map(audited).collect());
    }
    let connection = match endpoints {
        [endpoint] => endpoint.connection.clone(),
        // One endpoint may be frozen from the start. The discovery therefore uses a connection that can select among
        // all addresses.
        _ => connect(args.connection.clone()).await?,
    };
    let catalog = discovery::catalog(&connection, None).await?;
    let found = discovery::find_all(&catalog, &args.resources)?;
    if found.len() > MAX_RESOURCES {
        return Err(Failure::usage(format!("{} resources; at most {MAX_RESOURCES} can be audited", found.len())));
    }
    Ok(found.iter().map(audited).collect())
}

fn audited(resource: &ServedResource) -> AuditResource {
    AuditResource { name: resource.to_string(), path: DynamicObject::url_path(&resource.api_resource, None) }
}
