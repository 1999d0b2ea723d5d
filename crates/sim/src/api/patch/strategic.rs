//! Strategic merge patches (`k8s.io/apimachinery/pkg/util/strategicpatch`): merge patches in which items of some lists
//! have a key, and directives say what else to do.

use serde_json::{Map, Value};

use super::schema::Place;

/// What to do with a map or an item: `delete`, `replace` or `merge`.
const DIRECTIVE: &str = "$patch";
/// The keys that stay.
const RETAIN_KEYS: &str = "$retainKeys";
/// The order of the items of a list, before the name of its field.
const ORDER: &str = "$setElementOrder/";
/// The values to remove from a list, before the name of its field.
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

/// Applies a patch to an object.
pub(super) fn apply(object: &mut Value, patch: &Value, place: Place<'_>) {
    let (Some(fields), Some(patch)) = (object.as_object_mut(), patch.as_object()) else {
        *object = patch.clone();
        return;
    };
    apply_to_map(fields, patch, place);
}

fn apply_to_map(fields: &mut Map<String, Value>, patch: &Map<String, Value>, place: Place<'_>) {
    match patch.get(DIRECTIVE).and_then(Value::as_str) {
        Some("replace") => *fields = Map::new(),
        Some("delete") => {
            *fields = Map::new();
            return;
        }
        _ => {}
    }
    if let Some(kept) = patch.get(RETAIN_KEYS).and_then(Value::as_array) {
        fields.retain(|name, _| kept.iter().any(|kept| kept == name));
    }
    for (name, value) in patch {
        let list = |name: &str| value.as_array().map(|values| (name.to_owned(), values));
        if let Some((name, values)) = name.strip_prefix(DELETE_FROM).and_then(list) {
            if let Some(found) = fields.get_mut(&name).and_then(Value::as_array_mut) {
                found.retain(|item| !values.contains(item));
            }
        } else if !name.starts_with('$') {
            let order = patch.get(&format!("{ORDER}{name}")).and_then(Value::as_array);
            apply_field(fields, name, value, order, place.field(name));
        }
    }
    // Lists that are only put in order.
    for (name, order) in patch {
        if let (Some(name), Some(order)) = (name.strip_prefix(ORDER), order.as_array())
            && !patch.contains_key(name)
            && let Some(items) = fields.get_mut(name).and_then(Value::as_array_mut)
        {
            let before = items.clone();
            *items = in_order(std::mem::take(items), &before, order, place.field(name).patch_merge_key());
        }
    }
}

fn apply_field(
    fields: &mut Map<String, Value>,
    name: &str,
    value: &Value,
    order: Option<&Vec<Value>>,
    place: Place<'_>,
) {
    match (fields.get_mut(name), value) {
        (_, Value::Null) => {
            fields.remove(name);
        }
        (Some(Value::Object(found)), Value::Object(patch)) => {
            let deleted = patch.get(DIRECTIVE).and_then(Value::as_str) == Some("delete");
            apply_to_map(found, patch, place);
            if deleted {
                fields.remove(name);
            }
        }
        (None, Value::Object(patch)) => {
            let mut new = Map::new();
            apply_to_map(&mut new, patch, place);
            if patch.get(DIRECTIVE).and_then(Value::as_str) != Some("delete") {
                fields.insert(name.to_owned(), Value::Object(new));
            }
        }
        (found, Value::Array(patch)) => {
            let before = found.and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
            fields.insert(name.to_owned(), Value::Array(merged_list(before, patch, order, place)));
        }
        (_, value) => {
            fields.insert(name.to_owned(), value.clone());
        }
    }
}

fn merged_list(before: Vec<Value>, patch: &[Value], order: Option<&Vec<Value>>, place: Place<'_>) -> Vec<Value> {
    if place.is_patch_set() {
        let added = patch.iter().filter(|value| !before.contains(value)).cloned();
        let all = before.iter().cloned().chain(added).collect();
        return in_order(all, &before, order.map_or(patch, Vec::as_slice), None);
    }
    let directive = |item: &Value| item.get(DIRECTIVE).and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(key) = place.patch_merge_key() else { return patch.to_vec() };
    let replaced = patch.iter().any(|item| directive(item) == "replace");
    let mut items = if replaced { Vec::new() } else { before.clone() };
    for item in patch {
        let same = |other: &Value| other.get(key) == item.get(key);
        match directive(item).as_str() {
            // An item that is only the directive is about the whole list.
            "replace" if item.get(key).is_none() => {}
            "delete" => items.retain(|other| !same(other)),
            _ => match items.iter_mut().find(|other| same(other)) {
                Some(found) => apply(found, item, place),
                None => {
                    let mut new = Value::Object(Map::new());
                    apply(&mut new, item, place);
                    items.push(new);
                }
            },
        }
    }
    in_order(items, &before, order.map_or(patch, Vec::as_slice), Some(key))
}

/// The items of a list in the order of the patch. Items that it does not name come before the first item that followed
/// them in the list before, else at the end (`normalizeElementOrder`).
fn in_order(items: Vec<Value>, before: &[Value], order: &[Value], key: Option<&str>) -> Vec<Value> {
    let identity = |item: &Value| key.map_or_else(|| item.clone(), |key| item.get(key).cloned().unwrap_or_default());
    let at = |list: &[Value], item: &Value| list.iter().position(|other| identity(other) == identity(item));
    let (mut named, others): (Vec<Value>, Vec<Value>) = items.into_iter().partition(|item| at(order, item).is_some());
    named.sort_by_key(|item| at(order, item));
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    let mut ordered = Vec::new();
    loop {
        let first = match (others.peek(), named.peek()) {
            (Some(other), Some(named)) => {
                let follows = |other, named| Some(at(before, other)? < at(before, named)?);
                follows(other, named).unwrap_or(false)
            }
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return ordered,
        };
        ordered.extend(if first { others.next() } else { named.next() });
    }
}
