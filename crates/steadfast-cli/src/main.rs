//! The program `steadfast`: watches a cluster from a terminal, acts on its changes, and runs an API server for tests.
//!
//! | module | responsibility |
//! |---|---|
//! | `cli` | the command line: commands, flags and help texts |
//! | `names` | parsing and validation of names on the command line |
//! | `failure` | a failure of the program: one message and one exit code |
//! | `console` | lines on standard error, documents on standard output |
//! | `signals` | requests to stop or to reload |
//! | `connect` | connection from flags and kubeconfig, classification of failed requests |
//! | `server_address` | addresses of a server, and connections to one of them |
//! | `discovery` | API discovery, with retries |
//! | `endpoint` | HTTP endpoints for monitoring |
//! | `metric_family` | one metric with its samples |
//! | `exchange` | one HTTP request to a local program |
//! | `clock`, `duration` | timestamps for people and for programs; durations in arguments |
//! | `byte_count` | byte counts for people |
//! | `html` | text in HTML pages |
//! | `changes` | changes between two states of an object, and their description |
//! | `fleet` | the simulated workloads of `--embedded` |
//! | `watch` | prints every change of some resources |
//! | `top` | shows resources in a full-screen table |
//! | `output_format` | output formats |
//! | `until` | end of a watch: a number, a duration, or a condition |
//! | `doctor` | checks what informers need from a cluster |
//! | `audit` | continuously checks each API server endpoint |
//! | `notify` | acts on changes, as a configuration specifies |
//! | `lab` | runs fault scenarios and checks the results |
//! | `serve` | the embedded API server in the foreground |
//! | `fault` | switches faults of a running `serve` |
//! | `generate` | shell completions and man pages |
//! | `plugin` | the program as a plugin of kubectl |
//! | `rbac` | manifests of roles and bindings |
//! | `kubectl_flags` | flags for a connection |
//! | `log_lines` | lines of a log, with a maximum length |

mod audit;
mod built_in_groups;
mod byte_count;
mod changes;
mod cli;
mod clock;
mod connect;
mod console;
mod discovery;
mod doctor;
mod duration;
mod endpoint;
mod exchange;
mod failure;
mod fault;
mod fleet;
mod generate;
mod html;
mod kubectl_flags;
mod lab;
mod log_lines;
mod metric_family;
mod names;
mod notify;
mod output_format;
mod plugin;
mod rbac;
mod serve;
mod server_address;
mod signals;
mod top;
mod until;
mod watch;

/// musl's allocator serializes all threads. The release links musl statically, so the program replaces the allocator.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};
use tokio::runtime::Builder;
use tracing_subscriber::EnvFilter;

use crate::cli::{Cli, Command};
use crate::failure::Failure;
use crate::plugin::StartedAs;

fn main() -> ExitCode {
    let cli = match StartedAs::of(std::env::args_os().next().as_deref()) {
        StartedAs::Program => Cli::parse(),
        StartedAs::Plugin => parse_as_plugin(),
        StartedAs::Completion => return complete(),
    };
    run(cli)
}

/// Parses the arguments of `kubectl steadfast`.
fn parse_as_plugin() -> Cli {
    let mut command = plugin::named_as_plugin(Cli::command());
    let mut matches = command.clone().get_matches();
    Cli::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| error.format(&mut command).exit())
}

/// Prints the completions that kubectl requests.
fn complete() -> ExitCode {
    let mut command = Cli::command();
    command.build();
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    match console::print(&plugin::completions(&command, &words)) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn run(cli: Cli) -> ExitCode {
    // Standard output belongs to events and results, so logs go to standard error. They are off by default.
    let filter = EnvFilter::try_from_env("STEADFAST_LOG").unwrap_or_else(|_| EnvFilter::new("off"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let runtime = match Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::run(format!("cannot start the runtime: {error}")).report(),
    };
    let ended = runtime.block_on(async {
        match cli.command {
            Command::Watch(args) => watch::run(args).await,
            Command::Top(args) => top::run(args).await,
            Command::Doctor(args) => doctor::run(args).await,
            Command::Audit(args) => audit::run(args).await,
            Command::Notify(args) => notify::run(args).await,
            Command::Lab(args) => lab::run(args).await,
            Command::Serve(args) => serve::run(args).await,
            Command::Fault(args) => fault::run(args).await,
            Command::Generate(args) => generate::run(&args),
        }
    });
    // Blocked tasks, such as a write to a full pipe, are abandoned: waiting for them could take forever.
    runtime.shutdown_background();
    match ended {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
