//! Simulated command for `exec` and `attach`: prints its arguments, and echoes its input.

use serde_json::json;

use super::channels::Channels;
use crate::http::options::Query;
use crate::status::Status;

const STDIN_CHANNEL: u8 = 0;
const STDOUT_CHANNEL: u8 = 1;
const STATUS_CHANNEL: u8 = 3;
/// Message of protocol version 5 that ends a channel. The number of the ended channel follows.
const CLOSE_CHANNEL: u8 = 255;

/// Simulated command, and its requested streams.
pub(super) struct Command {
    /// Arguments of the command; empty if the request attaches to a running command.
    arguments: Vec<String>,
    has_stdin: bool,
    has_stdout: bool,
}

impl Command {
    /// Parses the command of a query. A new command (`exec`) requires a name.
    pub(super) fn parse(query: &Query, is_new: bool) -> Result<Self, Status> {
        let flag = |name| query.flag(name) == Some(true);
        let arguments: Vec<String> =
            if is_new { query.texts("command").map(ToOwned::to_owned).collect() } else { Vec::new() };
        if is_new && arguments.is_empty() {
            return Err(Status::bad_request("you must specify at least one command for the container"));
        }
        // The protocol has no meaning without a stream, so a real server rejects the request as well.
        if !["stdin", "stdout", "stderr"].into_iter().any(flag) {
            return Err(Status::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
        }
        Ok(Self { arguments, has_stdin: flag("stdin"), has_stdout: flag("stdout") })
    }

    /// Runs until the input ends; without input, until the arguments are printed.
    pub(super) async fn run(self, mut channels: Channels) {
        let is_new_command = !self.arguments.is_empty();
        if is_new_command && self.has_stdout {
            let line = format!("{}\n", self.arguments.join(" "));
            if !channels.send(STDOUT_CHANNEL, line.as_bytes()).await {
                return;
            }
        }
        // An attached command runs until the client disconnects.
        let mut is_listening = self.has_stdin || !is_new_command;
        while is_listening {
            match channels.receive().await {
                Some((STDIN_CHANNEL, bytes)) if self.has_stdin && self.has_stdout => {
                    if !bytes.is_empty() && !channels.send(STDOUT_CHANNEL, &bytes).await {
                        return;
                    }
                }
                // Version 5 signals the end of the input by a message, since WebSocket has no half-close.
                Some((CLOSE_CHANNEL, channel)) if channel.as_ref() == [STDIN_CHANNEL] => is_listening = false,
                // The echo ignores other channels, such as the size of the terminal.
                Some(_) => {}
                None => return channels.close().await,
            }
        }
        // The status channel ends the session. `kubectl` reads its exit code from this message.
        let success = json!({"metadata": {}, "status": "Success"});
        if channels.send(STATUS_CHANNEL, success.to_string().as_bytes()).await {
            channels.close().await;
        }
    }
}
