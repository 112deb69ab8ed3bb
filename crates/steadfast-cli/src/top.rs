//! `steadfast top`: a full-screen live table of some resources.
//!
//! | module | responsibility |
//! |---|---|
//! | `model` | state of the screen: keys and changes are inputs, requests to `session` are outputs |
//! | `tab` | state of one resource |
//! | `view` | drawing of the model |
//! | `table` | rows in an order that is maintained incrementally, with a filter and a cursor |
//! | `row`, `schema`, `cell_cache` | rows, their cells, and the cells of visible rows |
//! | `filter`, `natural_order` | filters and the order of texts |
//! | `history` | bounded history of changes |
//! | `details`, `pages`, `related_page` | an opened object, and its pages that need requests |
//! | `tab_informer` | informer of a tab |
//! | `usage` | processor and memory of pods and nodes |
//! | `opening` | lookup of the resource of a tab |
//! | `session` | connects the model with the cluster and the terminal |
//! | `screen` | the terminal and its keys |

mod cell_cache;
mod details;
mod filter;
mod history;
mod model;
mod natural_order;
mod opening;
mod pages;
mod related_page;
mod row;
mod schema;
mod screen;
mod session;
mod tab;
mod tab_informer;
mod table;
mod usage;
mod view;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use steadfast::Connection;
use steadfast::unstable::catalog::{Catalog, ServedResource};

use crate::cli::TopArgs;
use crate::clock::Clock;
use crate::connect::connect;
use crate::discovery;
use crate::failure::Failure;
use crate::fleet::Fleet;
use crate::signals::StopSignal;
use crate::watch::terminal::{has_color, has_cursor_control};
use opening::{OpenedTab, Opener};
use screen::{Screen, read_keys};
use session::Session;

/// Resources of the tabs without arguments. Servers may lack some of them.
const DEFAULT_RESOURCES: [&str; 6] = ["pods", "deployments", "services", "configmaps", "events", "nodes"];

/// Shows the table until the user quits, or until requested to stop.
pub(crate) async fn run(args: TopArgs) -> Result<ExitCode, Failure> {
    if !has_cursor_control() {
        return Err(Failure::usage(
            "top needs a terminal, and standard output is not a terminal; `steadfast watch` prints to files and pipes",
        ));
    }
    let mut stop = StopSignal::listen()?;
    // A stop drops the table, which restores the terminal. In the table, Ctrl-C is a key and not a signal.
    tokio::select! {
        ended = show(args) => ended?,
        () = stop.received() => {}
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(args: TopArgs) -> Result<(), Failure> {
    // The value is kept until the end, because dropping it stops the embedded server.
    let fleet = if args.embedded { Some(Fleet::start(None).await?) } else { None };
    let connection = match &fleet {
        Some(fleet) => fleet.connect().await?,
        None => connect(args.connection.clone()).await?,
    };
    let catalog = Arc::new(discovery::catalog(&connection, args.wait.map(Duration::from_secs)).await?);
    let opener = Opener { namespace: namespace(&args, &connection), connection, catalog };
    let tabs = open_tabs(&args, &opener).await?;
    let session = Session::new(opener, tabs, Clock::choose(args.utc), has_color());
    let mut screen = Screen::enter()?;
    session.run(&mut screen.terminal, read_keys()?).await
}

/// Returns the namespace of namespaced resources; `None` for all namespaces.
fn namespace(args: &TopArgs, connection: &Connection) -> Option<String> {
    // The embedded fleet spans several namespaces, so the default there is all of them.
    if args.all_namespaces || (args.embedded && args.namespace.is_none()) {
        return None;
    }
    Some(args.namespace.clone().unwrap_or_else(|| connection.default_namespace().to_owned()))
}

/// Opens the requested tabs, each once, or the default ones.
async fn open_tabs(args: &TopArgs, opener: &Opener) -> Result<Vec<OpenedTab>, Failure> {
    let mut resources = discovery::find_all(&opener.catalog, &args.resources)?;
    if resources.is_empty() {
        resources = default_resources(&opener.catalog);
    }
    if resources.is_empty() {
        return Err(Failure::run("the server serves none of the default resources; name a resource to show"));
    }
    let mut tabs = Vec::new();
    for resource in resources {
        tabs.push(opener.tab(resource).await);
    }
    Ok(tabs)
}

fn default_resources(catalog: &Catalog) -> Vec<ServedResource> {
    DEFAULT_RESOURCES.iter().filter_map(|name| catalog.find(name).ok()).collect()
}
