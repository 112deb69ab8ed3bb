//! `steadfast watch`: prints every change of some resources, one per line.
//!
//! | module | responsibility |
//! |---|---|
//! | `watched` | the watched resource, and the decoding of its events |
//! | `line` | formats an event, or a change of freshness, as one line |
//! | `text_line`, `json_line` | the two formats |
//! | `terminal` | width and colours of the terminal |
//! | `recreated` | recognizes objects that replace one of the same name |
//! | `tally` | numbers of changes |
//! | `printer` | thread that writes lines to standard output and counts them |
//! | `doubts` | reports doubts: start, reason and end |
//! | `readiness` | readiness and metrics for monitoring |

mod doubts;
mod json_line;
mod line;
mod printer;
mod readiness;
mod recreated;
mod tally;
mod terminal;
mod text_line;
mod watched;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use steadfast::unstable::catalog::{Catalog, NotFound, ServedResource};
use steadfast::{Call, Connection, Event, Handler, InformerFactory, Scope};
use steadfast_notify::Supervisor;

use crate::changes::describe::Content;
use crate::cli::{Output, WatchArgs};
use crate::clock::Clock;
use crate::connect::connect;
use crate::console;
use crate::discovery;
use crate::endpoint;
use crate::failure::Failure;
use crate::fleet;
use crate::names::ResourceArg;
use crate::signals::StopSignal;
use doubts::Followed;
use line::{Format, Style};
use printer::{OutputEnd, Printer};
use readiness::WatchReadiness;
use recreated::Deletions;
use tally::{Tallies, Tally};
use terminal::{Width, has_color};
use watched::{CachedObject, Subject};

/// Maximum number of events of an informer that are pending for output. Above it, events of one object are merged.
const MAX_PENDING_EVENTS: usize = 1024;

