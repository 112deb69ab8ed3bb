//! Reviews, such as `SubjectAccessReview`: a client posts a question, and the response contains the result in the
//! status. Reviews are never stored.
//!
//! Every accepted user may perform every request, as `kubectl auth` reports.

use serde_json::{Value, json};

use super::exchange::Exchange;
use super::response::ApiResponse;
use super::route::ResourcePath;

/// Kind of a review.
pub(super) struct Review {
    pub(super) group: &'static str,
    pub(super) kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    variant: ReviewKind,
}

#[derive(Clone, Copy)]
enum ReviewKind {
    SubjectAccess,
    SelfRules,
    SelfSubject,
    Token,
}

const fn review(group: &'static str, kind: &'static str, plural: &'static str, variant: ReviewKind) -> Review {
    Review { group, kind, plural, namespaced: false, variant }
}

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// All reviews, in the order of discovery.
pub(super) const REVIEWS: &[Review] = &[
    review(AUTHENTICATION, "SelfSubjectReview", "selfsubjectreviews", ReviewKind::SelfSubject),
    review(AUTHENTICATION, "TokenReview", "tokenreviews", ReviewKind::Token),
    Review {
        namespaced: true,
        ..review(AUTHORIZATION, "LocalSubjectAccessReview", "localsubjectaccessreviews", ReviewKind::SubjectAccess)
    },
    review(AUTHORIZATION, "SelfSubjectAccessReview", "selfsubjectaccessreviews", ReviewKind::SubjectAccess),
    review(AUTHORIZATION, "SelfSubjectRulesReview", "selfsubjectrulesreviews", ReviewKind::SelfRules),
    review(AUTHORIZATION, "SubjectAccessReview", "subjectaccessreviews", ReviewKind::SubjectAccess),
];

/// Returns the review of a path.
pub(super) fn for_path(path: &ResourcePath) -> Option<&'static Review> {
    let matches = |review: &&Review| {
        review.group == path.group && review.plural == path.plural && review.namespaced == path.namespace.is_some()
    };
    let is_collection = path.version == "v1" && path.name.is_none() && path.subresource.is_none();
    REVIEWS.iter().filter(|_| is_collection).find(matches)
}

impl Review {
    /// Returns the entry in discovery.
    pub(super) fn entry(&self) -> Value {
        json!({
            "name": self.plural, "singularName": self.kind.to_lowercase(), "namespaced": self.namespaced,
            "kind": self.kind, "verbs": ["create"],
        })
    }

    /// Returns the object with its status.
    pub(super) fn respond(&self, exchange: &Exchange, object: &Value, user: Option<&str>) -> ApiResponse {
        // A caller without credentials counts as an administrator.
        let name = user.unwrap_or("admin");
        let user_info = json!({"username": name, "groups": ["system:masters", "system:authenticated"]});
        let status = match self.variant {
            ReviewKind::SubjectAccess => json!({"allowed": true}),
            ReviewKind::SelfRules => json!({
                "incomplete": false,
                "nonResourceRules": [{"nonResourceURLs": ["*"], "verbs": ["*"]}],
                "resourceRules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
            }),
            ReviewKind::SelfSubject => json!({"userInfo": user_info}),
            ReviewKind::Token => {
                let token = object.pointer("/spec/token").and_then(Value::as_str).unwrap_or_default();
                // Static tokens are compared first. Tokens of service accounts expire on the clock of the server.
                if exchange.cluster.tokens().iter().any(|known| known == token) {
                    json!({"authenticated": true, "user": user_info})
                } else if let Some(user) = exchange.cluster.issued_tokens.user(token, exchange.cluster.clock.seconds())
                {
                    json!({"authenticated": true, "user": {"username": user, "groups": ["system:serviceaccounts"]}})
                } else {
                    json!({"error": "invalid bearer token", "user": {}})
                }
            }
        };
        let metadata = match self.variant {
            ReviewKind::SelfSubject => json!({"creationTimestamp": exchange.cluster.clock.timestamp()}),
            _ => json!({}),
        };
        let spec = object.get("spec").cloned().unwrap_or_else(|| json!({}));
        let api_version = format!("{}/v1", self.group);
        let mut response = json!({"kind": self.kind, "apiVersion": api_version, "metadata": metadata});
        if !matches!(self.variant, ReviewKind::SelfSubject) {
            response["spec"] = spec;
        }
        response["status"] = status;
        ApiResponse::object(201, &response)
    }
}
