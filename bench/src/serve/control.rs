//! Commands of the run to the server, one line per connection. An empty response field means: the version of the last
//! change.
//!
//! | line | effect | response |
//! |---|---|---|
//! | `burst COUNT` | modifies objects | |
//! | `paced COUNT PER-SECOND` | modifies objects at regular intervals | final version |
//! | `halt` | stops paced changes | |
//! | `expire COUNT` | modifies objects, and expires all changes so far | |
//! | `churn COUNT` | modifies, deletes and creates objects | |
//! | `churn-and-expire COUNT` | as `churn`, and expires all changes so far | |
//! | `cut` | closes all connections | |
//! | `checksum` | | checksum of the objects |
//! | `lists`, `bytes`, `processor` | | number of lists; bytes of objects sent; CPU time in microseconds |

use std::sync::Arc;
use std::time::Duration;

use steadfast_bench_controllers::processor_time;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};

use super::collection::{ChangeKind, Collection};

/// Runs the commands. The response to a command is the version of the collection after the command, or the result of
/// the command.
pub(super) async fn run(listener: TcpListener, collection: Arc<Collection>) {
    while let Ok((socket, _)) = listener.accept().await {
        tokio::spawn(execute(socket, collection.clone()));
    }
}

async fn execute(socket: TcpStream, collection: Arc<Collection>) {
    let mut socket = BufReader::new(socket);
    let mut line = String::new();
    if socket.read_line(&mut line).await.is_err() {
        return;
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |index: usize| words.get(index).and_then(|word| word.parse::<usize>().ok()).unwrap_or_default();
    let version = match words.first() {
        Some(&"burst") => collection.change(number(1), ChangeKind::Modified),
        Some(&"churn") => collection.change(number(1), ChangeKind::Churned),
        Some(&"expire") => collection.expire(number(1), ChangeKind::Modified),
        Some(&"churn-and-expire") => collection.expire(number(1), ChangeKind::Churned),
        Some(&"cut") => {
            collection.cut();
            collection.change(0, ChangeKind::Modified)
        }
        // The computation takes seconds and must not block other connections of this thread.
        Some(&"checksum") => match tokio::task::block_in_place(|| collection.checksum()) {
            Ok(checksum) => checksum.sum(),
            Err(error) => {
                eprintln!("bench: {error}");
                return;
            }
        },
        Some(&"halt") => collection.halt(),
        Some(&"lists") => collection.served.lists(),
        Some(&"bytes") => collection.served.bytes(),
        // The kernel always reports the CPU time of the calling process.
        Some(&"processor") => (processor_time().unwrap_or_default() * 1e6) as u64,
        Some(&"paced") => {
            let (count, per_second) = (number(1), number(2).max(1));
            // The response contains the version after all changes, before the first one is made.
            let final_version = collection.change(0, ChangeKind::Modified) + count as u64;
            // The count is read before the response is sent. A `halt` that follows the response therefore stops the
            // changes even if their task has not started yet.
            let halt_count = collection.halt_count();
            tokio::spawn(make_paced_changes(collection, count, per_second, halt_count));
            final_version
        }
        _ => return,
    };
    // The client may have disconnected.
    let _ = socket.write_all(format!("{version}\n").as_bytes()).await;
}

/// Makes changes at regular intervals, until the number of `halt` commands exceeds `halt_count`. If changes are late,
/// several are made together.
async fn make_paced_changes(collection: Arc<Collection>, count: usize, per_second: usize, halt_count: u64) {
    let started = Instant::now();
    let mut change_count = 0;
    while change_count < count && collection.halt_count() == halt_count {
        // The number of due changes follows from the time, so that the task catches up after a delay.
        let due_count = (started.elapsed().as_secs_f64() * per_second as f64) as usize + 1;
        if due_count > change_count {
            collection.change(due_count.min(count) - change_count, ChangeKind::ModifiedWithTime);
            change_count = due_count.min(count);
        }
        sleep_until(started + Duration::from_secs_f64(change_count as f64 / per_second as f64)).await;
    }
}
