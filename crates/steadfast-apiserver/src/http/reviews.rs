//! Reviews, such as `SubjectAccessReview`: a client posts a question, and the response contains the result in the
//! status. Reviews are never stored.
//!
//! Every accepted user may perform every request, as `kubectl auth` reports.

use serde_json::{Value, json};

use super::answer::Answer;
use super::exchange::Exchange;
use super::route::ResourcePath;

/// Kind of a review.
pub(super) struct Review {
    pub(super) group: &'static str,
    pub(super) kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    asks: Question,
}

#[derive(Clone, Copy)]
enum Question {
    MayThey,
    WhatMayI,
    WhoAmI,
    WhoHasToken,
}

const fn review(group: &'static str, kind: &'static str, plural: &'static str, asks: Question) -> Review {
    Review { group, kind, plural, namespaced: false, asks }
}

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// All reviews, in the order of discovery.
pub(super) const ALL: &[Review] = &[
    review(AUTHENTICATION, "SelfSubjectReview", "selfsubjectreviews", Question::WhoAmI),
    review(AUTHENTICATION, "TokenReview", "tokenreviews", Question::WhoHasToken),
    Review {
        namespaced: true,
        ..review(AUTHORIZATION, "LocalSubjectAccessReview", "localsubjectaccessreviews", Question::MayThey)
    },
    review(AUTHORIZATION, "SelfSubjectAccessReview", "selfsubjectaccessreviews", Question::MayThey),
    review(AUTHORIZATION, "SelfSubjectRulesReview", "selfsubjectrulesreviews", Question::WhatMayI),
    review(AUTHORIZATION, "SubjectAccessReview", "subjectaccessreviews", Question::MayThey),
];

/// Returns the review of a path.
pub(super) fn of(path: &ResourcePath) -> Option<&'static Review> {
    let matches = |review: &&Review| {
        review.group == path.group && review.plural == path.plural && review.namespaced == path.namespace.is_some()
    };
    let whole = path.version == "v1" && path.name.is_none() && path.subresource.is_none();
    ALL.iter().filter(|_| whole).find(matches)
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
    pub(super) fn answer(&self, exchange: &Exchange, object: &Value, user: Option<&str>) -> Answer {
        // A caller without credentials counts as an administrator.
        let name = user.unwrap_or("admin");
        let user_info = json!({"username": name, "groups": ["system:masters", "system:authenticated"]});
        let status = match self.asks {
            Question::MayThey => json!({"allowed": true}),
            Question::WhatMayI => json!({
                "incomplete": false,
                "nonResourceRules": [{"nonResourceURLs": ["*"], "verbs": ["*"]}],
                "resourceRules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
            }),
            Question::WhoAmI => json!({"userInfo": user_info}),
            Question::WhoHasToken => {
                let token = object.pointer("/spec/token").and_then(Value::as_str).unwrap_or_default();
                // Static tokens are compared first. Tokens of service accounts expire on the clock of the server.
                if exchange.cluster.tokens().iter().any(|known| known == token) {
                    json!({"authenticated": true, "user": user_info})
                } else if let Some(user) = exchange.cluster.issued.user(token, exchange.cluster.clock.seconds()) {
                    json!({"authenticated": true, "user": {"username": user, "groups": ["system:serviceaccounts"]}})
                } else {
                    json!({"error": "invalid bearer token", "user": {}})
                }
            }
        };
        let metadata = match self.asks {
            Question::WhoAmI => json!({"creationTimestamp": exchange.cluster.clock.timestamp()}),
            _ => json!({}),
        };
        let spec = object.get("spec").cloned().unwrap_or_else(|| json!({}));
        let api_version = format!("{}/v1", self.group);
        let mut answer = json!({"kind": self.kind, "apiVersion": api_version, "metadata": metadata});
        if !matches!(self.asks, Question::WhoAmI) {
            answer["spec"] = spec;
        }
        answer["status"] = status;
        Answer::said(201, &answer)
    }
}
