//! `steadfast serve`: the embedded API server in the foreground.
//!
//! | module | responsibility |
//! |---|---|
//! | `sources` | reads manifests from files, standard input, folders and kustomizations |
//! | `manifest` | parses manifests and creates their objects on the server |
//! | `kubeconfig_file` | location and lifetime of the server's kubeconfig entries |
//! | `kubeconfig` | adds entries to a kubeconfig and removes them |
//! | `yaml` | YAML with edits that preserve everything else |
//! | `persistence` | saves the server's state after changes and at the end |
//! | `state_file` | the file with the state |
//! | `atomic_file` | atomic replacement of a file under a lock |
//! | `process_lock` | lock that ends with the process |

mod atomic_file;
pub(crate) mod kubeconfig;
mod kubeconfig_file;
mod manifest;
mod persistence;
mod process_lock;
mod sources;
mod state_file;
mod yaml;

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom, SystemRandom};
use steadfast_apiserver::{ApiServer, Snapshot, World};

use crate::cli::ServeArgs;
use crate::console;
use crate::failure::Failure;
use crate::fault::control::{self, FaultController};
use crate::fault::spec::FaultSpec;
use crate::signals::StopSignal;
use kubeconfig::Entries;
use kubeconfig_file::KubeconfigFile;
use manifest::CreatedObjects;
use persistence::Persistence;

/// Length of a random token, in bytes before they are written as hexadecimal digits.
const TOKEN_BYTES: usize = 16;

/// Limitation without `--world`.
const NO_CONTROLLERS: &str =
    "no cluster: no controllers, no scheduler, no kubelet; a deployment makes no pods, and nothing runs (see --world)";

/// Limitation with `--world`.
const SIMULATED_CONTROLLERS: &str =
    "no cluster: controllers, the scheduler and the nodes are simulated; pods become ready, but nothing runs in them";

/// Limitation that is printed at the start: a user may mistake the server for a cluster.
const NO_ADMISSION: &str =
    "no admission: webhooks are not called, policies not evaluated, and every user may do everything";

/// Limitation without `--persist`.
const NO_STORAGE: &str = "no storage: all objects are in memory, and are lost when the server stops (see --persist)";

/// Serves until requested to stop.
pub(crate) async fn run(args: ServeArgs) -> Result<ExitCode, Failure> {
    // Reading standard input and building kustomizations may block without a limit. No signal handler is installed yet,
    // so Ctrl-C ends the program and its child.
    let texts = sources::read(&args.manifests, args.recursive, &args.kustomizations)?;
    let objects = manifest::read_all(&texts)?;
    // Validated before the start; applied only after the objects exist, since a fault could prevent their creation.
    for fault in &args.faults {
        fault.parse::<FaultSpec>().map_err(Failure::usage)?;
    }
    let mut stop = StopSignal::listen()?;
    check_ports(args.port, args.replicas)?;
    let (mut persistence, restored) = args.persist.as_deref().map(Persistence::open).transpose()?.unzip();
    let restored = restored.flatten();
    // A time-based seed gives each run different UIDs, since equal names of two runs are different objects.
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let server = start_server(&args, seed, restored.clone()).await?;
    let created = manifest::create(&server, &objects, restored.is_some())?;
    if let Some(persistence) = &mut persistence {
        persistence.save(&server).await?;
    }

    let fault_controller = Arc::new(FaultController::new(server.faults().clone(), server.replicas()));
    let control_token = random_token()?;
    let control = control::serve(fault_controller.clone(), &control_token).await?;
    let entries = Entries {
        name: args.context,
        control: (control.to_string(), control_token),
        run_id: format!("{}-{seed:x}", process::id()),
        replicas: (0..server.replicas()).map(|replica| server.kubeconfig_of(replica)).collect(),
    };
    let kubeconfig_file = KubeconfigFile::merge(args.kubeconfig, entries)?;
    print_replicas(&server, &kubeconfig_file);
    print_objects(&created, persistence.as_ref(), restored.as_ref());
    for fault in &args.faults {
        fault_controller.switch(fault).map_err(Failure::usage)?;
        print_line(format_args!("fault: {fault}"));
    }
    print_line(format_args!("{}", if args.world { SIMULATED_CONTROLLERS } else { NO_CONTROLLERS }));
    print_line(format_args!("{NO_ADMISSION}"));
    if persistence.is_none() {
        print_line(format_args!("{NO_STORAGE}"));
    }
    print_line(format_args!("kubeconfig: {}", kubeconfig_file.file().display()));
    print_line(format_args!("faults: steadfast fault --kubeconfig {} --list", kubeconfig_file.file().display()));
    print_line(format_args!("try: kubectl --kubeconfig {} get namespaces -w", kubeconfig_file.file().display()));

    // `KubeconfigFile` removes its entries on every return from here on. Only `remove` reports an error.
    run_until_stopped(&server, persistence.as_mut(), &mut stop).await?;
    print_line(format_args!("stopped at revision {}", server.revision()));
    match persistence {
        Some(persistence) => persistence.finish(server).await?,
        None => server.stop(),
    }
    kubeconfig_file.remove()?;
    Ok(ExitCode::SUCCESS)
}

