//! A client or the server as a process: told a line, answering a line.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::Trouble;

/// Longer than anything takes: a list of 100,000 dynamic objects takes client-go a minute.
const PATIENCE: Duration = Duration::from_mins(4);

/// A process that ends with this.
pub(super) struct Process {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts `command`; what it has to say of errors goes to this program's standard error.
    pub(super) fn start(mut command: Command) -> Result<Self, Trouble> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a process without pipes".into());
        };
        Ok(Self { child, input, lines: BufReader::new(output).lines() })
    }

    /// The server that replays `count` objects of `data`, and the address of its control.
    pub(super) async fn serve(count: usize, data: &Path, kubeconfig: &Path) -> Result<(Self, String), Trouble> {
        let mut serve = Command::new(std::env::current_exe()?);
        serve.arg("serve").arg("--count").arg(count.to_string()).arg("--data").arg(data);
        serve.arg("--kubeconfig").arg(kubeconfig);
        let mut server = Self::start(serve)?;
        let address = server.line().await?;
        Ok((server, address))
    }

    /// How many objects this client has, where they are not those of the server at `address`, every byte of each; nothing
    /// where they are.
    pub(super) async fn strays(&mut self, address: &str) -> Result<Option<Value>, Trouble> {
        let wanted = control(address, "checksum").await?;
        let found = self.ask("checksum").await?;
        Ok((found["sum"].as_u64() != Some(wanted)).then(|| found["objects"].clone()))
    }

    /// Its number.
    pub(super) fn id(&self) -> u32 {
        // It is not waited for, so it has one as long as this lives.
        self.child.id().unwrap_or_default()
    }

    /// The next line that it writes.
    pub(super) async fn line(&mut self) -> Result<String, Trouble> {
        let line = timeout(PATIENCE, self.lines.next_line()).await??;
        Ok(line.ok_or("it ended without an answer")?)
    }

    /// The next answer, which has to be that of `phase`.
    pub(super) async fn answer(&mut self, phase: &str) -> Result<Value, Trouble> {
        let answer: Value = serde_json::from_str(&self.line().await?)?;
        if answer["phase"] == phase { Ok(answer) } else { Err(format!("{answer} is no answer to {phase}").into()) }
    }

    /// Tells it `line`.
    pub(super) async fn tell(&mut self, line: &str) -> Result<(), Trouble> {
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(self.input.flush().await?)
    }

    /// Tells it a word with what belongs to it, and returns its answer.
    pub(super) async fn ask(&mut self, line: &str) -> Result<Value, Trouble> {
        self.tell(line).await?;
        self.answer(line.split(' ').next().unwrap_or(line)).await
    }
}

/// Runs `command` to its end, which has to be a good one; `what` it does is told where it is not.
pub(super) async fn succeed(mut command: Command, what: &str) -> Result<(), Trouble> {
    let status = command.kill_on_drop(true).status().await.map_err(|error| format!("{what}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{what}: {status}").into()) }
}

/// Tells the replaying server at `control` what to do; returns the version that there will be then.
pub(super) async fn control(control: &str, line: &str) -> Result<u64, Trouble> {
    let mut socket = TcpStream::connect(control).await?;
    socket.write_all(format!("{line}\n").as_bytes()).await?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await?;
    Ok(answer.trim().parse()?)
}
