//! The compared programs.

use std::path::Path;

use crate::args::Args;
use crate::process::Expected;

/// A program, its command line, and the text that it shows.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) command: String,
    /// Whether the program draws a full screen. Others write lines.
    pub(crate) full_screen: bool,
    complete: Complete,
}

/// Sign of a program that all pods are loaded.
enum Complete {
    Text(String),
    Lines(usize),
}

impl Program {
    /// Returns all programs, for `count` pods of the cluster of `kubeconfig`.
    pub(crate) fn all(args: &Args, kubeconfig: &Path, count: usize) -> Vec<Self> {
        let (steadfast, kubectl) = (quoted(&args.steadfast), quoted(&args.kubectl));
        let connection = format!("--kubeconfig {}", quoted(kubeconfig));
        let full_screen =
            |name, command, text| Self { name, command, full_screen: true, complete: Complete::Text(text) };
        let mut programs = vec![
            full_screen(
                "`steadfast top pods -A`",
                format!("{steadfast} top pods -A {connection}"),
                format!("{count} of {count} in all namespaces"),
            ),
            Self {
                name: "`steadfast watch pods -A`",
                command: format!("{steadfast} watch pods -A {connection}"),
                full_screen: false,
                complete: Complete::Lines(count),
            },
            Self {
                name: "`kubectl get pods -A --watch`",
                command: format!("{kubectl} get pods -A --watch {connection}"),
                full_screen: false,
                // One line is the heading.
                complete: Complete::Lines(count + 1),
            },
        ];
        if let Some(k9s) = &args.k9s {
            programs.push(full_screen(
                "k9s",
                format!("{} --all-namespaces --command pods {connection}", quoted(k9s)),
                format!("[{}]", with_separators(count)),
            ));
        }
        programs
    }

    /// Returns what the terminal shows when all pods are loaded.
    pub(crate) fn complete(&self) -> Expected<'_> {
        match &self.complete {
            Complete::Text(text) => Expected::Screen(text),
            Complete::Lines(count) => Expected::Lines(*count),
        }
    }

    /// Returns what the terminal shows after a change with `text`.
    pub(crate) fn change<'a>(&self, text: &'a str) -> Expected<'a> {
        if self.full_screen { Expected::Screen(text) } else { Expected::Output(text) }
    }
}

/// Returns a number as k9s writes it: `14,000`.
fn with_separators(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators() {
        assert_eq!(
            [0, 999, 1000, 14_000, 1_234_567].map(with_separators),
            ["0", "999", "1,000", "14,000", "1,234,567"]
        );
    }
}
