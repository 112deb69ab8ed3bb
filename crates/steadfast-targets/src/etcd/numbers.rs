//! Lease IDs and ends of prefix ranges, computed from strings.

/// Returns the lease ID for a mark and a prefix. The ID is equal in every release of this program.
pub(super) fn lease_id(mark: &str, prefix: &str) -> i64 {
    fnv_hash(&[mark, prefix])
}

/// FNV-1a over strings with a zero byte between them, as a positive number.
pub(super) fn fnv_hash(texts: &[&str]) -> i64 {
    let bytes = texts
        .iter()
        .enumerate()
        // A zero byte between the texts separates ("ab", "c") from ("a", "bc").
        .flat_map(|(number, text)| [0].into_iter().skip(usize::from(number == 0)).chain(text.bytes()));
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // etcd chooses an ID itself if a client passes 0, and IDs are signed.
    i64::try_from(hash >> 1).unwrap_or(i64::MAX).max(1)
}

/// Returns the first key after all keys with the prefix `prefix`. etcd reads `\0` as the end of all keys.
pub(super) fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    match prefix.iter().rposition(|byte| *byte < 0xff) {
        // The end of a prefix range is the prefix with its last byte incremented; bytes of 0xff are dropped.
        Some(last) => [&prefix[..last], &[prefix[last] + 1]].concat(),
        // A prefix of 0xff bytes only has no upper bound. etcd reads the range end `\0` as unbounded.
        None => vec![0],
    }
}
