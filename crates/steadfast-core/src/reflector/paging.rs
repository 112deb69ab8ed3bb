//! Pages of a list, and the evidence that the list will end.

use crate::version::ResourceVersion;

/// Progress of a list by its pages.
#[derive(Clone, Debug, Default)]
pub(super) struct Paging {
    /// Continue token of the current page.
    token: String,
    /// Set if the current page has delivered an object.
    has_objects: bool,
    /// Number of consecutive pages without an object.
    empty_pages: u32,
    /// Set after an object without a version.
    unversioned: bool,
}

/// Maximum number of consecutive empty pages. With selectors, a server may check many objects for each match.
const MAX_EMPTY_PAGES: u32 = 1000;

/// Maximum length of a continue token that is sent back, in bytes. Real tokens have a few hundred bytes, and servers
/// accept 1 MiB of headers.
const MAX_TOKEN_BYTES: usize = 64 * 1024;

impl Paging {
    /// Returns whether the current page continues another one.
    pub(super) fn is_continued(&self) -> bool {
        !self.token.is_empty()
    }

    /// Records an object of the current page.
    pub(super) fn add(&mut self, version: &ResourceVersion) {
        self.has_objects = true;
        self.unversioned |= !version.is_from_server();
    }

    /// Returns the version of the complete list. If its objects have no versions, a watch would deliver none either.
    /// Then no version exists to watch from (C12).
    pub(super) fn version(&self, listed: Option<ResourceVersion>) -> Option<ResourceVersion> {
        listed.filter(|_| !self.unversioned)
    }

    /// Continues with the page of `token`. Returns the reason as an error if the list shows no sign of an end.
    pub(super) fn next_page(&mut self, token: &str) -> Result<(), String> {
        if token.len() > MAX_TOKEN_BYTES {
            let bytes = token.len();
            return Err(format!("the continue token has {bytes} bytes, above the limit of {MAX_TOKEN_BYTES} bytes"));
        }
        // An equal token would request the same page forever.
        if self.token == token {
            return Err("the list does not end: a page returned the continue token of its own request".to_owned());
        }
        token.clone_into(&mut self.token);
        self.empty_pages = if std::mem::take(&mut self.has_objects) { 0 } else { self.empty_pages + 1 };
        if self.empty_pages > MAX_EMPTY_PAGES {
            return Err(format!("the list does not end: {} consecutive pages have no object", self.empty_pages));
        }
        Ok(())
    }
}
