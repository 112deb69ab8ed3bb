//! A command that prints its arguments, and then what it is given.

use serde_json::json;

use super::channels::Channels;
use crate::http::options::Query;
use crate::status::Status;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STATUS: u8 = 3;
/// From version 5 on: what follows is the number of a channel that has ended.
const CLOSE: u8 = 255;

/// What is run, and which of its streams are wanted.
pub(super) struct Command {
    /// None where a running one is joined.
    arguments: Vec<String>,
    stdin: bool,
    stdout: bool,
}

impl Command {
    /// As a query says; one that is to be run anew (`exec`) needs a name.
    pub(super) fn of(query: &Query, anew: bool) -> Result<Self, Status> {
        let flag = |name| query.flag(name) == Some(true);
        let arguments: Vec<String> =
            if anew { query.texts("command").map(ToOwned::to_owned).collect() } else { Vec::new() };
        if anew && arguments.is_empty() {
            return Err(Status::bad_request("you must specify at least one command for the container"));
        }
        if !["stdin", "stdout", "stderr"].into_iter().any(flag) {
            return Err(Status::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
        }
        Ok(Self { arguments, stdin: flag("stdin"), stdout: flag("stdout") })
    }

    /// Runs until its input ends, or for the time of its arguments where it has none.
    pub(super) async fn run(self, mut channels: Channels) {
        let begins = !self.arguments.is_empty();
        if begins && self.stdout {
            let line = format!("{}\n", self.arguments.join(" "));
            if !channels.send(STDOUT, line.as_bytes()).await {
                return;
            }
        }
        // What was joined goes on for as long as it is looked at.
        let mut listens = self.stdin || !begins;
        while listens {
            match channels.receive().await {
                Some((STDIN, bytes)) if self.stdin && self.stdout => {
                    if !bytes.is_empty() && !channels.send(STDOUT, &bytes).await {
                        return;
                    }
                }
                Some((CLOSE, channel)) if channel.as_ref() == [STDIN] => listens = false,
                // The size of a terminal among them, which an echo does not care for.
                Some(_) => {}
                None => return channels.close().await,
            }
        }
        let ended = json!({"metadata": {}, "status": "Success"});
        if channels.send(STATUS, ended.to_string().as_bytes()).await {
            channels.close().await;
        }
    }
}
