//! Errors in a configuration, with positions and remedies.

use std::fmt;

/// Position in a file, counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePosition {
    /// Line number.
    pub line: usize,
    /// Character within the line.
    pub column: usize,
}

impl FilePosition {
    /// Start of a file.
    pub(crate) const START: Self = Self { line: 1, column: 1 };

    /// Returns the position of the byte at `offset` of `text`.
    pub(crate) fn at_offset(text: &str, offset: usize) -> Self {
        let mut end = offset.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let before = &text[..end];
        let line = before.rsplit('\n').next().unwrap_or_default();
        Self { line: before.matches('\n').count() + 1, column: line.chars().count() + 1 }
    }
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// An error in a configuration.
///
/// Formatted like compiler errors, for editors: `rules.toml:7:8: message; remedy`.
#[derive(Clone, PartialEq, Eq)]
pub struct Problem {
    /// Name of the file.
    pub file: String,
    /// Position in the file.
    pub position: FilePosition,
    /// Error message, one sentence without full stop.
    pub description: String,
    /// Remedy.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}; {}", self.file, self.position, self.description, self.remedy)
    }
}

/// All errors in a configuration, in the order of the file.
#[derive(Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.0.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

impl std::error::Error for Problems {}

debug_as_message!(Problem, Problems);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_prints_messages_of_all_problems() {
        let problem = |description: &str| Problem {
            file: "a.toml".to_owned(),
            position: FilePosition::START,
            description: description.to_owned(),
            remedy: "remove it".to_owned(),
        };
        let problems = Problems(vec![problem("one"), problem("two")]);
        assert_eq!(format!("{problems:?}"), "a.toml:1:1: one; remove it\na.toml:1:1: two; remove it");
    }

    #[test]
    fn columns_count_characters_from_one() {
        let text = "a = 1\nü = \"x\"\n";
        assert_eq!(FilePosition::at_offset(text, 0), FilePosition { line: 1, column: 1 });
        assert_eq!(FilePosition::at_offset(text, 6), FilePosition { line: 2, column: 1 });
        // After the two bytes of ü.
        assert_eq!(FilePosition::at_offset(text, 8), FilePosition { line: 2, column: 2 });
        assert_eq!(FilePosition::at_offset(text, 999), FilePosition { line: 3, column: 1 });
    }
}
