//! One way through a connection: what is taken in, held, and handed on.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use steadfast_core::random::Random;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::link::{Condition, Link, Way};
use super::report::Ended;

/// How many bytes a lane holds at most; then it stops taking any, and the sender's buffers fill.
const HELD_BYTES: usize = 256 * 1024;
/// And how many pieces.
const HELD_PIECES: usize = 4096;
/// How many bytes are taken at a time.
pub(super) const PIECE_BYTES: usize = 16 * 1024;
/// A throttled lane hands on what this time allows at once.
const THROTTLE_STEP: Duration = Duration::from_millis(50);

/// One way through a connection.
#[derive(Debug)]
pub(super) struct Lane {
    way: Way,
    held: VecDeque<Piece>,
    held_bytes: usize,
    /// When the last byte that was taken may go on: none overtakes it.
    last_due: Option<Instant>,
    /// When the throttle lets the next bytes through.
    free_at: Option<Instant>,
    random: Random,
    unflushed: bool,
    source: Source,
    /// Whether its sink has seen the end.
    shut: bool,
}

/// What becomes of what the source says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Carried,
    ThrownAway,
    /// It says nothing any more.
    Ended,
}

/// Bytes on their way.
#[derive(Debug)]
struct Piece {
    taken: Instant,
    due: Instant,
    bytes: Vec<u8>,
    gone: usize,
}

/// What a turn of a lane comes to.
pub(super) enum Turn {
    /// It waits; whether bytes moved, and when it wants to be asked again.
    Waits { moved: bool, until: Option<Instant> },
    /// A fault ends the connection here.
    Cut(Ended),
}

impl Lane {
    pub(super) fn new(way: Way, random: Random) -> Self {
        Self {
            way,
            held: VecDeque::new(),
            held_bytes: 0,
            last_due: None,
            free_at: None,
            random,
            unflushed: false,
            source: Source::Carried,
            shut: false,
        }
    }

    /// Hands on what is held, then the end; what the source says from now on is thrown away.
    pub(super) fn half_close(&mut self) {
        if self.source == Source::Carried {
            self.source = Source::ThrownAway;
        }
    }

    /// Whether nothing can come through any more.
    pub(super) fn is_over(&self) -> bool {
        self.shut && self.source == Source::Ended
    }

    /// Throws everything away, and tells the sink nothing any more.
    pub(super) fn drop_all(&mut self) {
        self.held.clear();
        self.held_bytes = 0;
        self.half_close();
        self.shut = true;
    }

    /// Moves what can be moved now; an error where one of the streams is broken.
    pub(super) fn turn(
        &mut self,
        (source, sink): (&mut (impl AsyncRead + Unpin), &mut (impl AsyncWrite + Unpin)),
        (condition, link): (&Condition, &Link),
        scratch: &mut [u8],
        context: &mut Context<'_>,
    ) -> io::Result<Turn> {
        let (mut moved, mut until) = (false, None);
        let now = Instant::now();
        let lateness = link.lateness(self.way);
        let expires = |lane: &Self| Some(lane.held.front()?.taken + lateness?);
        if expires(self).is_some_and(|expires| expires <= now) {
            return Ok(Turn::Cut(Ended::Reset));
        }
        if condition.hole[self.way as usize] {
            // Where it matters how long something has waited, it is dated.
            while lateness.is_some() && self.take(source, condition, now, scratch, context)? {
                moved = true;
            }
            return Ok(Turn::Waits { moved, until: expires(self) });
        }
        // A source that never pauses must not keep this task to itself.
        for _ in 0..16 {
            let taken = self.take(source, condition, now, scratch, context)?;
            if condition.frozen {
                moved |= taken;
                if taken {
                    continue;
                }
                return Ok(Turn::Waits { moved, until: expires(self) });
            }
            let given = self.give(sink, condition, link, now, context)?;
            moved |= taken | given.moved;
            if let Some(cut) = given.cut {
                return Ok(Turn::Cut(cut));
            }
            until = given.until.into_iter().chain(expires(self)).min();
            if !taken && !given.moved {
                return Ok(Turn::Waits { moved, until });
            }
        }
        context.waker().wake_by_ref();
        Ok(Turn::Waits { moved, until })
    }

