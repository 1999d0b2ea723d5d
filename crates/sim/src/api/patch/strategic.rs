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
            apply_field(fields, name, value, place.field(name));
        }
    }
    // After all changes, also of lists that are only put in order.
    for (name, order) in patch {
        if let (Some(name), Some(order)) = (name.strip_prefix(ORDER), order.as_array())
            && let Some(items) = fields.get_mut(name).and_then(Value::as_array_mut)
        {
            sort(items, order, place.field(name).patch_merge_key());
        }
    }
}

fn apply_field(fields: &mut Map<String, Value>, name: &str, value: &Value, place: Place<'_>) {
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
            fields.insert(name.to_owned(), Value::Array(merged_list(before, patch, place)));
        }
        (_, value) => {
            fields.insert(name.to_owned(), value.clone());
        }
    }
}

fn merged_list(before: Vec<Value>, patch: &[Value], place: Place<'_>) -> Vec<Value> {
    if place.is_patch_set() {
        let added: Vec<Value> = patch.iter().filter(|value| !before.contains(value)).cloned().collect();
        return before.into_iter().chain(added).collect();
    }
    let directive = |item: &Value| item.get(DIRECTIVE).and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(key) = place.patch_merge_key() else { return patch.to_vec() };
    let replaced = patch.iter().any(|item| directive(item) == "replace");
    let mut items = if replaced { Vec::new() } else { before };
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
    items
}

/// Puts the items of a list into an order. Those that it does not name keep their place after the item before them.
fn sort(items: &mut Vec<Value>, order: &[Value], key: Option<&'static str>) {
    let identity = |item: &Value| key.map_or_else(|| item.clone(), |key| item.get(key).cloned().unwrap_or_default());
    let rank = |item: &Value| order.iter().position(|wanted| identity(wanted) == identity(item));
    let mut last = None;
    let mut ranked: Vec<(Option<usize>, Value)> = Vec::new();
    for item in items.drain(..) {
        last = rank(&item).or(last);
        ranked.push((last, item));
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    items.extend(ranked.into_iter().map(|(_, item)| item));
}
