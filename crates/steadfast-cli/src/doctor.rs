//! `steadfast doctor`: checks what informers need from a cluster. It does not check workloads.
//!
//! Each check is a file with one function, which returns findings. The checks run concurrently, each with a deadline. A
//! check that fails or exceeds its deadline does not affect the others.
//!
//! | module | responsibility |
//! |---|---|
//! | `finding`, `report` | the result of a check; the report of all checks |
//! | `context`, `requests` | the connection and resources of the checks; requests with limits |
//! | `addresses`, `certificates`, `proxies`, `protocol`, `clock` | the network path to the server |
//! | `authentication`, `permissions` | the user and its permissions |
//! | `streamed_lists`, `history`, `endpoints` | capabilities and consistency of the API servers |
//! | `conversion`, `aggregation` | backends of the API servers: conversion webhooks, aggregated APIs |
//! | `watch_sample` | short watches, for `bookmarks` and `hottest` |
//! | `list_sample` | pages of objects, for `sizes` and `largest` |

mod addresses;
mod aggregation;
mod authentication;
mod bookmarks;
mod certificates;
mod clock;
mod context;
mod conversion;
mod endpoints;
mod finding;
mod history;
mod hottest;
mod largest;
mod list_sample;
mod permissions;
mod protocol;
mod proxies;
mod report;
mod requests;
mod sizes;
mod streamed_lists;
mod watch_sample;

use std::fmt::Display;
use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, join_all};
use jiff::Timestamp;
use steadfast::Connection;
use steadfast::kube::Config;
use steadfast::unstable::catalog::{ServedResource, fetch_catalog};
use steadfast::unstable::cause::root_cause;
use tokio::time::{sleep, timeout};

use crate::cli::{DoctorArgs, Output};
use crate::clock::Clock;
use crate::connect::{ConfigSource, config_with_flags, files};
use crate::console::print;
use crate::discovery::{default_resources, find_all};
use crate::failure::Failure;
use crate::kubectl_flags::KubectlFlags;
use crate::signals::StopSignal;
use context::{CheckContext, VersionReply};
use finding::{Finding, FindingSeverity};
use report::CheckReport;

/// Deadline of a check, apart from the watches of the sample.
const CHECK_DEADLINE: Duration = Duration::from_secs(20);

/// Deadline of the first request, which opens the connection.
const FIRST_DEADLINE: Duration = Duration::from_secs(10);

/// Name of the finding about a failed discovery of the named resources.
const DISCOVERY_CHECK: &str = "discovery";

/// Name of the check of the first request.
const RESPONSE_CHECK: &str = "response";

/// Checks once, or repeatedly until requested to stop.
pub(crate) async fn run(args: DoctorArgs) -> Result<ExitCode, Failure> {
    let mut stop = StopSignal::listen()?;
    let mut earlier: Option<CheckReport> = None;
    loop {
        let report = tokio::select! {
            report = examine(&args) => report?,
            () = stop.received() => return Ok(earlier.map_or(ExitCode::SUCCESS, |report| exit_code(&args, &report))),
        };
        match (&args.output, &earlier) {
            (Output::Json, _) if args.watch => print(&format!("{}\n", report.json())),
            (Output::Json, _) => print(&format!("{:#}\n", report.json())),
            (Output::Text, None) => print(&report.text()),
            (Output::Text, Some(earlier)) => {
                let time = Clock::choose(false).format_time_of_day(report.time);
                let changes = report.changes_since(earlier);
                print(&changes.map_or_else(String::new, |changes| format!("\n{time}\n{changes}")))
            }
        }?;
        if !args.watch {
            return Ok(exit_code(&args, &report));
        }
        let pause = sleep(args.interval);
        tokio::select! {
            () = pause => {}
            () = stop.received() => return Ok(exit_code(&args, &report)),
        }
        earlier = Some(report);
    }
}

