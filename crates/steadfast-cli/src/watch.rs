//! `steadfast watch`: every change of some resources, as lines, for as long as it is wanted.
//!
//! | room | what it is |
//! |---|---|
//! | `catalog` | what a server has, and which of it a name means |
//! | `discovery` | asks the server for it, and waits where it cannot be reached |
//! | `line` | one event as one line |
//! | `printer` | standard output: one thread, one line after the other, a count |
//! | `doubts` | standard error: what is in doubt, and since when |
//! | `endpoint` | metrics, health and readiness, for a monitor |
//! | `fleet` | the small world of `--embedded` |

mod catalog;
mod discovery;
mod doubts;
mod endpoint;
mod fleet;
mod line;
mod printer;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use kube::core::DynamicObject;
use steadfast::{Connection, InformerFactory, Scope};

use crate::cli::{Output, WatchArgs};
use crate::connect::connect;
use crate::failure::Failure;
use crate::signals::Stop;
use catalog::Found;
use line::Style;
use printer::{End, Printer};

/// Watches until told to stop.
pub(crate) async fn run(args: WatchArgs) -> Result<ExitCode, Failure> {
    let mut stop = Stop::listen()?;
    tokio::select! {
        ended = watch(args) => ended,
        () = stop.told() => Ok(ExitCode::SUCCESS),
    }
}

async fn watch(mut args: WatchArgs) -> Result<ExitCode, Failure> {
    if args.embedded && args.resources.is_empty() {
        args.resources = vec!["deployments".to_owned(), "pods".to_owned()];
    }
    let fleet = if args.embedded { Some(fleet::Fleet::start().await?) } else { None };
    let connection = match &fleet {
        Some(fleet) => fleet.connect().await?,
        None => connect(args.kubeconfig.clone(), args.context.clone()).await?,
    };
    let followed = endpoint::Followed::default();
    if let Some(address) = args.metrics {
        endpoint::serve(address, &connection, followed.clone()).await?;
    }
    let found = discovery::find(&connection, &args.resources, args.wait.map(Duration::from_secs)).await?;

    let style = match args.output {
        Output::Json => Style::Json { full: args.full },
        Output::Text => {
            Style::Text { color: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() }
        }
    };
    let factory = InformerFactory::new(&connection);
    let (printer, ended) = Printer::start(args.until);
    for resource in found {
        let scope = scope(&args, &resource, &connection);
        discovery::check_selectors(&connection, &resource, &scope).await?;
        follow(&factory, resource, scope, style, &printer)?;
    }
    // Set nowhere else.
    let _ = followed.set(factory.clone());
    match ended.await {
        Ok(End::Counted | End::NobodyReads) => Ok(ExitCode::SUCCESS),
        Ok(End::Failed(error)) => Err(Failure::run(format!("events cannot be written: {error}"))),
        Err(_) => Err(Failure::run("the thread that writes events has ended")),
    }
}

/// What is watched of `resource`.
fn scope(args: &WatchArgs, resource: &Found, connection: &Connection) -> Scope {
    let everywhere = args.all_namespaces || (args.embedded && args.namespace.is_none());
    let mut scope = match (&args.namespace, resource.namespaced && !everywhere) {
        (_, false) => Scope::all(),
        (Some(namespace), true) => Scope::namespace(namespace),
        (None, true) => Scope::namespace(connection.default_namespace()),
    };
    if let Some(labels) = &args.labels {
        scope = scope.labels(labels);
    }
    match &args.fields {
        Some(fields) => scope.fields(fields),
        None => scope,
    }
}

/// Prints every change of `resource` in `scope`, and every doubt about it.
fn follow(
    factory: &InformerFactory,
    resource: Found,
    scope: Scope,
    style: Style,
    printer: &Printer,
) -> Result<(), Failure> {
    let informer = factory.informer_with::<DynamicObject>(&resource.described, scope).map_err(Failure::usage)?;
    let name = resource.to_string();
    doubts::follow(name.clone(), informer.clone());
    let lines = printer.clone();
    let told = name.clone();
    // A terminal that is slow, or stopped, holds up this handler alone; what comes meanwhile is merged.
    let registration =
        informer.on_event(move |event| lines.print(line::event(style, &told, &resource.described, &event)));
    let lines = printer.clone();
    let shown = informer.clone();
    tokio::spawn(async move {
        registration.until_synced().await;
        let snapshot = shown.snapshot();
        let synced = line::synced(style, &name, shown.scope(), snapshot.version(), snapshot.len());
        // Behind all that belongs to the first view: their calls have returned.
        tokio::task::spawn_blocking(move || lines.print(synced));
    });
    Ok(())
}
