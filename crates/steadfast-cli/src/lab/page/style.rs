//! The style sheet of the page, for light and dark mode and for narrow screens.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::digest::{SHA256, digest};

/// The style sheet. States differ in their height or position too, so that colours are not required to distinguish them.
pub(super) const STYLE: &str = "\
:root { color-scheme: light dark; --text: #1c2430; --muted: #55606e; --line: #dfe4ea; --page: #ffffff; --track: #f1f4f7;
--good: #17723a; --bad: #a4262c; --fresh: #2e9e5b; --wait: #5b7fb5; --suspect: #d9910a; --stale: #c8342c; --failed: #8a3ab9;
--stopped: #9aa4af; --fault: #b4552d; --mark: #3a4757; }
@media (prefers-color-scheme: dark) {
:root { --text: #e4e9ef; --muted: #9aa7b5; --line: #323c48; --page: #14191f; --track: #1f2730;
--good: #5fcf8b; --bad: #ff8a80; --fresh: #43b873; --wait: #7ea2d8; --suspect: #e8ab3f; --stale: #ef6a62; --failed: #bb86e0;
--stopped: #6b7683; --fault: #e08a5f; --mark: #b8c4d1; } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 72rem; padding: 1rem; color: var(--text);
background: var(--page); overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.1rem; margin: 0 0 .3rem; }
section { border-top: 1px solid var(--line); margin-top: 1.6rem; padding-top: 1rem; }
p, ul, figure { margin: .4rem 0; } ul { padding-left: 1.2rem; }
a { color: inherit; } code { font: 13px ui-monospace, monospace; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; } th, td { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0;
border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; overflow-wrap: normal; }
.results td:first-child, .checks td:nth-child(2) { white-space: nowrap; }
th { color: var(--muted); font-weight: 600; white-space: nowrap; }
.muted, figcaption, summary { color: var(--muted); } .good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
svg { display: block; font: 12px system-ui, sans-serif; }
svg text { fill: var(--text); } svg .tick { fill: var(--muted); }
.grid { stroke: var(--line); stroke-width: 1; } .track { fill: var(--track); }
.span { stroke-width: 1; } .fault { fill: var(--fault); stroke: var(--fault); }
.fresh { fill: var(--fresh); stroke: var(--fresh); }
.starting, .resuming { fill: var(--wait); stroke: var(--wait); }
.suspect { fill: var(--suspect); stroke: var(--suspect); } .stale { fill: var(--stale); stroke: var(--stale); }
.failed { fill: var(--failed); stroke: var(--failed); } .stopped { fill: var(--stopped); stroke: var(--stopped); }
.mark { fill: var(--mark); } .error { fill: var(--stale); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; padding: 0; list-style: none; }
.legend li { display: flex; align-items: center; gap: .35rem; } .legend svg { flex: none; }
";

/// Returns the source expression of the style sheet for a content security policy.
pub(super) fn source_expression() -> String {
    format!("'sha256-{}'", BASE64_STANDARD.encode(digest(&SHA256, STYLE.as_bytes())))
}