fn exit_code(args: &DoctorArgs, report: &CheckReport) -> ExitCode {
    let limit = if args.strict { FindingSeverity::Warning } else { FindingSeverity::Failure };
    if report.worst() >= limit { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs all checks.
async fn examine(args: &DoctorArgs) -> Result<CheckReport, Failure> {
    let (started, time) = (Instant::now(), Timestamp::now());
    let (config, source) = configuration(args).await?;
    let mut report = CheckReport {
        server: config.cluster_url.to_string(),
        source,
        namespace: args.namespace.clone(),
        time,
        duration: Duration::ZERO,
        findings: Vec::new(),
    };
    match connect(config.clone()).await {
        Ok(connection) => {
            connection.server().clone_into(&mut report.server);
            let context = CheckContext {
                config,
                connection,
                source: report.source.clone(),
                resources: default_resources(args.namespace.as_deref()),
                namespace: args.namespace.clone(),
                sample: args.sample,
                version: None,
                user_review: Arc::default(),
            };
            report.findings = checked(args, context).await?;
        }
        // A URL may contain credentials, so the server stays unnamed.
        Err(reason) => {
            "the server of the kubeconfig".clone_into(&mut report.server);
            report.findings = vec![Finding::failure(
                authentication::CHECK,
                &report.source,
                reason,
                "without a usable configuration, no request is sent",
                "correct the user and the cluster of this context in the kubeconfig, or run its credential plugin in a shell",
            )];
        }
    }
    report.duration = started.elapsed();
    Ok(report)
}

/// Returns the connection settings and their source.
async fn configuration(args: &DoctorArgs) -> Result<(Config, String), Failure> {
    let args = args.connection.clone();
    let read = tokio::task::spawn_blocking(move || {
        let (config, source) = config_with_flags(&args)?;
        let in_files = |entry: &str| {
            let files = files(args.kubeconfig.as_deref()).map_err(Failure::config)?;
            Ok::<_, Failure>(format!("{entry} of {files}"))
        };
        let source = match (source, &args.flags) {
            (ConfigSource::Kubeconfig(Some(context)), _) => in_files(&format!("context {context}"))?,
            (_, KubectlFlags { server: Some(server), .. }) => format!("--server {server}"),
            (_, KubectlFlags { cluster: Some(cluster), .. }) => in_files(&format!("cluster {cluster}"))?,
            _ => "service account of the pod".to_owned(),
        };
        Ok((config, source))
    });
    read.await.map_err(Failure::run)?
}

async fn connect(config: Config) -> Result<Connection, String> {
    // Blocks while a credential plugin runs.
    let built = tokio::task::spawn_blocking(move || Connection::builder(config).build());
    built.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

/// A check of the report.
struct Check {
    /// Names in the findings.
    names: &'static [&'static str],
    deadline: Duration,
    findings: BoxFuture<'static, Vec<Finding>>,
}

impl Check {
    /// Returns whether the check has a result if the server rejects the credentials.
    fn needs_no_permission(&self) -> bool {
        matches!(self.names, [authentication::CHECK])
    }

    /// Returns whether the check has a result if the resources are unknown. Dead aggregated APIs often break the
    /// discovery.
    fn needs_no_resources(&self) -> bool {
        matches!(self.names, [authentication::CHECK | aggregation::CHECK])
    }
}

/// Returns a check with the usual deadline. `check` is a function of the module with this name.
macro_rules! check {
    ($module:ident, $context:expr) => {{
        let context = $context.clone();
        let findings = Box::pin(async move { $module::check(&context).await });
        Check { names: &[$module::CHECK], deadline: CHECK_DEADLINE, findings }
    }};
}

async fn checked(args: &DoctorArgs, mut context: CheckContext) -> Result<Vec<Finding>, Failure> {
    let way = [check!(addresses, context), check!(certificates, context)];
    let (way, version) = futures::future::join(join_all(way.map(result)), first_response(&context)).await;
    let mut findings: Vec<Finding> = way.into_iter().flatten().collect();
    let reason = match version {
        Ok((version, finding)) => {
            let reason = (version.reply.status.as_u16() == 401).then_some("the credentials are rejected");
            context.version = Some(version);
            findings.push(finding);
            // These checks send no request: they evaluate the first response and its connection.
            findings.extend([protocol::check(&context), proxies::check(&context), clock::check(&context)].concat());
            reason
        }
        Err(finding) => {
            findings.push(finding);
            let (server, reason) = (context.connection.server(), "the server does not respond");
            let unchecked = [protocol::CHECK, proxies::CHECK, clock::CHECK];
            findings.extend(unchecked.map(|name| Finding::not_checked(name, server, reason)));
            Some(reason)
        }
    };
    let mut lacks_resources = false;
    if reason.is_none() {
        match resources(args, &context).await? {
            Ok(resources) => context.resources = resources,
            Err(finding) => {
                findings.push(finding);
                lacks_resources = true;
            }
        }
    }
    let reason = reason.or(lacks_resources.then_some("the discovery of the named resources failed"));
    let responds = context.version.is_some();
    let mut possible = Vec::new();
    for check in checks(&context) {
        let is_possible = responds && (check.needs_no_permission() || lacks_resources && check.needs_no_resources());
        match reason.filter(|_| !is_possible) {
            Some(reason) => {
                let server = context.connection.server();
                findings.extend(check.names.iter().map(|name| Finding::not_checked(name, server, reason)));
            }
            None => possible.push(result(check)),
        }
    }
    findings.extend(join_all(possible).await.into_iter().flatten());
    Ok(findings)
}

/// Returns the checks that send requests to the server.
fn checks(context: &CheckContext) -> Vec<Check> {
    let (watched, listed) = (context.clone(), context.clone());
    vec![
        check!(authentication, context),
        check!(permissions, context),
        check!(endpoints, context),
        check!(streamed_lists, context),
        check!(history, context),
        check!(conversion, context),
        check!(aggregation, context),
        Check {
            names: &[bookmarks::CHECK, hottest::CHECK],
            deadline: context.sample + CHECK_DEADLINE,
            findings: Box::pin(async move {
                let samples = watch_sample::collect(&watched).await;
                [bookmarks::findings(&samples, watched.sample), hottest::findings(&samples)].concat()
            }),
        },
        Check {
            names: &[sizes::CHECK, largest::CHECK],
            deadline: CHECK_DEADLINE,
            findings: Box::pin(async move {
                let samples = list_sample::collect(&listed).await;
                [sizes::findings(&samples), largest::findings(&samples)].concat()
            }),
        },
    ]
}

/// Runs a check until its deadline. A panic is confined to the check.
fn result(check: Check) -> impl Future<Output = Vec<Finding>> {
    let Check { names, deadline, findings } = check;
    async move {
        let missing = |reason: String| names.iter().map(|name| Finding::not_checked(name, "check", &reason)).collect();
        let mut running = tokio::spawn(findings);
        match timeout(deadline, &mut running).await {
            Ok(Ok(findings)) => findings,
            Ok(Err(error)) => missing(format!("the check ended unexpectedly: {error}; please report this as a bug")),
            Err(_) => {
                running.abort();
                missing(format!("no result within {} s", deadline.as_secs()))
            }
        }
    }
}

/// Sends the first request, whose response has the version of the server and its time.
async fn first_response(context: &CheckContext) -> Result<(VersionReply, Finding), Finding> {
    let (server, sent) = (context.connection.server(), Timestamp::now());
    match requests::get(&context.connection, "/version", FIRST_DEADLINE).await {
        Ok(reply) => {
            let received = Timestamp::now();
            let version = reply.json().ok().and_then(|version| Some(version["gitVersion"].as_str()?.to_owned()));
            let version = version.unwrap_or_else(|| format!("status {}", reply.status));
            let message = format!("{version}, first response after {:.0} ms", reply.elapsed.as_secs_f64() * 1e3);
            Ok((VersionReply { reply, sent, received }, Finding::ok(RESPONSE_CHECK, server, message)))
        }
        Err(error) => Err(Finding::failure(
            RESPONSE_CHECK,
            server,
            format!("no response to GET /version: {error}"),
            "no informer can list or watch",
            "see the checks reachability and certificates; check the API server and the proxies before it",
        )),
    }
}

/// Returns the resources of the command line, or the default ones; a finding if the discovery fails.
///
/// # Errors
///
/// Returns an error if the server does not serve a named resource.
async fn resources(args: &DoctorArgs, context: &CheckContext) -> Result<Result<Vec<ServedResource>, Finding>, Failure> {
    if args.resources.is_empty() {
        return Ok(Ok(default_resources(args.namespace.as_deref())));
    }
    let catalog = timeout(CHECK_DEADLINE, fetch_catalog(&context.connection.client())).await;
    let catalog = match catalog {
        Ok(Ok(catalog)) => catalog,
        Ok(Err(error)) => return Ok(Err(discovery_failure(context, &root_cause(&error)))),
        Err(_) => {
            let reason = format!("no result within {} s", CHECK_DEADLINE.as_secs());
            return Ok(Err(discovery_failure(context, &reason)));
        }
    };
    Ok(Ok(find_all(&catalog, &args.resources)?))
}

fn discovery_failure(context: &CheckContext, reason: &dyn Display) -> Finding {
    Finding::failure(
        DISCOVERY_CHECK,
        context.connection.server(),
        format!("the API groups cannot be listed: {reason}"),
        "clients cannot find the paths of resources by their names",
        "repair the API group that fails, often an aggregated API; or leave out the resources to check the default ones",
    )
}
