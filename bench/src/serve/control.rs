//! What the run tells the server to do, one line a connection.
//!
//! | line | what it does | what it answers |
//! |---|---|---|
//! | `burst COUNT` | modifies objects | the version of the last change, as all others that name none |
//! | `paced COUNT PER-SECOND` | the same, at even distances | the version that there will be |
//! | `halt` | ends what is paced | |
//! | `expire COUNT` | modifies objects, and forgets that and all before | |
//! | `churn COUNT` | modifies, deletes and creates objects | |
//! | `churn-and-expire COUNT` | the same, and forgets that and all before | |
//! | `cut` | ends all connections | |
//! | `checksum` | | what the objects come to |
//! | `lists`, `bytes`, `processor` | | how many were asked for; what was sent of the objects; microseconds that were used |

use std::sync::Arc;
use std::time::Duration;

use steadfast_bench_controllers::processor_time;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};

use super::collection::{Collection, Sort};

/// Does what it is told, and answers each time with the version that the collection has then.
pub(super) async fn run(listener: TcpListener, collection: Arc<Collection>) {
    while let Ok((socket, _)) = listener.accept().await {
        tokio::spawn(obey(socket, collection.clone()));
    }
}

async fn obey(socket: TcpStream, collection: Arc<Collection>) {
    let mut socket = BufReader::new(socket);
    let mut line = String::new();
    if socket.read_line(&mut line).await.is_err() {
        return;
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |index: usize| words.get(index).and_then(|word| word.parse::<usize>().ok()).unwrap_or_default();
    let version = match words.first() {
        Some(&"burst") => collection.change(number(1), Sort::Modified),
        Some(&"churn") => collection.change(number(1), Sort::Churned),
        Some(&"expire") => collection.expire(number(1), Sort::Modified),
        Some(&"churn-and-expire") => collection.expire(number(1), Sort::Churned),
        Some(&"cut") => {
            collection.cut();
            collection.change(0, Sort::Modified)
        }
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
        // The kernel tells everybody.
        Some(&"processor") => (processor_time().unwrap_or_default() * 1e6) as u64,
        Some(&"paced") => {
            let (count, per_second) = (number(1), number(2).max(1));
            let target = collection.change(0, Sort::Modified) + count as u64;
            tokio::spawn(paced(collection, count, per_second));
            target
        }
        _ => return,
    };
    // Whoever asked may have gone away.
    let _ = socket.write_all(format!("{version}\n").as_bytes()).await;
}

/// Makes changes at even distances; where it is late, more of them at once.
async fn paced(collection: Arc<Collection>, count: usize, per_second: usize) {
    let begun = Instant::now();
    let mut made = 0;
    let halts = collection.halts();
    while made < count && collection.halts() == halts {
        let due = (begun.elapsed().as_secs_f64() * per_second as f64) as usize + 1;
        if due > made {
            collection.change(due.min(count) - made, Sort::Stamped);
            made = due.min(count);
        }
        sleep_until(begun + Duration::from_secs_f64(made as f64 / per_second as f64)).await;
    }
}
