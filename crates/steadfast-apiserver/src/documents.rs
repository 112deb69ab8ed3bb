//! Cache of encoded documents that are expensive to build, by path and tag.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;

/// Maximum number of documents, one for each group and version. Beyond the limit the cache is emptied, and documents
/// are built again on request.
const MAX_DOCUMENTS: usize = 2048;

/// Cache of encoded documents. Each path has one document, for the last requested tag.
#[derive(Debug, Default)]
pub(crate) struct DocumentCache(Mutex<BTreeMap<String, (String, Bytes)>>);

impl DocumentCache {
    /// Returns the document of a path and tag. Calls `build` if the cache does not contain it.
    ///
    /// `build` runs without a lock. Concurrent requests may each build the document.
    pub(crate) fn get_or_build(&self, path: &str, tag: &str, build: impl FnOnce() -> Bytes) -> Bytes {
        let cached = self.0.lock().get(path).cloned();
        if let Some((_, bytes)) = cached.filter(|(cached_tag, _)| cached_tag == tag) {
            return bytes;
        }
        // The document is built without the lock. Concurrent builds have equal results.
        let bytes = build();
        let mut documents = self.0.lock();
        // Definitions can be created without a limit, so the cache needs a bound.
        if documents.len() >= MAX_DOCUMENTS {
            documents.clear();
        }
        documents.insert(path.to_owned(), (tag.to_owned(), bytes.clone()));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use bytes::Bytes;

    use super::DocumentCache;

    #[test]
    fn document_is_built_once_for_each_tag() {
        let cache = DocumentCache::default();
        let build_count = Cell::new(0);
        let get = |path: &str, tag: &str| {
            cache.get_or_build(path, tag, || {
                build_count.set(build_count.get() + 1);
                Bytes::from(format!("{path} {tag}"))
            })
        };
        assert_eq!((get("a", "1"), get("a", "1"), build_count.get()), ("a 1".into(), "a 1".into(), 1));
        assert_eq!((get("a", "2"), get("b", "1"), build_count.get()), ("a 2".into(), "b 1".into(), 3));
        assert_eq!((get("a", "2"), get("b", "1"), build_count.get()), ("a 2".into(), "b 1".into(), 3));
    }
}
