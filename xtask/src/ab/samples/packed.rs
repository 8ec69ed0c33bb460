//! A cell report as what differs from the first one of its comparison. Most of a report is the same in
//! every run (the model, the device, the token ids, most counters of most steps), and three hundred steps
//! of counters a run would make a journal that nobody can keep in a repository.
//!
//! What differs is an object again: members that are equal are left out; an object with other members than
//! the first one's is `{"$whole": it}`; an array of objects that has the length and the members of the first
//! one's becomes `{"$columns": {member: [its values]}}` with the members that differ; everything else stands
//! as it is.

use serde_json::{Map, Value};

/// The member that marks an object with other members.
const WHOLE: &str = "$whole";
/// The member that marks an array of objects by its columns.
const COLUMNS: &str = "$columns";

/// What `report` has that `first` has not; `None` where that cannot be said so.
pub(crate) fn pack(first: &Value, report: &Value) -> Option<Value> {
    let changes = changes(first, report);
    (unpack(first, &changes) == *report).then_some(changes)
}

/// The report whose changes against `first` these are.
pub(crate) fn unpack(first: &Value, changes: &Value) -> Value {
    match (first, changes) {
        (Value::Object(first), Value::Object(changes)) => {
            if let Some(whole) = changes.get(WHOLE) {
                return whole.clone();
            }
            let mut whole = first.clone();
            for (name, change) in changes {
                let before = first.get(name).unwrap_or(&Value::Null);
                whole.insert(name.clone(), unpack(before, change));
            }
            Value::Object(whole)
        }
        (Value::Array(first), Value::Object(changes)) => {
            let Some(Value::Object(columns)) = changes.get(COLUMNS) else {
                return Value::Object(changes.clone());
            };
            let mut whole = first.clone();
            for (name, values) in columns {
                let values = values.as_array().map(Vec::as_slice).unwrap_or_default();
                for (element, value) in whole.iter_mut().zip(values) {
                    if let Value::Object(element) = element {
                        element.insert(name.clone(), value.clone());
                    }
                }
            }
            Value::Array(whole)
        }
        (_, whole) => whole.clone(),
    }
}

fn changes(first: &Value, report: &Value) -> Value {
    match (first, report) {
        (Value::Object(first), Value::Object(report)) if first.keys().eq(report.keys()) => {
            let differing = report.iter().filter(|(name, value)| first[*name] != **value);
            let changed =
                differing.map(|(name, value)| (name.clone(), changes(&first[name], value)));
            Value::Object(changed.collect())
        }
        (Value::Object(_), Value::Object(_)) => {
            Value::Object(Map::from_iter([(WHOLE.to_owned(), report.clone())]))
        }
        (Value::Array(first), Value::Array(elements)) => {
            columns(first, elements).unwrap_or_else(|| report.clone())
        }
        _ => report.clone(),
    }
}

/// The columns that differ between two arrays of objects with the same members.
fn columns(first: &[Value], report: &[Value]) -> Option<Value> {
    let names = report.first()?.as_object()?.keys();
    let is_alike =
        |element: &Value| element.as_object().is_some_and(|it| it.keys().eq(names.clone()));
    if first.len() != report.len() || !first.iter().chain(report).all(is_alike) {
        return None;
    }
    let column = |of: &[Value], name: &String| -> Vec<Value> {
        of.iter().map(|element| element[name].clone()).collect()
    };
    let differing = names
        .clone()
        .map(|name| (name.clone(), column(first, name), column(report, name)))
        .filter(|(_, before, now)| before != now)
        .map(|(name, _, now)| (name, Value::Array(now)))
        .collect();
    Some(Value::Object(Map::from_iter([(COLUMNS.to_owned(), Value::Object(differing))])))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_equal_is_left_out_and_everything_comes_back() {
        let first = json!({"a": 1, "same": [1, 2], "steps": [{"n": 1, "ns": 5}, {"n": 1, "ns": 6}],
            "deep": {"x": null, "y": [1]}});
        let report = json!({"a": 2, "same": [1, 2], "steps": [{"n": 1, "ns": 7}, {"n": 1, "ns": 6}],
            "deep": {"x": 3.5, "y": [1, 2]}});
        let packed = pack(&first, &report).unwrap();
        assert_eq!(
            packed,
            json!({"a": 2, "steps": {"$columns": {"ns": [7, 6]}}, "deep": {"x": 3.5, "y": [1, 2]}})
        );
        assert_eq!(unpack(&first, &packed), report);
        assert_eq!(pack(&first, &first), Some(json!({})));
        assert_eq!(unpack(&first, &json!({})), first);
        // A number that became null, an array that became shorter, and elements of another kind.
        let other = json!({"a": null, "same": [], "steps": [{"n": 1, "ns": 5}, 3],
            "deep": {"x": {"new": 1}, "y": 0}});
        assert_eq!(unpack(&first, &pack(&first, &other).unwrap()), other);
    }

    #[test]
    fn other_members_stand_whole_and_what_looks_like_a_mark_is_not_packed() {
        let other = json!({"a": {"y": 1}});
        let packed = pack(&json!({"a": {"x": 1}}), &other).unwrap();
        assert_eq!(packed, json!({"a": {"$whole": {"y": 1}}}));
        assert_eq!(unpack(&json!({"a": {"x": 1}}), &packed), other);
        // A report that holds the mark itself.
        assert_eq!(pack(&json!({"a": [1]}), &json!({"a": {"$columns": {"n": [1]}}})), None);
    }
}
