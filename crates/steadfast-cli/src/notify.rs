//! `steadfast notify`: acts on changes, by a configuration.
//!
//! What it does is the crate `steadfast-notify`; here is what belongs to a program: connections, signals, what is told.
//!
//! | room | what it is |
//! |---|---|
//! | `run` | acts until requested to stop; reads its configuration anew when requested |
//! | `cluster` | one cluster at work: connects, resolves what rules watch, attaches it |
//! | `places` | the clusters of a configuration for commands, and what its names mean there |
//! | `follow` | what rules watch |
//! | `mirrors` | the mirrors of a configuration at work; what they would do; approvals |
//! | `doubts` | what rules look at, in doubt and fresh again |
//! | `standing`, `figures` | how things stand, for a monitor |
//! | `page` | the status as one HTML page |
//! | `status` | the same for who asks |
//! | `replicas`, `shared` | several processes by one configuration: the election, and the state that they share |
//! | `rbac` | what the program has to be allowed |
//! | `check` | all mistakes of a configuration at once |
//! | `commands` | `explain`, `schema`, `redrive` |

mod catch_up;
mod check;
mod cluster;
mod commands;
mod doubts;
mod figures;
mod follow;
mod mirrors;
mod page;
mod places;
mod rbac;
mod replicas;
mod run;
mod shared;
mod standing;
mod status;

use std::process::ExitCode;

use crate::cli::{NotifyArgs, NotifyCommand};
use crate::failure::Failure;

/// Does what the command line says.
pub(crate) async fn run(args: NotifyArgs) -> Result<ExitCode, Failure> {
    match args.command {
        None if args.dry_run => mirrors::dry_run(&args.config.unwrap_or_default()).await,
        None => run::run(args).await,
        Some(NotifyCommand::Check { config, online }) => check::check(&config, online).await,
        Some(NotifyCommand::Explain { config, object, namespace, cluster, embedded }) => {
            let of = commands::Of { object, namespace, cluster, embedded };
            commands::explain(&config, of).await
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
