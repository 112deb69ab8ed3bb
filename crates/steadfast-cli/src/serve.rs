//! `steadfast serve`: the embedded API server in the foreground.

mod manifest;

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs, io, process};

use steadfast_apiserver::ApiServer;

use crate::cli::ServeArgs;
use crate::failure::Failure;
use crate::signals::Stop;

/// kubectl asks for a name and a password where a kubeconfig has no credentials.
const TOKEN: &str = "embedded";

/// Serves until told to stop.
pub(crate) async fn run(args: ServeArgs) -> Result<ExitCode, Failure> {
    let objects = manifest::read_all(&args.manifests)?;
    let mut stop = Stop::listen()?;
    ports_are_free(args.port, args.replicas)?;
    // Objects of another run are other objects, though their names are the same.
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let builder =
        ApiServer::builder().seed(seed).replicas(args.replicas.into()).tls(args.tls).port(args.port).token(TOKEN);
    let server = builder.start().await.map_err(|error| cannot_start(&error))?;
    let created = manifest::create(&server, &objects)?;

    let place = Place::choose(args.kubeconfig)?;
    for replica in 0..server.replicas() {
        place.write(replica, &server.kubeconfig_of(replica))?;
        say(format_args!("replica {replica}: {}", server.url(replica)));
    }
    if created > 0 {
        say(format_args!("created {created} objects"));
    }
    say(format_args!("kubeconfig: {}", place.file(0).display()));
    say(format_args!("try: kubectl --kubeconfig {} get namespaces -w", place.file(0).display()));

    stop.told().await;
    say(format_args!("stopped at revision {}", server.revision()));
    server.stop();
    Ok(ExitCode::SUCCESS)
}

/// Tells the user; a server goes on when nobody reads what it says.
fn say(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Looks whether somebody else has one of the ports: the server's own sockets would share it with another such server.
fn ports_are_free(first: u16, replicas: u16) -> Result<(), Failure> {
    if first == 0 {
        return Ok(());
    }
    for replica in 0..replicas {
        let Some(port) = first.checked_add(replica) else {
            return Err(Failure::usage(format!(
                "there are no {replicas} ports from {first} on; begin with a lower one"
            )));
        };
        TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .map_err(|error| Failure::run(format!("port {port} cannot be had: {error}; --port 0 takes a free one")))?;
    }
    Ok(())
}

fn cannot_start(error: &steadfast_apiserver::StartError) -> Failure {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    Failure::run(format!("the server did not start: {error}{cause}"))
}

/// Where the kubeconfigs go; a place that nobody asked for is removed at the end.
struct Place {
    first: PathBuf,
    temporary: Option<PathBuf>,
}

impl Place {
    fn choose(asked: Option<PathBuf>) -> Result<Self, Failure> {
        if let Some(first) = asked {
            return Ok(Self { first, temporary: None });
        }
        let directory = env::temp_dir().join(format!("steadfast-{}", process::id()));
        fs::create_dir_all(&directory).map_err(|error| cannot_write(&directory, &error))?;
        Ok(Self { first: directory.join("kubeconfig"), temporary: Some(directory) })
    }

    /// The file for a replica: the first one has the name that was asked for, the others their number behind it.
    fn file(&self, replica: usize) -> PathBuf {
        if replica == 0 {
            return self.first.clone();
        }
        let mut name = self.first.clone().into_os_string();
        name.push(format!(".{replica}"));
        name.into()
    }

    fn write(&self, replica: usize, text: &str) -> Result<(), Failure> {
        let file = self.file(replica);
        fs::write(&file, text).map_err(|error| cannot_write(&file, &error))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(directory) = &self.temporary {
            let _ = fs::remove_dir_all(directory);
        }
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::run(format!("{} cannot be written: {error}; choose another place with --kubeconfig", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_replica_has_a_kubeconfig_of_its_own() -> Result<(), Failure> {
        let place = Place::choose(Some("/somewhere/config.yaml".into()))?;
        assert_eq!(place.file(0), Path::new("/somewhere/config.yaml"));
        assert_eq!(place.file(2), Path::new("/somewhere/config.yaml.2"));
        Ok(())
    }

    #[test]
    fn a_port_in_use_is_told_and_so_are_too_many() -> io::Result<()> {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = taken.local_addr()?.port();
        let told = ports_are_free(port, 1).expect_err("it is taken").to_string();
        assert!(told.contains(&port.to_string()) && told.contains("--port 0"), "{told}");
        assert!(ports_are_free(u16::MAX, 2).expect_err("there is no such port").to_string().contains("lower"));
        Ok(())
    }

    #[test]
    fn a_place_that_nobody_asked_for_is_removed_at_the_end() -> Result<(), Failure> {
        let place = Place::choose(None)?;
        place.write(0, "apiVersion: v1")?;
        let file = place.file(0);
        assert!(file.exists());
        drop(place);
        assert!(!file.exists());
        Ok(())
    }
}