/// Watches until requested to stop.
pub(crate) async fn run(args: WatchArgs) -> Result<ExitCode, Failure> {
    let mut stop = StopSignal::listen()?;
    let (start, tallies, is_text) = (Instant::now(), Tallies::default(), args.output == Output::Text);
    tokio::select! {
        ended = watch(args, tallies.clone()) => ended,
        () = stop.received() => {
            if is_text {
                console::report(tallies.summary(start.elapsed()));
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn watch(mut args: WatchArgs, tallies: Tallies) -> Result<ExitCode, Failure> {
    if args.embedded && args.resources.is_empty() {
        let all = |resource: &str| ResourceArg { resource: resource.to_owned(), object: None };
        args.resources = ["deployments", "pods"].map(all).to_vec();
    }
    reject_selectors_of_named_object(&args)?;
    let patience = args.wait.map(Duration::from_secs);
    let clock = Clock::choose(args.utc);
    let outage_clock = args.outages.then(|| clock.clone());
    // Held until the end: dropping the fleet stops its server.
    let fleet = if args.embedded { Some(fleet::Fleet::start(outage_clock).await?) } else { None };
    let connection = match &fleet {
        Some(fleet) => fleet.connect().await?,
        None => connect(args.kubeconfig.clone(), args.context.clone()).await?,
    };
    let followed = WatchReadiness::new(&connection);
    // Before discovery, which may wait for the server: until then `/readyz` responds 503 with the reason.
    if let Some(address) = args.metrics {
        let supervisor = Supervisor::new(Arc::new(console::report));
        endpoint::serve(address, followed.clone(), &supervisor)?;
    }
    let catalog = discovery::catalog(&connection, patience).await?;
    let RequestedResources { found, missing } = requested_resources(&args, &catalog)?;

    let format = match args.output {
        Output::Json => Format::Json { full: args.full },
        Output::Text => Format::Text { color: has_color(), width: Width::of_stdout(), clock: clock.clone() },
    };
    let style = Style { format, content: Content { noise: args.verbose, secrets: args.show_secrets } };
    let (printer, ended) = Printer::start(args.until);
    let mut watching =
        WatchSession { factory: InformerFactory::new(&connection), style, clock, printer, tallies, known: Vec::new() };
    for (wanted, resource) in found {
        watching.begin(&args, &connection, &wanted, resource).await?;
    }
    followed.begin(watching.factory.clone(), missing.iter().map(|wanted| wanted.resource.clone()).collect());
    let waiting = async {
        let arrived = async |wanted: ResourceArg, resource: ServedResource| {
            watching.begin(&args, &connection, &wanted, resource).await?;
            followed.arrived(&wanted.resource);
            Ok(())
        };
        discovery::await_kinds(&connection, missing, patience, arrived).await
    };
    tokio::pin!(ended);
    tokio::select! {
        // The output may end while kinds are still missing: `--until` was reached, or the reader has closed the pipe.
        ended = &mut ended => return exit_code(ended),
        waited = waiting => waited?,
    }
    exit_code(ended.await)
}

fn exit_code<E>(ended: Result<OutputEnd, E>) -> Result<ExitCode, Failure> {
    match ended {
        Ok(OutputEnd::LimitReached | OutputEnd::PipeClosed) => Ok(ExitCode::SUCCESS),
        Ok(OutputEnd::Failed(error)) => Err(Failure::run(format!("events cannot be written: {error}"))),
        Err(_) => Err(Failure::run("the thread that writes events has ended")),
    }
}

/// Rejects selectors together with the name of an object, since a name is a field selector itself.
fn reject_selectors_of_named_object(args: &WatchArgs) -> Result<(), Failure> {
    let named = args.resources.iter().find_map(|wanted| Some((&wanted.resource, wanted.object.as_ref()?)));
    match named {
        Some((resource, object)) if args.labels.is_some() || args.fields.is_some() => Err(Failure::usage(format!(
            "{resource}/{object} names one object; leave out the selectors, or the name: {resource}"
        ))),
        _ => Ok(()),
    }
}

/// Requested resources, split by whether the server serves them.
#[derive(Default)]
struct RequestedResources {
    found: Vec<(ResourceArg, ServedResource)>,
    missing: Vec<ResourceArg>,
}

fn requested_resources(args: &WatchArgs, catalog: &Catalog) -> Result<RequestedResources, Failure> {
    let RequestedResources { mut found, mut missing } = RequestedResources::default();
    for wanted in &args.resources {
        match catalog.find(&wanted.resource) {
            Ok(resource) => found.push((wanted.clone(), resource)),
            Err(NotFound::Unknown(why)) if args.wait_for_kind => {
                console::report(format_args!("waiting for {}: {why}", wanted.resource));
                missing.push(wanted.clone());
            }
            Err(NotFound::Unknown(why)) => {
                // `deploy web` is kubectl's syntax for one object, so a probable name gets a hint.
                let before = found.last().filter(|(before, _)| before.object.is_none() && wanted.object.is_none());
                let meant = before.map_or(String::new(), |(before, _)| {
                    format!("; to name an object, use a slash: {}/{}", before.resource, wanted.resource)
                });
                return Err(Failure::usage(format!("{why}{meant}; --wait-for-kind waits until it has")));
            }
            Err(why @ NotFound::Unwatchable(_)) => return Err(Failure::usage(why)),
        }
    }
    Ok(RequestedResources { found, missing })
}

/// Returns the scope to watch in `resource`: all objects, the selected ones, or one `object`.
fn scope(args: &WatchArgs, resource: &ServedResource, object: Option<&str>, connection: &Connection) -> Scope {
    // The embedded fleet spans several namespaces, so the default there is all of them.
    let everywhere = args.all_namespaces || (args.embedded && args.namespace.is_none());
    let mut scope = match (&args.namespace, resource.namespaced && !everywhere) {
        (_, false) => Scope::all(),
        (Some(namespace), true) => Scope::namespace(namespace),
        (None, true) => Scope::namespace(connection.default_namespace()),
    };
    if let Some(labels) = &args.labels {
        scope = scope.labels(labels);
    }
    match (object, &args.fields) {
        (Some(object), _) => scope.fields(format!("metadata.name={object}")),
        (None, Some(fields)) => scope.fields(fields),
        (None, None) => scope,
    }
}

/// The watched resources and their output.
struct WatchSession {
    factory: InformerFactory,
    style: Style,
    clock: Clock,
    printer: Printer,
    tallies: Tallies,
    /// Resources that are watched already, so that repeated arguments have no effect.
    known: Vec<(ServedResource, Option<String>)>,
}

impl WatchSession {
    /// Starts to watch the `wanted` objects of `resource`, unless they are watched already.
    async fn begin(
        &mut self,
        args: &WatchArgs,
        connection: &Connection,
        wanted: &ResourceArg,
        resource: ServedResource,
    ) -> Result<(), Failure> {
        let place = (resource, wanted.object.clone());
        if self.known.contains(&place) {
            return Ok(());
        }
        let (resource, object) = &place;
        let scope = scope(args, resource, object.as_deref(), connection);
        discovery::check_selectors(connection, resource, &scope).await?;
        let (name, api_resource) = (resource.to_string(), resource.api_resource.clone());
        let columns = discovery::printer_columns(connection, resource).await;
        self.follow(Subject { columns, ..Subject::new(name, api_resource, scope) })?;
        self.known.push(place);
        Ok(())
    }

    /// Prints every change of `subject`, and every doubt about it.
    fn follow(&self, subject: Subject) -> Result<(), Failure> {
        let informer = self.factory.builder_with::<CachedObject>(&subject.api_resource, subject.scope.clone());
        // The managers of a change are known from these fields alone. Packed, they cost little.
        let informer = informer.keep_managed_fields().protobuf(false).packed(true);
        let informer = informer.start().map_err(Failure::usage)?;
        let (tally, subject, style) = (self.tallies.add(subject.name.clone()), Arc::new(subject), self.style.clone());
        let lines = EventPrinter {
            subject: subject.clone(),
            style: style.clone(),
            printer: self.printer.clone(),
            tally: tally.clone(),
            deletions: Mutex::default(),
        };
        let registration = informer.handler().deliver_each(MAX_PENDING_EVENTS).add_handler(lines);
        let events = Arc::new(registration.map_err(Failure::run)?);
        let followed = Followed { subject: subject.clone(), informer: informer.clone(), events: events.clone(), tally };
        doubts::follow(followed, style.clone(), self.clock.clone(), self.printer.clone());
        let (lines, shown) = (self.printer.clone(), informer.clone());
        tokio::spawn(async move {
            events.until_synced().await;
            let snapshot = shown.snapshot();
            let synced = style.synced(&subject, snapshot.version(), snapshot.len());
            // Printed after the initial objects: the handler calls for all of them have returned.
            tokio::task::spawn_blocking(move || lines.print(synced));
        });
        Ok(())
    }
}

/// Handler that prints the events of one informer.
///
/// A slow or stopped terminal blocks this handler only; events above the limit are merged and marked.
struct EventPrinter {
    subject: Arc<Subject>,
    style: Style,
    printer: Printer,
    tally: Arc<Tally>,
    deletions: Mutex<Deletions>,
}

impl EventPrinter {
    /// Returns the description of a new object that replaces one of the same name.
    fn replacement(&self, event: &Event<CachedObject>) -> Option<String> {
        let (key, now) = (event.object().key(), Instant::now());
        match event {
            Event::Deleted { reason, .. } => self.deletions.lock().deleted(key, *reason, now),
            Event::Added { initial: false, .. } => return self.deletions.lock().replacement(key, now),
            _ => {}
        }
        None
    }
}

impl Handler<CachedObject> for EventPrinter {
    fn handle(&self, event: Event<CachedObject>, call: Call) {
        if let Some(missed) = self.style.missed(&self.subject, call) {
            console::report(missed);
        }
        let replacement = self.replacement(&event);
        let line = self.style.event(&self.subject, &self.subject.event(&event, call), replacement.as_deref());
        // The initial objects are no changes.
        if !matches!(event, Event::Added { initial: true, .. }) {
            self.tally.count(line.counted);
        }
        if let Some(text) = line.text {
            self.printer.print(text);
        }
    }
}
