//! CEL validation in builds without the feature `crd`: no rule is evaluated.

/// Replacement for the results of CEL validation rules. Without the feature, no write needs a result.
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
