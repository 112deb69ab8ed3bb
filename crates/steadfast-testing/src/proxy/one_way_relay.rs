//! One direction of a connection: bytes are accepted, delayed and forwarded.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use steadfast_core::random::Random;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::link::{Condition, Link, StreamDirection};
use super::report::ConnectionEnd;

/// Maximum number of bytes that a relay keeps. At this number, the relay stops reading, and the sender's buffers fill.
const MAX_PENDING_BYTES: usize = 256 * 1024;
/// Maximum number of pieces that a relay keeps.
const MAX_PENDING_PIECES: usize = 4096;
/// Maximum number of bytes per read.
pub(super) const MAX_READ_BYTES: usize = 16 * 1024;
/// Time step of a throttled relay, which forwards all bytes of one step together.
const THROTTLE_STEP: Duration = Duration::from_millis(50);

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct OneWayRelay {
    direction: StreamDirection,
    pending: VecDeque<Piece>,
    pending_bytes: usize,
    /// Due time of the last accepted byte. No later byte may be forwarded earlier.
    last_due: Option<Instant>,
    /// Instant from which the throttle admits the next bytes.
    next_admission: Option<Instant>,
    random: Random,
    needs_flush: bool,
    source: SourceState,
    /// True after the sink has received the end.
    is_shut_down: bool,
}

/// State of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceState {
    Open,
    Discarded,
    /// The source sends nothing more.
    Ended,
}

/// Bytes in flight.
#[derive(Debug)]
struct Piece {
    read_at: Instant,
    due: Instant,
    bytes: Vec<u8>,
    written: usize,
}

/// Result of `OneWayRelay::step`, which moves the bytes that can move now.
pub(super) enum RelayStep {
    /// The relay waits. `has_moved` is true if bytes moved. `poll_at` is the instant of the next poll.
    Waits { has_moved: bool, poll_at: Option<Instant> },
    /// A fault ends the connection at this point of the stream.
    Cut(ConnectionEnd),
}

impl OneWayRelay {
    pub(super) fn new(direction: StreamDirection, random: Random) -> Self {
        Self {
            direction,
            pending: VecDeque::new(),
            pending_bytes: 0,
            last_due: None,
            next_admission: None,
            random,
            needs_flush: false,
            source: SourceState::Open,
            is_shut_down: false,
        }
    }

    /// Forwards the pending bytes, then the end. Later bytes of the source are dropped.
    pub(super) fn half_close(&mut self) {
        if self.source == SourceState::Open {
            // An ended source stays ended, because it has no bytes to drop.
            self.source = SourceState::Discarded;
        }
    }

    /// Returns `true` if no more bytes can pass.
    pub(super) fn is_finished(&self) -> bool {
        self.is_shut_down && self.source == SourceState::Ended
    }

    /// Drops all bytes, and sends nothing more to the sink.
    pub(super) fn drop_all(&mut self) {
        self.pending.clear();
        self.pending_bytes = 0;
        self.half_close();
        self.is_shut_down = true;
    }

    /// Moves the bytes that can move now. Returns an error if one of the streams is broken.
    pub(super) fn step(
        &mut self,
        (source, sink): (&mut (impl AsyncRead + Unpin), &mut (impl AsyncWrite + Unpin)),
        (condition, link): (&Condition, &Link),
        scratch: &mut [u8],
        context: &mut Context<'_>,
    ) -> io::Result<RelayStep> {
        let (mut has_moved, mut poll_at) = (false, None);
        let now = Instant::now();
        let lateness = link.lateness(self.direction);
        // Lateness counts from the arrival at the relay, and not from the delayed due time. The relay simulates the
        // sender's kernel.
        let deadline = |relay: &Self| Some(relay.pending.front()?.read_at + lateness?);
        // `TCP_USER_TIMEOUT` aborts a connection with unacknowledged data even if the path recovers later.
        if deadline(self).is_some_and(|deadline| deadline <= now) {
            return Ok(RelayStep::Cut(ConnectionEnd::Reset));
        }
        if condition.is_black_hole[self.direction as usize] {
            // If lateness is limited, each piece needs the time of its arrival, so all available pieces are read.
            while lateness.is_some() && self.read_piece(source, condition, now, scratch, context)? {
                has_moved = true;
            }
            return Ok(RelayStep::Waits { has_moved, poll_at: deadline(self) });
        }
        // The limit prevents a source that always has more bytes from occupying the task.
        for _ in 0..16 {
            // A frozen relay continues to read, up to the buffer size, because a real middlebox acknowledges data for
            // the stalled side.
            let was_read = self.read_piece(source, condition, now, scratch, context)?;
            if condition.is_frozen {
                has_moved |= was_read;
                if was_read {
                    continue;
                }
                return Ok(RelayStep::Waits { has_moved, poll_at: deadline(self) });
            }
            let progress = self.write_due(sink, condition, link, now, context)?;
            has_moved |= was_read | progress.has_moved;
            if let Some(cut) = progress.cut {
                return Ok(RelayStep::Cut(cut));
            }
            poll_at = progress.poll_at.into_iter().chain(deadline(self)).min();
            if !was_read && !progress.has_moved {
                return Ok(RelayStep::Waits { has_moved, poll_at });
            }
        }
        // More bytes may be available. The task yields to others and polls again.
        context.waker().wake_by_ref();
        Ok(RelayStep::Waits { has_moved, poll_at })
    }

