//! Evaluation of a path over a JSON value.
//!
//! Some results of client-go depend on the order of its maps. Here, fields come in the order of the object.

use serde_json::Value;

use super::compare;
use super::node::{Filter, Node, Slice};
use super::value::JsonPathValue;

/// Maximum number of values that an evaluation may visit. `..` followed by `..` would visit a power of the object's
/// size.
const MAX_VISITED: usize = 100_000;
/// Maximum nesting of `range` blocks.
const MAX_RANGES: usize = 32;

/// Failed evaluation.
#[derive(Clone, Debug)]
pub(super) struct EvaluationError {
    pub(super) detail: String,
    /// True if the failed step had input values. A filter without an operator then counts as passed.
    has_values: bool,
}

impl EvaluationError {
    fn with(values: bool, detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), has_values: values }
    }
}

type Results<'a> = Vec<JsonPathValue<'a>>;

/// Evaluation of one path over one object.
pub(super) struct Evaluation<'a> {
    nodes: &'a [Node],
    visited: usize,
    /// Number of `range` words whose block has not started.
    starting: usize,
    /// Number of open blocks.
    open: usize,
    /// Number of `end` words whose block has not ended.
    ending: usize,
    /// Position of the last action with an `end`.
    last_end: Option<usize>,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(nodes: &'a [Node]) -> Self {
        Self { nodes, visited: 0, starting: 0, open: 0, ending: 0, last_end: None }
    }

    /// Returns the results of each action.
    pub(super) fn find(mut self, object: &'a Value) -> Result<Vec<Results<'a>>, EvaluationError> {
        self.actions(0, JsonPathValue::Json(object))
    }

    /// Evaluates the actions from a position to the `end` of the enclosing block.
    fn actions(&mut self, from: usize, input: JsonPathValue<'a>) -> Result<Vec<Results<'a>>, EvaluationError> {
        let mut all = Vec::new();
        let mut position = from;
        while let Some(node) = self.nodes.get(position) {
            let results = self.walk(vec![input], node)?;
            // An `end` was found, so the innermost range is complete.
            if self.ending > 0 && self.ending <= self.open {
                self.ending -= 1;
                self.last_end = Some(position);
                break;
            }
            if self.starting == 0 {
                all.push(results);
                position += 1;
                continue;
            }
            self.starting -= 1;
            self.open += 1;
            if self.open > MAX_RANGES {
                return Err(EvaluationError::with(false, format!("more than {MAX_RANGES} ranges within each other")));
            }
            // A block without results is evaluated once, to find its end.
            let is_empty = results.is_empty();
            let inputs = if is_empty { vec![JsonPathValue::Json(&Value::Null)] } else { results };
            for input in inputs {
                let within = self.actions(position + 1, input)?;
                if !is_empty {
                    all.extend(within);
                }
            }
            self.open -= 1;
            // Continues behind the `end` of the range.
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
            Node::Slice(of) => self.slice(&input, of)?,
            Node::Union(alternatives) => self.union(&input, alternatives)?,
            Node::Filter(filter) => self.filter(&input, filter)?,
            Node::Word(word) => self.word(input, word)?,
        };
        // Each node costs at least one step, so that paths without results also end.
        self.charge(results.len() + 1)?;
        Ok(results)
    }

    fn charge(&mut self, values: usize) -> Result<(), EvaluationError> {
        self.visited = self.visited.saturating_add(values);
        if self.visited <= MAX_VISITED {
            return Ok(());
        }
        Err(EvaluationError::with(false, format!("the path visits more than {MAX_VISITED} values")))
    }

    fn list(&mut self, input: Results<'a>, nodes: &'a [Node]) -> Result<Results<'a>, EvaluationError> {
        nodes.iter().try_fold(input, |values, node| self.walk(values, node))
    }

    fn word(&mut self, input: Results<'a>, word: &str) -> Result<Results<'a>, EvaluationError> {
        match word {
            "range" => {
                self.starting += 1;
                Ok(input)
            }
            "end" if self.open > 0 => {
                self.ending += 1;
                Ok(Vec::new())
            }
            "end" => Err(EvaluationError::with(false, "not in range, nothing to end")),
            other => Err(EvaluationError::with(!input.is_empty(), format!("unrecognized identifier {other}"))),
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
            let within = children(value);
            if !within.is_empty() {
                results.push(value);
                // Reversed, because the stack returns the last value first.
                pending.extend(within.into_iter().rev());
            }
        }
        Ok(results)
    }

    fn wildcard(&mut self, input: &[JsonPathValue<'a>]) -> Result<Results<'a>, EvaluationError> {
        let mut results = Vec::new();
        for value in input {
            let within = children(*value);
            self.charge(within.len())?;
            results.extend(within);
        }
        Ok(results)
    }

    fn slice(&mut self, input: &[JsonPathValue<'a>], of: &Slice) -> Result<Results<'a>, EvaluationError> {
        let mut results = Vec::new();
        for value in input {
            let items = match value {
                JsonPathValue::Json(Value::Null) => continue,
                JsonPathValue::Json(Value::Array(items)) => items,
                _ => return Err(EvaluationError::with(true, "a value is not array or slice")),
            };
            // As in client-go, an empty slice ends the node for all inputs that follow.
            let Some((start, end)) = bounds(of, items.len())? else { return Ok(results) };
            let step = match of.step {
                None => 1,
                Some(step) => usize::try_from(step)
                    .ok()
                    .filter(|step| *step > 0)
                    .ok_or_else(|| EvaluationError::with(true, "step must be > 0"))?,
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
            results.extend(found.map_err(|failed| EvaluationError::with(!input.is_empty(), failed.detail))?);
        }
        Ok(results)
    }

    fn filter(&mut self, input: &Results<'a>, filter: &'a Filter) -> Result<Results<'a>, EvaluationError> {
        let mut results = Vec::new();
        for value in input {
            let JsonPathValue::Json(Value::Array(items)) = value else {
                return Err(EvaluationError::with(true, "a value is not array or slice and cannot be filtered"));
            };
            for item in items {
                let item = JsonPathValue::Json(item);
                if self.passes(item, filter).map_err(|failed| EvaluationError::with(true, failed.detail))? {
                    results.push(item);
                }
            }
        }
        Ok(results)
    }

    fn passes(&mut self, item: JsonPathValue<'a>, filter: &'a Filter) -> Result<bool, EvaluationError> {
        let left = self.list(vec![item], &filter.left);
        let Some((operator, right)) = &filter.comparison else {
            return match left {
                Ok(values) => Ok(!values.is_empty()),
                // An exhausted budget cannot be absorbed.
                Err(failed) if self.visited > MAX_VISITED => Err(failed),
                Err(failed) => Ok(failed.has_values),
            };
        };
        let Some(left) = single(&left?)? else { return Ok(false) };
        // The right operand may be a path too, evaluated on the item.
        let Some(right) = single(&self.list(vec![item], right)?)? else { return Ok(false) };
        compare::holds(left, operator, right).map_err(|detail| EvaluationError::with(true, detail))
    }
}

fn single<'a>(values: &[JsonPathValue<'a>]) -> Result<Option<JsonPathValue<'a>>, EvaluationError> {
    match values {
        [] => Ok(None),
        [value] => Ok(Some(*value)),
        _ => Err(EvaluationError::with(true, "can only compare one element at a time")),
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
fn bounds(of: &Slice, length: usize) -> Result<Option<(usize, usize)>, EvaluationError> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let mut start = of.start.unwrap_or(0);
    if start < 0 {
        start = start.saturating_add(length);
    }
    let mut end = match (of.is_index, of.end) {
        (true, _) => of.start.unwrap_or(0).saturating_add(1),
        (false, Some(end)) => end,
        (false, None) => length,
    };
    // Index `-1` denotes the last item, so its end is the length.
    if end < 0 || (end == 0 && of.is_index) {
        end = end.saturating_add(length);
    }
    if start == end {
        return Ok(None);
    }
    let out_of_bounds =
        |index: i64| EvaluationError::with(true, format!("array index out of bounds: index {index}, length {length}"));
    let place = |index: i64| usize::try_from(index).ok().filter(|_| index <= length);
    let first = place(start).filter(|_| start < length).ok_or_else(|| out_of_bounds(start))?;
    let last = place(end).ok_or_else(|| out_of_bounds(end.saturating_sub(1)))?;
    if first > last {
        return Err(EvaluationError::with(true, format!("starting index {start} is greater than ending index {end}")));
    }
    Ok(Some((first, last)))
}
