//! Streaming decompression of response bodies.

use std::io::{self, Write};

use bytes::{Buf, Bytes};
use flate2::write::MultiGzDecoder;

/// Number of input bytes that one step decompresses. At gzip's maximum ratio of about 1,000 the output is one megabyte.
const STEP_BYTES: usize = 1024;

/// Minimum size of an output chunk, if enough data is available.
const MIN_CHUNK_BYTES: usize = 64 * 1024;

/// Maximum number of input bytes for one output chunk. Some bodies produce no output, for example many empty gzip
/// members, each of which costs as much as hundreds of its bytes.
const MAX_INPUT_BYTES: usize = 16 * STEP_BYTES;

/// Decompressor of one body.
///
/// A body may have many members (RFC 1952, 2.2). Kubernetes ends a member at each flush of a streamed list
/// (`perFlushGzipWriter`), which happens whenever no event is ready, also within the list.
pub(super) struct Gunzip {
    decoder: MultiGzDecoder<Vec<u8>>,
    /// Input that is not decompressed yet.
    input: Bytes,
    /// True if written data may not have been flushed.
    needs_flush: bool,
}

impl Default for Gunzip {
    fn default() -> Self {
        Self { decoder: MultiGzDecoder::new(Vec::new()), input: Bytes::new(), needs_flush: false }
    }
}

impl Gunzip {
    /// Decompresses the first `limit` bytes of a complete body, or fewer if it is corrupt.
    pub(super) fn decompressed_prefix(body: Bytes, limit: usize) -> Bytes {
        let mut gunzip = Self::default();
        gunzip.feed(body);
        let mut text = Vec::new();
        while text.len() < limit && gunzip.has_more() {
            match gunzip.next_chunk() {
                Ok(chunk) => text.extend(chunk.unwrap_or_default()),
                Err(_) => break,
            }
        }
        text.truncate(limit);
        text.into()
    }

    /// Adds input. The previous input must be [decompressed](Self::next_chunk) before.
    pub(super) fn feed(&mut self, chunk: Bytes) {
        self.input = chunk;
    }

    /// Returns true if the input may contain another chunk.
    pub(super) fn has_more(&self) -> bool {
        self.needs_flush || !self.input.is_empty()
    }

    /// Returns the next output chunk, or `None` if the processed input produced no output.
    ///
    /// # Errors
    ///
    /// Returns an error if the body is not valid gzip, or has other data after its end.
    pub(super) fn next_chunk(&mut self) -> io::Result<Option<Bytes>> {
        let min_remaining = self.input.len().saturating_sub(MAX_INPUT_BYTES);
        while self.decoder.get_ref().len() < MIN_CHUNK_BYTES && self.input.len() > min_remaining {
            let step = self.input.len().min(STEP_BYTES);
            self.decoder.write_all(&self.input[..step])?;
            self.input.advance(step);
            self.needs_flush = true;
        }
        if self.input.is_empty() {
            // An event may be buffered in the decoder, with no input behind it for a long time.
            self.decoder.flush()?;
            self.needs_flush = false;
        }
        let chunk = std::mem::take(self.decoder.get_mut());
        Ok((!chunk.is_empty()).then(|| chunk.into()))
    }