    /// Takes a piece from the source; whether there was one.
    fn take(
        &mut self,
        source: &mut (impl AsyncRead + Unpin),
        condition: &Condition,
        now: Instant,
        scratch: &mut [u8],
        context: &mut Context<'_>,
    ) -> io::Result<bool> {
        let full = self.held_bytes >= HELD_BYTES || self.held.len() >= HELD_PIECES;
        if self.source == Source::Ended || full && self.source == Source::Carried {
            return Ok(false);
        }
        let thrown_away = self.source == Source::ThrownAway;
        let mut into = ReadBuf::new(scratch);
        match Pin::new(source).poll_read(context, &mut into) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Err(_)) if thrown_away => self.source = Source::Ended,
            Poll::Ready(Err(error)) => return Err(error),
            Poll::Ready(Ok(())) if into.filled().is_empty() => self.source = Source::Ended,
            Poll::Ready(Ok(())) if thrown_away => {}
            Poll::Ready(Ok(())) => self.hold(into.filled(), condition, now),
        }
        Ok(true)
    }

    fn hold(&mut self, bytes: &[u8], condition: &Condition, now: Instant) {
        let delay = condition.delay + self.random.between(Duration::ZERO, condition.jitter);
        let due = self.last_due.map_or(now + delay, |last| last.max(now + delay));
        self.last_due = Some(due);
        self.held_bytes += bytes.len();
        self.held.push_back(Piece { taken: now, due, bytes: bytes.to_vec(), gone: 0 });
    }

    /// Gives the sink what is due.
    fn give(
        &mut self,
        sink: &mut (impl AsyncWrite + Unpin),
        condition: &Condition,
        link: &Link,
        now: Instant,
        context: &mut Context<'_>,
    ) -> io::Result<Given> {
        let mut given = Given::default();
        let mut cut = link.cut(self.way);
        if let Some(cut) = cut.filter(|cut| cut.after == 0) {
            return Ok(Given { cut: Some(cut.how), ..given });
        }
        while let Some(piece) = self.held.front_mut() {
            let free_at = condition.rate.and(self.free_at).unwrap_or(now);
            let due = piece.due.max(free_at);
            if due > now {
                given.until = Some(due);
                break;
            }
            let mut allowed = piece.bytes.len() - piece.gone;
            if let Some(rate) = condition.rate {
                allowed = allowed.min(step_bytes(rate));
            }
            if let Some(cut) = cut {
                allowed = allowed.min(usize::try_from(cut.after).unwrap_or(usize::MAX));
            }
            let bytes = &piece.bytes[piece.gone..piece.gone + allowed];
            let written = match Pin::new(&mut *sink).poll_write(context, bytes) {
                Poll::Pending => break,
                Poll::Ready(written) => written?,
            };
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            piece.gone += written;
            if piece.gone == piece.bytes.len() {
                self.held.pop_front();
            }
            self.held_bytes -= written;
            self.unflushed = true;
            given.moved = true;
            link.count(self.way, written);
            self.free_at = condition.rate.map(|rate| now + Duration::from_secs_f64(written as f64 / rate as f64));
            if let Some(cut) = &mut cut {
                cut.after -= written as u64;
                if cut.after == 0 {
                    given.cut = Some(cut.how);
                    break;
                }
            }
        }
        if self.unflushed
            && let Poll::Ready(flushed) = Pin::new(&mut *sink).poll_flush(context)
        {
            flushed?;
            self.unflushed = false;
        }
        let over = self.held.is_empty() && self.source != Source::Carried;
        if over && !self.shut && Pin::new(sink).poll_shutdown(context).is_ready() {
            // Where the sink is gone already there is nobody left to tell.
            self.shut = true;
            given.moved = true;
        }
        Ok(given)
    }
}

/// What the sink was given.
#[derive(Default)]
struct Given {
    moved: bool,
    until: Option<Instant>,
    cut: Option<Ended>,
}

fn step_bytes(rate: u64) -> usize {
    let bytes = rate.saturating_mul(THROTTLE_STEP.as_millis() as u64) / 1000;
    usize::try_from(bytes.max(1)).unwrap_or(usize::MAX)
}