    /// Reads a piece from the source. Returns `false` if none is available.
    fn read_piece(
        &mut self,
        source: &mut (impl AsyncRead + Unpin),
        condition: &Condition,
        now: Instant,
        scratch: &mut [u8],
        context: &mut Context<'_>,
    ) -> io::Result<bool> {
        // A full relay applies backpressure through the pipe or socket. A relay that throws bytes away never fills.
        let is_full = self.pending_bytes >= MAX_PENDING_BYTES || self.pending.len() >= MAX_PENDING_PIECES;
        if self.source == SourceState::Ended || is_full && self.source == SourceState::Open {
            return Ok(false);
        }
        let is_discarding = self.source == SourceState::Discarded;
        let mut read_buffer = ReadBuf::new(scratch);
        match Pin::new(source).poll_read(context, &mut read_buffer) {
            Poll::Pending => return Ok(false),
            // If the bytes of a source are dropped, its errors affect no receiver. An error then only means that no
            // more bytes follow.
            Poll::Ready(Err(_)) if is_discarding => self.source = SourceState::Ended,
            Poll::Ready(Err(error)) => return Err(error),
            Poll::Ready(Ok(())) if read_buffer.filled().is_empty() => self.source = SourceState::Ended,
            Poll::Ready(Ok(())) if is_discarding => {}
            Poll::Ready(Ok(())) => self.enqueue(read_buffer.filled(), condition, now),
        }
        Ok(true)
    }

    fn enqueue(&mut self, bytes: &[u8], condition: &Condition, now: Instant) {
        let delay = condition.delay + self.random.between(Duration::ZERO, condition.jitter);
        // The maximum keeps the order of bytes under jitter: a piece with a short delay waits for its predecessor.
        let due = self.last_due.map_or(now + delay, |last| last.max(now + delay));
        self.last_due = Some(due);
        self.pending_bytes += bytes.len();
        self.pending.push_back(Piece { read_at: now, due, bytes: bytes.to_vec(), written: 0 });
    }

    /// Writes the due bytes to the sink.
    fn write_due(
        &mut self,
        sink: &mut (impl AsyncWrite + Unpin),
        condition: &Condition,
        link: &Link,
        now: Instant,
        context: &mut Context<'_>,
    ) -> io::Result<WriteProgress> {
        let mut progress = WriteProgress::default();
        let mut cut = link.cut(self.direction);
        // A limit of zero ends the connection before any byte, even if no byte is pending.
        if let Some(cut) = cut.filter(|cut| cut.remaining_bytes == 0) {
            return Ok(WriteProgress { cut: Some(cut.end), ..progress });
        }
        while let Some(piece) = self.pending.front_mut() {
            let next_admission = condition.bytes_per_second.and(self.next_admission).unwrap_or(now);
            let due = piece.due.max(next_admission);
            if due > now {
                progress.poll_at = Some(due);
                break;
            }
            let mut allowed_bytes = piece.bytes.len() - piece.written;
            if let Some(rate) = condition.bytes_per_second {
                allowed_bytes = allowed_bytes.min(step_bytes(rate));
            }
            // The piece is split exactly at the limit, so that the receiver gets the specified number of bytes.
            if let Some(cut) = cut {
                allowed_bytes = allowed_bytes.min(usize::try_from(cut.remaining_bytes).unwrap_or(usize::MAX));
            }
            let bytes = &piece.bytes[piece.written..piece.written + allowed_bytes];
            let written = match Pin::new(&mut *sink).poll_write(context, bytes) {
                Poll::Pending => break,
                Poll::Ready(written) => written?,
            };
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            piece.written += written;
            if piece.written == piece.bytes.len() {
                self.pending.pop_front();
            }
            self.pending_bytes -= written;
            self.needs_flush = true;
            progress.has_moved = true;
            link.count(self.direction, written);
            // The next bytes wait for as long as the transfer of the written bytes takes at this rate.
            self.next_admission =
                condition.bytes_per_second.map(|rate| now + Duration::from_secs_f64(written as f64 / rate as f64));
            if let Some(cut) = &mut cut {
                cut.remaining_bytes -= written as u64;
                if cut.remaining_bytes == 0 {
                    progress.cut = Some(cut.end);
                    break;
                }
            }
        }
        // A flush may be pending from an earlier turn. Without the flush, TLS or pipes could keep bytes that count as
        // delivered.
        if self.needs_flush
            && let Poll::Ready(flushed) = Pin::new(&mut *sink).poll_flush(context)
        {
            flushed?;
            self.needs_flush = false;
        }
        // The end follows the last byte: a FIN must not overtake data in flight.
        let is_at_end = self.pending.is_empty() && self.source != SourceState::Open;
        if is_at_end && !self.is_shut_down && Pin::new(sink).poll_shutdown(context).is_ready() {
            // An error here means that the sink is already closed.
            self.is_shut_down = true;
            progress.has_moved = true;
        }
        Ok(progress)
    }
}

/// Bytes that were written to the sink.
#[derive(Default)]
struct WriteProgress {
    has_moved: bool,
    poll_at: Option<Instant>,
    cut: Option<ConnectionEnd>,
}

fn step_bytes(rate: u64) -> usize {
    let bytes = rate.saturating_mul(THROTTLE_STEP.as_millis() as u64) / 1000;
    usize::try_from(bytes.max(1)).unwrap_or(usize::MAX)
}
