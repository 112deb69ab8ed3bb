//! Full difference of two states, for `--diff`: one line for each removed and each added value.

use serde_json::Value;

use super::object_format::yaml;
use super::text_line::{GREEN, RED, TextLine};
use crate::changes::diff::Change;

/// Indentation below the line of the event.
const INDENT: &str = "    ";

/// Returns the lines of `changes`, complete and not shortened.
pub(super) fn render(changes: &[Change<'_>], has_color: bool) -> String {
    let mut text = String::new();
    for change in changes {
        let path = change.path.to_string();
        match (change.old.as_deref(), change.new.as_deref()) {
            (Some(Value::String(old)), Some(Value::String(new))) if old.contains('\n') || new.contains('\n') => {
                let (old, new) = different_lines(old, new);
                push_line(&mut text, ' ', &format!("{path}:"), has_color);
                for (sign, lines) in [('-', old), ('+', new)] {
                    for line in lines {
                        push_line(&mut text, sign, &format!("  {line}"), has_color);
                    }
                }
            }
            (old, new) => {
                for (sign, value) in [('-', old), ('+', new)] {
                    let Some(value) = value else { continue };
                    let is_block = matches!(value, Value::Object(fields) if !fields.is_empty())
                        || matches!(value, Value::Array(elements) if !elements.is_empty());
                    let value = yaml(value);
                    if is_block || value.contains('\n') {
                        push_line(&mut text, sign, &format!("{path}:"), has_color);
                        value.lines().for_each(|line| push_line(&mut text, sign, &format!("  {line}"), has_color));
                    } else {
                        push_line(&mut text, sign, &format!("{path}: {value}"), has_color);
                    }
                }
            }
        }
    }
    text
}

fn push_line(text: &mut String, sign: char, line: &str, has_color: bool) {
    let color = match sign {
        '+' => Some(GREEN),
        '-' => Some(RED),
        _ => None,
    };
    let mut styled = TextLine::default();
    styled.add(color, &format!("{sign} {line}"));
    text.extend(["\n", INDENT, &styled.render(has_color, None)]);
}

/// Returns the lines between the common start and the common end of two texts.
fn different_lines<'a>(old: &'a str, new: &'a str) -> (Vec<&'a str>, Vec<&'a str>) {
    let (mut old, mut new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let start = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    (old, new) = (old.split_off(start), new.split_off(start));
    let end = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    old.truncate(old.len() - end);
    new.truncate(new.len() - end);
    (old, new)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::changes::diff::{Detail, diff};

    #[test]
    fn difference_has_removed_and_added_values() {
        let old = json!({"spec": {"replicas": 3}, "data": {"conf": "a\nb\nc"}, "old": {"x": 1, "z": [2]}});
        let new = json!({"spec": {"replicas": 5}, "data": {"conf": "a\nB\nc"}});
        let changes = diff(&old, &new, Detail::Subtrees);
        let expected = "\n      data.conf:\n    -   b\n    +   B\n    - old:\n    -   x: 1\n    -   z:\n    -   - 2\
                        \n    - spec.replicas: 3\n    + spec.replicas: 5";
        assert_eq!(render(&changes, false), expected);
        assert!(render(&changes, true).ends_with("\x1b[32m+ spec.replicas: 5\x1b[0m"));
    }
}
