//! Child process of the benchmark, a client or the server. Requests and responses are lines.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::BenchError;

/// Timeout of a response. The slowest one takes a minute: client-go's list of 100,000 dynamic objects.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(4);

/// Process that is killed on drop.
pub(super) struct Process {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts `command`, which inherits standard error.
    pub(super) fn start(mut command: Command) -> Result<Self, BenchError> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the process has no pipes".into());
        };
        Ok(Self { child, input, lines: BufReader::new(output).lines() })
    }

    /// Starts a server that replays `count` objects of `data`. Returns the server and its control socket's address.
    pub(super) async fn serve(count: usize, data: &Path, kubeconfig: &Path) -> Result<(Self, String), BenchError> {
        let mut serve = Command::new(std::env::current_exe()?);
        serve.arg("serve").arg("--count").arg(count.to_string()).arg("--data").arg(data);
        serve.arg("--kubeconfig").arg(kubeconfig);
        let mut server = Self::start(serve)?;
        let address = server.next_line().await?;
        Ok((server, address))
    }

    /// Compares the checksum of this client's objects with that of the server at `address`. On a difference, returns
    /// the client's object count, for the error message.
    pub(super) async fn compare_with_server(&mut self, address: &str) -> Result<Option<Value>, BenchError> {
        let server_sum = send_control(address, "checksum").await?;
        let client_response = self.request("checksum").await?;
        Ok((client_response["sum"].as_u64() != Some(server_sum)).then(|| client_response["objects"].clone()))
    }

    /// Returns the process ID.
    pub(super) fn id(&self) -> u32 {
        // No code waits for the process, so the ID is available.
        self.child.id().unwrap_or_default()
    }

    /// Returns the next line that the process writes.
    pub(super) async fn next_line(&mut self) -> Result<String, BenchError> {
        let line = timeout(RESPONSE_TIMEOUT, self.lines.next_line()).await??;
        Ok(line.ok_or("the process ended without a response")?)
    }

    /// Returns the next response, which must belong to `phase`.
    pub(super) async fn expect_response(&mut self, phase: &str) -> Result<Value, BenchError> {
        let response: Value = serde_json::from_str(&self.next_line().await?)?;
        // A mismatch is an error. Responses are in order, so a wrong phase means that a response was lost.
        if response["phase"] == phase {
            Ok(response)
        } else {
            Err(format!("{response} is not a response to {phase}").into())
        }
    }

    /// Sends `line`.
    pub(super) async fn send(&mut self, line: &str) -> Result<(), BenchError> {
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(self.input.flush().await?)
    }

    /// Sends a command with its arguments, and returns the response.
    pub(super) async fn request(&mut self, line: &str) -> Result<Value, BenchError> {
        self.send(line).await?;
        self.expect_response(line.split(' ').next().unwrap_or(line)).await
    }
}

/// Runs `command` and requires its success. `description` describes the command in an error.
pub(super) async fn run_command(mut command: Command, description: &str) -> Result<(), BenchError> {
    let status = command.kill_on_drop(true).status().await.map_err(|error| format!("{description}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{description}: {status}").into()) }
}

/// Sends a command to the replaying server at `address`, and returns the number in its response. The number is a
/// resource version, unless the command requests another value, such as `checksum`.
pub(super) async fn send_control(address: &str, command: &str) -> Result<u64, BenchError> {
    let mut socket = TcpStream::connect(address).await?;
    socket.write_all(format!("{command}\n").as_bytes()).await?;
    let mut response = String::new();
    socket.read_to_string(&mut response).await?;
    Ok(response.trim().parse()?)
}
