//! `steadfast notify`: acts on changes, as a configuration specifies.
//!
//! The crate `steadfast-notify` implements rules, sinks and mirrors. This module adds connections, signals and reports.
//!
//! | module | responsibility |
//! |---|---|
//! | `run` | acts until requested to stop; reloads its configuration when requested |
//! | `cluster` | the task of one cluster: connects, resolves the watched resources, attaches them |
//! | `connections` | connections for commands, and resolution of resource names |
//! | `follow` | the informers and handlers of the rules |
//! | `mirrors` | running mirrors, dry run, approvals |
//! | `freshness` | reports when caches become stale and fresh again |
//! | `reporter`, `metrics` | status and metrics for monitoring |
//! | `page` | the status as one HTML page |
//! | `status` | the command `status` |
//! | `replicas`, `shared` | several processes with one configuration: the election and the shared state |
//! | `catch_up` | when a new replica may become the leader |
//! | `rbac` | the permissions that the program needs |
//! | `check` | validation of a configuration |
//! | `commands` | `explain`, `schema`, `redrive` |

mod catch_up;
mod check;
mod cluster;
mod commands;
mod connections;
mod follow;
mod freshness;
mod metrics;
mod mirrors;
mod page;
mod rbac;
mod replicas;
mod reporter;
mod run;
mod shared;
mod status;

use std::process::ExitCode;

use crate::cli::{NotifyArgs, NotifyCommand};
use crate::failure::Failure;

/// Runs the subcommand of the command line, or acts on changes.
pub(crate) async fn run(args: NotifyArgs) -> Result<ExitCode, Failure> {
    match args.command {
        // The parser requires `--config` without a subcommand, so the default path is never used.
        None if args.dry_run => mirrors::dry_run(&args.config.unwrap_or_default()).await,
        None => run::run(args).await,
        Some(NotifyCommand::Check { config, online }) => check::check(&config, online).await,
        Some(NotifyCommand::Explain { config, object, namespace, cluster, embedded }) => {
            let target = commands::ExplainTarget { object, namespace, cluster, embedded };
            commands::explain(&config, target).await
        }
        Some(NotifyCommand::Approve { config, sink, id }) => {
            mirrors::approve(&config, sink.as_deref(), id.as_deref()).await
        }
        Some(NotifyCommand::Rbac { config, namespace, embedded }) => rbac::rbac(&config, &namespace, embedded).await,
        Some(NotifyCommand::Status { config, output }) => status::status(&config, output).await,
        Some(NotifyCommand::Schema) => commands::schema(),
        Some(NotifyCommand::Redrive { config, sink }) => commands::redrive(&config, sink.as_deref()).await,
    }
}