    /// Returns true if the body ended at the end of a gzip member with a correct checksum.
    pub(super) fn is_complete(&mut self) -> bool {
        self.decoder.try_finish().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).expect("a write to memory succeeds");
        encoder.finish().expect("a write to memory succeeds")
    }

    fn unpacked(gunzip: &mut Gunzip, chunk: &[u8]) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        gunzip.feed(Bytes::copy_from_slice(chunk));
        while gunzip.has_more() {
            text.extend(gunzip.next_chunk()?.unwrap_or_default());
        }
        Ok(text)
    }

    #[test]
    fn chunking_does_not_change_body() {
        let text: Vec<u8> = (0..200_000u32).flat_map(|number| number.wrapping_mul(number).to_le_bytes()).collect();
        let packed = packed(&text);
        for size in [1, 7, 100, STEP_BYTES, STEP_BYTES + 1, packed.len()] {
            let mut gunzip = Gunzip::default();
            let mut output = Vec::new();
            for chunk in packed.chunks(size) {
                output.extend(unpacked(&mut gunzip, chunk).expect("valid gzip"));
            }
            assert!(output == text && gunzip.is_complete(), "cut by {size}");
        }
    }

    #[test]
    fn complete_body_has_decompressed_prefix() {
        let text = b"a refusal ".repeat(100);
        assert_eq!(Gunzip::decompressed_prefix(packed(&text).into(), 5_000), text);
        assert_eq!(Gunzip::decompressed_prefix(packed(&text).into(), 15), text[..15]);
        assert_eq!(Gunzip::decompressed_prefix(Bytes::from_static(b"a plain refusal"), 15), b""[..]);
    }

    #[test]
    fn flushed_data_is_returned_immediately() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let mut gunzip = Gunzip::default();
        for event in ["one", "another", "a third"] {
            encoder.write_all(event.as_bytes()).expect("a write to memory succeeds");
            encoder.flush().expect("a write to memory succeeds");
            let output = unpacked(&mut gunzip, &std::mem::take(encoder.get_mut())).expect("valid gzip");
            assert_eq!(output, event.as_bytes());
        }
        assert!(!gunzip.is_complete());
    }

    #[test]
    fn multiple_gzip_members_form_one_body() {
        let events = ["one ", "another ", "", "a third "];
        let stream: Vec<u8> = events.iter().flat_map(|event| packed(event.as_bytes())).collect();
        for size in 1..=stream.len() {
            let mut gunzip = Gunzip::default();
            let mut output = Vec::new();
            for chunk in stream.chunks(size) {
                output.extend(unpacked(&mut gunzip, chunk).expect("valid gzip"));
            }
            assert!(output == events.concat().as_bytes() && gunzip.is_complete(), "cut by {size}");
        }
        let mut gunzip = Gunzip::default();
        for event in events {
            let output = unpacked(&mut gunzip, &packed(event.as_bytes())).expect("valid gzip");
            assert_eq!(output, event.as_bytes(), "the event is returned before the next one arrives");
        }
    }

    #[test]
    fn empty_output_is_read_in_steps() {
        let mut gunzip = Gunzip::default();
        gunzip.feed(packed(b"").repeat(10_000).into());
        let mut steps = 0;
        while gunzip.has_more() {
            let before = gunzip.input.len();
            assert_eq!(gunzip.next_chunk().expect("valid gzip"), None);
            assert!(before - gunzip.input.len() <= MAX_INPUT_BYTES);
            steps += 1;
        }
        assert!(steps >= 10, "{steps}");
    }

    #[test]
    fn decompression_bomb_yields_bounded_chunks() {
        let bomb = packed(&vec![0; 64 << 20]);
        let mut gunzip = Gunzip::default();
        gunzip.feed(bomb.into());
        let (mut all, mut most) = (0, 0);
        while gunzip.has_more() {
            let chunk = gunzip.next_chunk().expect("valid gzip").map_or(0, |chunk| chunk.len());
            (all, most) = (all + chunk, most.max(chunk));
        }
        assert!(all == 64 << 20 && most < 2 << 20, "{all} bytes, {most} at once");
    }

    #[test]
    fn corrupt_gzip_is_reported() {
        let text = b"the same again and again ".repeat(100);
        let whole = packed(&text);
        for place in 10..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 0x55;
            let mut gunzip = Gunzip::default();
            let output = unpacked(&mut gunzip, &damaged);
            assert!(
                output.is_err() || !gunzip.is_complete() || output.is_ok_and(|output| output == text),
                "at {place}"
            );
        }
        let mut cut = Gunzip::default();
        unpacked(&mut cut, &whole[..whole.len() - 9]).expect("the available part is valid gzip");
        assert!(!cut.is_complete());
        let mut more = Gunzip::default();
        assert!(unpacked(&mut more, &[&whole[..], b"more"].concat()).is_err() || !more.is_complete());
        assert!(unpacked(&mut Gunzip::default(), &[&whole[..], b"more than a head"].concat()).is_err());
        let mut damaged = whole.clone();
        let sum = damaged.len() - 8;
        damaged[sum] ^= 1;
        assert!(unpacked(&mut Gunzip::default(), &[&damaged[..], &whole].concat()).is_err(), "a sum within the body");
        assert!(unpacked(&mut Gunzip::default(), b"{\"kind\":\"PodList\"}").is_err());
    }
}
