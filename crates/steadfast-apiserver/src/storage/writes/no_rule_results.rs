//! CEL validation in builds without the feature `crd`: no rule is evaluated.

/// Result of the CEL validation rules for one write; never needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleResults {}

impl RuleResults {
    #[expect(clippy::unused_self, reason = "the same interface as with the feature")]
    pub(super) fn is_pending(&self) -> bool {
        false
    }

    #[expect(clippy::unused_self, reason = "the same interface as with the feature")]
    pub(crate) fn decide(&self) -> bool {
        false
    }
}
