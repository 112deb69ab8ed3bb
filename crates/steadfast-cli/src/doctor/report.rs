//! Report of all checks, as text or JSON.

use std::fmt::Write;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::finding::{Finding, FindingSeverity};
use crate::changes::text::{escape, plural};
use crate::clock::format_micros;

/// Width of the column with the name of a check.
const CHECK_COLUMNS: usize = 19;

/// Results of one round of checks.
#[derive(Clone, Debug)]
pub(super) struct CheckReport {
    /// URL of the server.
    pub(super) server: String,
    /// Source of the configuration.
    pub(super) source: String,
    /// Checked namespace; `None` for all.
    pub(super) namespace: Option<String>,
    pub(super) time: Timestamp,
    pub(super) duration: Duration,
    pub(super) findings: Vec<Finding>,
}

impl CheckReport {
    /// Returns the number of findings with this severity.
    pub(super) fn count(&self, severity: FindingSeverity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// Returns the most serious severity.
    pub(super) fn worst(&self) -> FindingSeverity {
        self.findings.iter().map(|finding| finding.severity).max().unwrap_or(FindingSeverity::Ok)
    }

    /// Formats the report as text: results without a problem first, the most serious findings last.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{} ({})\n\n", escape(&self.server), escape(&self.source));
        let mut findings: Vec<&Finding> = self.findings.iter().collect();
        // The sort is stable: findings of one severity keep the order of the checks.
        findings.sort_by_key(|finding| finding.severity);
        for finding in findings {
            text.push_str(&finding_text(finding));
        }
        let _ = write!(text, "\n{}\n", self.summary());
        text.push_str("Checked: network path, API servers and permissions of informers. Not checked: workloads and their manifests.\n");
        text
    }

    fn summary(&self) -> String {
        let count = |severity| self.count(severity);
        format!(
            "{}, {}, {} not checked, {} ok in {:.1} s",
            plural(count(FindingSeverity::Failure), "failure"),
            plural(count(FindingSeverity::Warning), "warning"),
            count(FindingSeverity::NotChecked),
            count(FindingSeverity::Ok),
            self.duration.as_secs_f64(),
        )
    }

    /// Formats the differences to an earlier report: new findings, and findings that no longer apply. Results without a
    /// problem are left out. Returns `None` without a difference.
    pub(super) fn changes_since(&self, earlier: &Self) -> Option<String> {
        let is_problem = |finding: &&Finding| finding.severity > FindingSeverity::NotChecked;
        // Messages contain measured values, which differ between rounds.
        let is_in = |report: &Self, finding: &Finding| {
            let same = |other: &Finding| {
                (other.check, &other.subject, other.severity) == (finding.check, &finding.subject, finding.severity)
            };
            report.findings.iter().any(same)
        };
        let mut text = String::new();
        for finding in earlier.findings.iter().filter(is_problem).filter(|finding| !is_in(self, finding)) {
            let _ = writeln!(text, "{:<12} {:<CHECK_COLUMNS$} {}", "resolved", finding.check, escape(&finding.subject));
        }
        for finding in self.findings.iter().filter(is_problem).filter(|finding| !is_in(earlier, finding)) {
            text.push_str(&finding_text(finding));
        }
        (!text.is_empty()).then_some(text)
    }

    /// Returns the report as JSON.
    pub(super) fn json(&self) -> Value {
        json!({
            "time": format_micros(self.time), "server": self.server, "source": self.source, "namespace": self.namespace,
            "durationSeconds": self.duration.as_secs_f64(), "severity": self.worst(),
            "failures": self.count(FindingSeverity::Failure), "warnings": self.count(FindingSeverity::Warning),
            "notChecked": self.count(FindingSeverity::NotChecked), "ok": self.count(FindingSeverity::Ok),
            "findings": self.findings,
        })
    }
}

fn finding_text(finding: &Finding) -> String {
    let (subject, message) = (escape(&finding.subject), escape(&finding.message));
    let mut text = format!("{:<12} {:<CHECK_COLUMNS$} {subject}: {message}\n", finding.severity.word(), finding.check);
    if let Some(effect) = finding.effect {
        let _ = writeln!(text, "{:13}effect: {effect}", "");
    }
    if let Some(remedy) = &finding.remedy {
        let _ = writeln!(text, "{:13}remedy: {}", "", escape(remedy));
    }
    for line in finding.manifest.iter().flat_map(|manifest| manifest.lines()) {
        let _ = writeln!(text, "{:15}{}", "", escape(line));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(findings: Vec<Finding>) -> CheckReport {
        CheckReport {
            server: "https://api.example".to_owned(),
            source: "context prod".to_owned(),
            namespace: None,
            time: Timestamp::UNIX_EPOCH,
            duration: Duration::from_millis(1_500),
            findings,
        }
    }

    fn warning(subject: &str, message: &str) -> Finding {
        Finding::warning("clock", subject, message, "ages are wrong", "use NTP")
    }

    #[test]
    fn text_ends_with_most_serious_findings() {
        let failure = Finding::failure("permissions", "pods", "no\u{1b}[2J", "no sync", "apply this")
            .with_manifest("kind: Role\nrules: []\n".to_owned());
        let text = report(vec![failure, warning("s", "behind"), Finding::ok("protocol", "s", "HTTP/2")]).text();
        let expected = "https://api.example (context prod)\n\n\
                        ok           protocol            s: HTTP/2\n\
                        warning      clock               s: behind\n             effect: ages are wrong\n             \
                        remedy: use NTP\n\
                        failure      permissions         pods: no\\u{1b}[2J\n             effect: no sync\n             \
                        remedy: apply this\n               kind: Role\n               rules: []\n\
                        \n1 failure, 1 warning, 0 not checked, 1 ok in 1.5 s\n";
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn later_round_shows_changed_findings() {
        let first = report(vec![warning("s", "6 s behind")]);
        assert_eq!(report(vec![warning("s", "7 s behind")]).changes_since(&first), None);
        let changed = report(vec![warning("t", "behind")]).changes_since(&first).expect("changes");
        assert!(
            changed.starts_with("resolved     clock               s\nwarning      clock               t: behind\n")
        );
    }
}
