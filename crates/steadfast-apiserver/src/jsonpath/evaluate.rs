//! Evaluation of a path over a JSON value.
//!
//! Some results of client-go depend on the order of its maps. Here, fields come in the order of the object.

use serde_json::Value;

use super::compare;
use super::node::{Filter, Node, Slice};
use super::value::JsonPathValue;

/// Maximum number of values that an evaluation may visit. `..` followed by `..` would visit a power of the object's
/// size.
const MAX_VISITED_VALUES: usize = 100_000;
/// Maximum nesting of `range` blocks.
const MAX_NESTED_RANGES: usize = 32;

/// Failed evaluation.
#[derive(Clone, Debug)]
pub(super) struct EvaluationError {
    pub(super) detail: String,
    /// True if the failed step had input values. A filter without an operator then counts as passed.
    has_values: bool,
}

impl EvaluationError {
    fn new(values: bool, detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), has_values: values }
    }
}

type Results<'a> = Vec<JsonPathValue<'a>>;

/// Evaluation of one path over one object.
pub(super) struct Evaluation<'a> {
    nodes: &'a [Node],
    visited_values: usize,
    /// Number of `range` words whose block has not started.
    starting_ranges: usize,
    /// Number of open blocks.
    open_blocks: usize,
    /// Number of `end` words whose block has not ended.
    pending_ends: usize,
    /// Position of the last action with an `end`.
    last_end: Option<usize>,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(nodes: &'a [Node]) -> Self {
        Self { nodes, visited_values: 0, starting_ranges: 0, open_blocks: 0, pending_ends: 0, last_end: None }
    }

    /// Returns the results of each action.
    pub(super) fn find(mut self, object: &'a Value) -> Result<Vec<Results<'a>>, EvaluationError> {
        self.evaluate_actions(0, JsonPathValue::Json(object))
    }

    /// Evaluates the actions from a position to the `end` of the enclosing block.
    fn evaluate_actions(&mut self, from: usize, input: JsonPathValue<'a>) -> Result<Vec<Results<'a>>, EvaluationError> {
        let mut all = Vec::new();
        let mut position = from;
        while let Some(node) = self.nodes.get(position) {
            let results = self.walk(vec![input], node)?;
            // An `end` was found, so the innermost range is complete.
            if self.pending_ends > 0 && self.pending_ends <= self.open_blocks {
                self.pending_ends -= 1;
                self.last_end = Some(position);
                break;
            }
            if self.starting_ranges == 0 {
                all.push(results);
                position += 1;
                continue;
            }
            self.starting_ranges -= 1;
            self.open_blocks += 1;
            if self.open_blocks > MAX_NESTED_RANGES {
                return Err(EvaluationError::new(
                    false,
                    format!("more than {MAX_NESTED_RANGES} ranges within each other"),
                ));
            }
            // A block without results is evaluated once, to find its end.
            let is_empty = results.is_empty();
            let inputs = if is_empty { vec![JsonPathValue::Json(&Value::Null)] } else { results };
            for input in inputs {
                let inner_results = self.evaluate_actions(position + 1, input)?;
                if !is_empty {
                    all.extend(inner_results);
                }
            }
            self.open_blocks -= 1;
            // Continues after the `end` of the range.
            position = self.last_end.filter(|end| *end > position).unwrap_or(position) + 1;
        }
        Ok(all)
    }

    fn walk(&mut self, input: Results<'a>, node: &'a Node) -> Result<Results<'a>, EvaluationError> {
        let results = match node {
            Node::List(nodes) => return self.list(input, nodes),
            Node::Text(text) => vec![JsonPathValue::Text(text)],
            Node::Int(number) => vec![JsonPathValue::Int(*number); input.len()],
            Node::Float(number) => vec![JsonPathValue::Float(*number); input.len()],
            Node::Bool(flag) => vec![JsonPathValue::Bool(*flag); input.len()],
            Node::Field(name) => field(&input, name),
            Node::Wildcard => self.wildcard(&input)?,
            Node::Recursive => self.descend(input)?,
            Node::Slice(slice) => self.slice(&input, slice)?,
            Node::Union(alternatives) => self.union(&input, alternatives)?,
            Node::Filter(filter) => self.filter(&input, filter)?,
            Node::Word(word) => self.word(input, word)?,
        };
        // Each node costs at least one step, so that paths without results also end.
        self.charge(results.len() + 1)?;
        Ok(results)
    }

    fn charge(&mut self, values: usize) -> Result<(), EvaluationError> {
        self.visited_values = self.visited_values.saturating_add(values);
        if self.visited_values <= MAX_VISITED_VALUES {
            return Ok(());
        }
        Err(EvaluationError::new(false, format!("the path visits more than {MAX_VISITED_VALUES} values")))
    }

    fn list(&mut self, input: Results<'a>, nodes: &'a [Node]) -> Result<Results<'a>, EvaluationError> {
        nodes.iter().try_fold(input, |values, node| self.walk(values, node))
    }

    fn word(&mut self, input: Results<'a>, word: &str) -> Result<Results<'a>, EvaluationError> {
        match word {
            "range" => {
                self.starting_ranges += 1;
                Ok(input)
            }
            "end" if self.open_blocks > 0 => {
                self.pending_ends += 1;
                Ok(Vec::new())
            }
            "end" => Err(EvaluationError::new(false, "not in range, nothing to end")),
            other => Err(EvaluationError::new(!input.is_empty(), format!("unrecognized identifier {other}"))),
        }
    }

    /// Returns all values below the input that have children, each before its children.
    fn descend(&mut self, input: Results<'a>) -> Result<Results<'a>, EvaluationError> {
        let mut results = Vec::new();
        // A stack replaces recursion: the last value is the next.
        let mut pending: Results<'a> = input.into_iter().rev().collect();
        while let Some(value) = pending.pop() {
            // Every value counts, since `..` can multiply the work.
            self.charge(1)?;
            let child_values = children(value);
            if !child_values.is_empty() {
                results.push(value);
                // Reversed, because the stack returns the last value first.
                pending.extend(child_values.into_iter().rev());
            }
        }
        Ok(results)
    }

    fn wildcard(&mut self, input: &[JsonPathValue<'a>]) -> Result<Results<'a>, EvaluationError> {
        let mut results = Vec::new();
        for value in input {
            let child_values = children(*value);
            self.charge(child_values.len())?;
            results.extend(child_values);
        }
        Ok(results)
    }

    fn slice(&mut self, input: &[JsonPathValue<'a>], slice: &Slice) -> Result<Results<'a>, EvaluationError> {
        let mut results = Vec::new();
        for value in input {
            let items = match value {
                JsonPathValue::Json(Value::Null) => continue,
                JsonPathValue::Json(Value::Array(items)) => items,
                _ => return Err(EvaluationError::new(true, "a value is not array or slice")),
            };
            // As in client-go, an empty slice ends the node for all inputs that follow.
            let Some((start, end)) = bounds(slice, items.len())? else { return Ok(results) };
            let step = match slice.step {
                None => 1,
                Some(step) => usize::try_from(step)
                    .ok()
                    .filter(|step| *step > 0)
                    .ok_or_else(|| EvaluationError::new(true, "step must be > 0"))?,
            };
            self.charge(end - start)?;
            results.extend(items[start..end].iter().step_by(step).map(JsonPathValue::Json));
        }
        Ok(results)
    }

    fn union(&mut self, input: &Results<'a>, alternatives: &'a [Vec<Node>]) -> Result<Results<'a>, EvaluationError> {
        let mut results = Vec::new();
        for alternative in alternatives {
            let found = self.list(input.clone(), alternative);
            results.extend(found.map_err(|failed| EvaluationError::new(!input.is_empty(), failed.detail))?);
        }
        Ok(results)
    }

    fn filter(&mut self, input: &Results<'a>, filter: &'a Filter) -> Result<Results<'a>, EvaluationError> {
        let mut results = Vec::new();
        for value in input {
            let JsonPathValue::Json(Value::Array(items)) = value else {
                return Err(EvaluationError::new(true, "a value is not array or slice and cannot be filtered"));
            };
            for item in items {
                let item = JsonPathValue::Json(item);
                if self.passes_filter(item, filter).map_err(|failed| EvaluationError::new(true, failed.detail))? {
                    results.push(item);
                }
            }
        }
        Ok(results)
    }

    fn passes_filter(&mut self, item: JsonPathValue<'a>, filter: &'a Filter) -> Result<bool, EvaluationError> {
        let left = self.list(vec![item], &filter.left);
        let Some((operator, right)) = &filter.comparison else {
            return match left {
                Ok(values) => Ok(!values.is_empty()),
                // An exhausted budget cannot be absorbed.
                Err(failed) if self.visited_values > MAX_VISITED_VALUES => Err(failed),
                Err(failed) => Ok(failed.has_values),
            };
        };
        let Some(left) = single(&left?)? else { return Ok(false) };
        // The right operand may be a path too, evaluated on the item.
        let Some(right) = single(&self.list(vec![item], right)?)? else { return Ok(false) };
        compare::evaluate_operator(left, operator, right).map_err(|detail| EvaluationError::new(true, detail))
    }
}

fn single<'a>(values: &[JsonPathValue<'a>]) -> Result<Option<JsonPathValue<'a>>, EvaluationError> {
    match values {
        [] => Ok(None),
        [value] => Ok(Some(*value)),
        _ => Err(EvaluationError::new(true, "can only compare one element at a time")),
    }
}