/// Starts the server, with the objects of an earlier run if its snapshot is given.
async fn start_server(args: &ServeArgs, seed: u64, restored: Option<Snapshot>) -> Result<ApiServer, Failure> {
    // A token is always set. Without credentials in the kubeconfig, kubectl prompts for a user name and a password.
    // Any page in a local browser could send requests to a server without a token.
    let token = args.token.clone().map_or_else(random_token, Ok)?;
    // Clients based on client-go send no token over plain HTTP.
    let builder = ApiServer::builder()
        .seed(seed)
        .replicas(args.replicas.into())
        .tls(args.tls)
        .port(args.port)
        .token(&token)
        .anonymous(!args.tls);
    let builder = if args.world { builder.world(World::default().nodes(args.nodes)) } else { builder };
    let builder = if let Some(snapshot) = restored { builder.snapshot(snapshot) } else { builder };
    builder.start().await.map_err(|error| start_failure(&error))
}

/// Saves the state after changes until the program is requested to stop.
async fn run_until_stopped(
    server: &ApiServer,
    persistence: Option<&mut Persistence>,
    stop: &mut StopSignal,
) -> Result<(), Failure> {
    let Some(persistence) = persistence else {
        stop.received().await;
        return Ok(());
    };
    loop {
        tokio::select! {
            () = stop.received() => return Ok(()),
            () = persistence.until_due(server) => {}
        }
        // Not part of the `select`: a save must not be in progress when the last one starts.
        persistence.save(server).await?;
    }
}

/// Prints the address of each replica.
fn print_replicas(server: &ApiServer, kubeconfig_file: &KubeconfigFile) {
    for replica in 0..server.replicas() {
        let context = if server.replicas() > 1 {
            format!(", context {}", kubeconfig_file.context(replica))
        } else {
            String::new()
        };
        print_line(format_args!("replica {replica}: {}{context}", server.url(replica)));
    }
}

/// Prints the numbers of created and restored objects, and the warnings of their creation.
fn print_objects(created: &CreatedObjects, persistence: Option<&Persistence>, restored: Option<&Snapshot>) {
    if created.count > 0 {
        print_line(format_args!("created {} objects", created.count));
    }
    if created.kept > 0 {
        print_line(format_args!("kept {} objects of the earlier run, which -f or -k name too", created.kept));
    }
    for warning in &created.warnings {
        console::report(format_args!("warning: {warning}"));
    }
    let Some(persistence) = persistence else { return };
    let file = persistence.path().display();
    match restored {
        Some(snapshot) => print_line(format_args!(
            "state: {file}, {} objects up to revision {}",
            snapshot.object_count(),
            snapshot.revision()
        )),
        None => print_line(format_args!("state: {file}, a new file")),
    }
}

/// Returns a random token of 128 bits.
fn random_token() -> Result<String, Failure> {
    use std::fmt::Write;
    let mut bytes = [0; TOKEN_BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| Failure::run("the system has no random numbers for a token; pass one with --token"))?;
    Ok(bytes.iter().fold(String::new(), |mut token, byte| {
        let _ = write!(token, "{byte:02x}");
        token
    }))
}

/// Prints a line to standard output. A closed pipe is ignored, since the server continues without a reader.
fn print_line(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Checks that the ports are free. The server cannot detect this itself: its sockets share a port with another `serve`.
fn check_ports(first: u16, replicas: u16) -> Result<(), Failure> {
    if first == 0 {
        return Ok(());
    }
    for replica in 0..replicas {
        let Some(port) = first.checked_add(replica) else {
            return Err(Failure::usage(format!(
                "there are fewer than {replicas} ports from {first} on; choose a lower one"
            )));
        };
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| {
            Failure::run(format!("cannot listen on port {port}: {error}; --port 0 takes a free one"))
        })?;
    }
    Ok(())
}

fn start_failure(error: &steadfast_apiserver::StartError) -> Failure {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    Failure::run(format!("the server did not start: {error}{cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_tokens_are_long_and_differ() {
        let (first_token, second_token) =
            (random_token().expect("random numbers"), random_token().expect("random numbers"));
        assert_eq!(first_token.len(), 2 * TOKEN_BYTES);
        assert_ne!(first_token, second_token);
        assert_eq!(crate::names::token(&first_token), Ok(first_token.clone()));
    }

    #[test]
    fn used_and_invalid_ports_are_rejected() -> io::Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let message = check_ports(port, 1).expect_err("the port is in use").to_string();
        assert!(message.contains(&port.to_string()) && message.contains("--port 0"), "{message}");
        assert!(check_ports(u16::MAX, 2).expect_err("the second port is too high").to_string().contains("lower"));
        Ok(())
    }
}
