//! The program `steadfast`: a cluster watched from a terminal, an API server to watch, and a proof that the cache holds.
//!
//! | room | what it is |
//! |---|---|
//! | `cli` | the program's face: every command and flag, in one table |
//! | `names` | names on the command line, and what is refused because it names nothing |
//! | `failure` | why the program ended early: one message and one exit code |
//! | `aside` | lines on standard error |
//! | `signals` | being requested to stop |
//! | `connect` | a connection from flags and kubeconfig, and what a server that does not answer means |
//! | `catalog` | what a server has, and which of it a name means |
//! | `discovery` | asks a server for it, and waits where it cannot be reached |
//! | `endpoint` | what a monitor asks of the program, over HTTP |
//! | `exchange` | one HTTP request to a program of this machine |
//! | `clock` | times, for people and for programs |
//! | `fleet` | the small world of `--embedded` |
//! | `watch` | every change of some resources, as lines |
//! | `notify` | acts on changes, by a configuration |
//! | `lab` | what went wrong elsewhere, played and judged |
//! | `serve` | the embedded API server in the foreground |
//! | `fault` | switches faults of a running `serve` |

mod aside;
mod catalog;
mod cli;
mod clock;
mod connect;
mod discovery;
mod endpoint;
mod exchange;
mod failure;
mod fault;
mod fleet;
mod lab;
mod names;
mod notify;
mod serve;
mod signals;
mod watch;

use std::process::ExitCode;

use clap::Parser;
use tokio::runtime::Builder;
use tracing_subscriber::EnvFilter;

use crate::cli::{Cli, Command};
use crate::failure::Failure;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_env("STEADFAST_LOG").unwrap_or_else(|_| EnvFilter::new("off"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let runtime = match Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::run(format!("no threads to run on: {error}")).report(),
    };
    let ended = runtime.block_on(async {
        match cli.command {
            Command::Watch(args) => watch::run(args).await,
            Command::Notify(args) => notify::run(args).await,
            Command::Lab(args) => lab::run(args).await,
            Command::Serve(args) => serve::run(args).await,
            Command::Fault(args) => fault::run(args).await,
        }
    });
    // What still runs (a write to a pipe that nobody reads) is left behind: nobody waits for it.
    runtime.shutdown_background();
    match ended {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