fn field<'a>(input: &[JsonPathValue<'a>], name: &str) -> Results<'a> {
    let found = input.iter().filter_map(|value| match value {
        JsonPathValue::Json(Value::Object(fields)) => fields.get(name),
        _ => None,
    });
    found.map(JsonPathValue::Json).collect()
}

/// Returns the items of a list, the values of an object, or the bytes of a string.
fn children(value: JsonPathValue<'_>) -> Results<'_> {
    match value {
        JsonPathValue::Json(Value::Object(fields)) => fields.values().map(JsonPathValue::Json).collect(),
        JsonPathValue::Json(Value::Array(items)) => items.iter().map(JsonPathValue::Json).collect(),
        JsonPathValue::Json(Value::String(text)) => text.bytes().map(JsonPathValue::Byte).collect(),
        JsonPathValue::Text(text) => text.bytes().map(JsonPathValue::Byte).collect(),
        _ => Vec::new(),
    }
}

/// Returns the positions of the first item and after the last; `None` for an empty slice, which ends the evaluation of
/// the node.
fn bounds(slice: &Slice, length: usize) -> Result<Option<(usize, usize)>, EvaluationError> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let mut start = slice.start.unwrap_or(0);
    if start < 0 {
        start = start.saturating_add(length);
    }
    let mut end = match (slice.is_index, slice.end) {
        (true, _) => slice.start.unwrap_or(0).saturating_add(1),
        (false, Some(end)) => end,
        (false, None) => length,
    };
    // Index `-1` denotes the last item, so its end is the length.
    if end < 0 || (end == 0 && slice.is_index) {
        end = end.saturating_add(length);
    }
    if start == end {
        return Ok(None);
    }
    let out_of_bounds =
        |index: i64| EvaluationError::new(true, format!("array index out of bounds: index {index}, length {length}"));
    let checked_index = |index: i64| usize::try_from(index).ok().filter(|_| index <= length);
    let first = checked_index(start).filter(|_| start < length).ok_or_else(|| out_of_bounds(start))?;
    let last = checked_index(end).ok_or_else(|| out_of_bounds(end.saturating_sub(1)))?;
    if first > last {
        return Err(EvaluationError::new(true, format!("starting index {start} is greater than ending index {end}")));
    }
    Ok(Some((first, last)))
}
