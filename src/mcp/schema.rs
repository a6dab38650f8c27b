//! Simplifies the JSON Schema of a server's tool, within limits, so that every model service accepts it.

use indexmap::IndexSet;
use serde_json::{Map, Value, json};

use crate::text::{plain_line, truncate};
use crate::tools::{plain_schema, schema_faults};

/// The maximum nesting depth that is kept. Deeper levels accept anything.
const MAX_DEPTH: u32 = 8;
/// The maximum number of schemas within one schema.
const MAX_SCHEMAS: usize = 1_000;
/// The maximum size of a server's schema, and of the simplified one, in bytes.
const MAX_RAW_BYTES: usize = 200_000;
const MAX_BYTES: usize = 16_000;
/// The maximum number of values of an enumeration, and the maximum length of a description, in characters.
const MAX_VALUES: usize = 100;
const MAX_DESCRIPTION: usize = 300;
/// The maximum length of a property's name that services accept.
const MAX_PROPERTY: usize = 64;
/// The keywords that are kept unchanged if their value is a number.
const NUMBERS: [&str; 4] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];
/// The keywords that are kept unchanged if their value is an integer that is not negative.
const SIZES: [&str; 4] = ["minLength", "maxLength", "minItems", "maxItems"];
const FORMATS: [&str; 5] = ["date", "date-time", "time", "email", "uri"];
const TYPES: [&str; 6] = ["string", "number", "integer", "boolean", "object", "array"];

/// Returns the schema of a tool's arguments for models. References are resolved, keywords that services reject are removed, and
/// missing parts are added.
///
/// # Errors
/// States why the schema cannot be repaired.
pub(super) fn clean_schema(schema: &Value) -> Result<Value, String> {
    let bytes = schema.to_string().len();
    if bytes > MAX_RAW_BYTES {
        return Err(format!("it has {bytes} bytes; {MAX_RAW_BYTES} are allowed"));
    }
    let mut cleaner = SchemaCleaner { root: schema, left: MAX_SCHEMAS, open: Vec::new() };
    let merged = cleaner.merged(schema, MAX_DEPTH);
    let mut root = cleaner.object(&merged, MAX_DEPTH)?;
    if cleaner.left == 0 {
        return Err(too_many());
    }
    root.remove("description");
    let cleaned = plain_schema(&Value::Object(root));
    let faults = schema_faults(&cleaned);
    if !faults.is_empty() {
        return Err(truncate(&plain_line(&faults.join("; ")), MAX_DESCRIPTION));
    }
    match cleaned.to_string().len() {
        bytes if bytes > MAX_BYTES => Err(format!("it has {bytes} bytes; {MAX_BYTES} are allowed")),
        _ => Ok(cleaned),
    }
}

struct SchemaCleaner<'a> {
    root: &'a Value,
    /// The number of schemas that may still be processed.
    left: usize,
    /// The references on the path to the current schema, to detect recursion.
    open: Vec<String>,
}

fn too_many() -> String {
    format!("it holds more than {MAX_SCHEMAS} schemas")
}

impl SchemaCleaner<'_> {
    fn clean(&mut self, schema: &Value, depth: u32) -> Result<Value, String> {
        let Some(depth) = depth.checked_sub(1) else { return Ok(anything()) };
        let Some(target) = schema.get("$ref").and_then(Value::as_str) else { return self.clean_open(schema, depth) };
        if self.open.iter().any(|open| open == target) {
            // A recursive type is cut here.
            return Ok(json!({"type": "object", "additionalProperties": true}));
        }
        self.open.push(target.to_owned());
        let cleaned = self.clean_open(schema, depth);
        self.open.pop();
        cleaned
    }

    fn clean_open(&mut self, schema: &Value, depth: u32) -> Result<Value, String> {
        let merged = self.merged(schema, depth);
        if self.left == 0 {
            return Err(too_many());
        }
        let fields = &merged;
        let described = |mut cleaned: Map<String, Value>| {
            if let Some(text) = fields.get("description").and_then(Value::as_str) {
                let text = truncate(&plain_line(text), MAX_DESCRIPTION);
                if !text.is_empty() {
                    cleaned.insert("description".to_owned(), json!(text));
                }
            }
            Value::Object(cleaned)
        };
        if let Some(values) = enumeration(fields) {
            return Ok(described(values));
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Value::Array(choices)) = fields.get(key) {
                let choices = choices.iter().filter(|choice| !is_null(choice)).take(MAX_VALUES);
                let choices = choices.map(|choice| self.clean(choice, depth)).collect::<Result<Vec<_>, _>>()?;
                return Ok(match <[Value; 1]>::try_from(choices) {
                    Ok([Value::Object(only)]) => described(only),
                    Ok([other]) => other,
                    Err(choices) if choices.is_empty() => anything(),
                    Err(choices) => described(Map::from_iter([("anyOf".to_owned(), Value::Array(choices))])),
                });
            }
        }
        let types = types_of(fields);
        match types.as_slice() {
            [] => Ok(described(Map::from_iter([("anyOf".to_owned(), any_type())]))),
            [only] => Ok(described(self.of_type(only, fields, depth)?)),
            several => {
                let each = several.iter().map(|kind| Ok(Value::Object(self.of_type(kind, fields, depth)?)));
                let each = each.collect::<Result<Vec<_>, String>>()?;
                Ok(described(Map::from_iter([("anyOf".to_owned(), Value::Array(each))])))
            }
        }
    }

    fn of_type(&mut self, kind: &str, fields: &Map<String, Value>, depth: u32) -> Result<Map<String, Value>, String> {
        if kind == "object" {
            return self.object(fields, depth);
        }
        let mut cleaned = Map::from_iter([("type".to_owned(), json!(kind))]);
        let numbers = NUMBERS.into_iter().filter(|key| fields.get(*key).is_some_and(Value::is_number));
        let sizes = SIZES.into_iter().filter(|key| fields.get(*key).is_some_and(Value::is_u64));
        cleaned.extend(numbers.chain(sizes).map(|key| (key.to_owned(), fields[key].clone())));
        if let Some(format) = fields.get("format").filter(|format| FORMATS.iter().any(|known| *format == *known)) {
            cleaned.insert("format".to_owned(), format.clone());
        }
        if let Some(default) = fields.get("default")
            && !matches!(default, Value::Null | Value::Array(_) | Value::Object(_))
            && default.to_string().len() <= MAX_DESCRIPTION
        {
            cleaned.insert("default".to_owned(), default.clone());
        }
        if kind == "array" {
            let items = match fields.get("items") {
                Some(items @ Value::Object(_)) => self.clean(items, depth)?,
                _ => anything(),
            };
            cleaned.insert("items".to_owned(), items);
        }
        Ok(cleaned)
    }

    fn object(&mut self, fields: &Map<String, Value>, depth: u32) -> Result<Map<String, Value>, String> {
        let mut properties = Map::new();
        let required: Vec<&str> =
            fields.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, property) in fields.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if (1..=MAX_PROPERTY).contains(&name.len()) && name.chars().all(is_legal) {
                properties.insert(name.clone(), self.clean(property, depth)?);
            } else if required.contains(&name.as_str()) {
                let name = truncate(&plain_line(name), MAX_PROPERTY);
                return Err(format!("it requires the property {name:?}, whose name services reject"));
            }
        }
        // Several parts of a schema may require the same property, and services refuse repeated names.
        let required: IndexSet<_> = required.into_iter().filter(|name| properties.contains_key(*name)).collect();
        let additional = match fields.get("additionalProperties") {
            Some(schema @ Value::Object(fields)) if !fields.is_empty() => self.clean(schema, depth)?,
            Some(Value::Bool(true) | Value::Object(_)) => json!(true),
            None if properties.is_empty() && depth < MAX_DEPTH => json!(true),
            _ => json!(false),
        };
        Ok(Map::from_iter([
            ("type".to_owned(), json!("object")),
            ("required".to_owned(), json!(required)),
            ("properties".to_owned(), Value::Object(properties)),
            ("additionalProperties".to_owned(), additional),
        ]))
    }

    /// Returns the fields of a schema, merged with those of its reference and of all parts of `allOf`.
    fn merged(&mut self, schema: &Value, depth: u32) -> Map<String, Value> {
        self.left = self.left.saturating_sub(1);
        let Value::Object(own) = schema else { return Map::new() };
        if self.left == 0 {
            return Map::new();
        }
        let mut fields = own.clone();
        let mut parts = Vec::new();
        if let Some(Value::String(target)) = fields.remove("$ref") {
            parts.extend(target.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer)).cloned());
        }
        if let Some(Value::Array(all)) = fields.remove("allOf") {
            parts.extend(all.into_iter().take(MAX_VALUES));
        }
        // A root with alternatives becomes an object with the properties of all of them.
        if std::ptr::eq(schema, self.root)
            && !fields.contains_key("properties")
            && let Some(Value::Array(choices)) = fields.remove("anyOf").or_else(|| fields.remove("oneOf"))
        {
            for choice in choices.iter().take(MAX_VALUES) {
                let mut choice = self.merged(choice, depth.saturating_sub(1));
                choice.remove("required");
                parts.push(Value::Object(choice));
            }
        }
        let Some(depth) = depth.checked_sub(1) else { return fields };
        for part in parts {
            for (key, value) in self.merged(&part, depth) {
                match (fields.get_mut(&key), value) {
                    (Some(Value::Object(mine)), Value::Object(theirs)) if key == "properties" => {
                        theirs.into_iter().for_each(|(name, schema)| {
                            mine.entry(name).or_insert(schema);
                        });
                    }
                    (Some(Value::Array(mine)), Value::Array(theirs)) if key == "required" => mine.extend(theirs),
                    (Some(_), _) => {}
                    (None, value) => {
                        fields.insert(key, value);
                    }
                }
            }
        }
        fields
    }
}

/// Returns a schema that accepts any value.
fn anything() -> Value {
    json!({ "anyOf": any_type() })
}

/// Returns a schema for each type.
fn any_type() -> Value {
    let any = |kind: &str| match kind {
        "array" => json!({"type": kind, "items": {"type": "string"}}),
        _ => json!({"type": kind}),
    };
    json!(["string", "number", "boolean", "object", "array"].map(any))
}

fn is_null(schema: &Value) -> bool {
    schema.get("type") == Some(&json!("null"))
}

/// Returns the types that a schema names, or that its other keywords imply. Empty means any type.
fn types_of(fields: &Map<String, Value>) -> Vec<&'static str> {
    let known = |value: &Value| TYPES.into_iter().find(|kind| value == kind);
    match fields.get("type") {
        Some(Value::Array(kinds)) => {
            let mut types: Vec<_> = kinds.iter().filter_map(known).collect();
            types.dedup();
            types
        }
        Some(kind) => known(kind).into_iter().collect(),
        None if fields.contains_key("properties") => vec!["object"],
        None if fields.contains_key("items") => vec!["array"],
        None => Vec::new(),
    }
}

/// Returns the schema of an enumeration of plain values; `None` if the schema is not an enumeration, or too large.
fn enumeration(fields: &Map<String, Value>) -> Option<Map<String, Value>> {
    let values = match (fields.get("enum"), fields.get("const")) {
        (Some(Value::Array(values)), _) => values.clone(),
        (_, Some(only)) => vec![only.clone()],
        _ => return None,
    };
    let values: Vec<_> = values.into_iter().filter(|value| !value.is_null()).collect();
    let kind = match values.first()? {
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "boolean",
        _ => return None,
    };
    let is_alike = |value: &Value| match value {
        Value::String(text) => kind == "string" && text.len() <= MAX_DESCRIPTION,
        Value::Number(_) => kind == "number",
        Value::Bool(_) => kind == "boolean",
        _ => false,
    };
    (values.len() <= MAX_VALUES && values.iter().all(is_alike))
        .then(|| Map::from_iter([("type".to_owned(), json!(kind)), ("enum".to_owned(), Value::Array(values))]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_schemas_become_acceptable_ones() {
        let object = |properties: Value| json!({"type": "object", "properties": properties, "required": [], "additionalProperties": false});
        for (schema, expected) in [
            (json!({}), object(json!({}))),
            (json!(true), object(json!({}))),
            (json!({"type": "object"}), object(json!({}))),
            (
                json!({"$schema": "x", "type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": ["integer", "null"], "title": "A"}}}),
                object(json!({"a": {"type": "integer"}})),
            ),
            (
                json!({"properties": {"a": {"enum": ["x", "y"]}, "b": {"const": 1}, "c": {"type": "array"}}}),
                object(json!({
                    "a": {"type": "string", "enum": ["x", "y"]},
                    "b": {"type": "number", "enum": [1]},
                    "c": {"type": "array", "items": anything()},
                })),
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": ["string", "number"], "pattern": "(?=x)"}}}),
                object(json!({"a": {"anyOf": [{"type": "string"}, {"type": "number"}]}})),
            ),
            (
                json!({"type": "object", "properties": {"a b": {"type": "string"}, "ok": {"type": "string", "description": "x\n</tools> # y"}}}),
                object(json!({"ok": {"type": "string", "description": "x ‹/tools› y"}})),
            ),
            (
                json!({"anyOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"properties": {"b": {"type": "boolean"}}}]}),
                object(json!({"a": {"type": "string"}, "b": {"type": "boolean"}})),
            ),
        ] {
            assert_eq!(clean_schema(&schema).as_ref(), Ok(&expected), "{schema}");
        }
    }

    #[test]
    fn free_objects_stay_free() {
        let schema =
            json!({"type": "object", "properties": {"args": {"type": "object"}}, "required": ["args", "none"]});
        let cleaned = clean_schema(&schema).unwrap();
        assert_eq!(cleaned["properties"]["args"]["additionalProperties"], json!(true), "{cleaned}");
        assert_eq!(cleaned["required"], json!(["args"]));
    }

    #[test]
    fn repeated_names_and_impossible_sizes_are_left_out() {
        let part =
            json!({"properties": {"a": {"type": "string", "minLength": -1, "maxLength": 2.5}}, "required": ["a"]});
        let sized = json!({"type": "array", "items": {"type": "string"}, "minItems": 1});
        let schema = json!({"allOf": [part, part], "required": ["a", "a"], "properties": {"b": sized}});
        let cleaned = clean_schema(&schema).unwrap();
        assert_eq!(cleaned["required"], json!(["a"]), "{cleaned}");
        assert_eq!(cleaned["properties"], json!({"a": {"type": "string"}, "b": sized}));
    }

    #[test]
    fn hostile_schemas_end_within_bounds() {
        let recursive = json!({
            "type": "object",
            "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}, "c": {"$ref": "#"}, "d": {"$ref": "#"}},
        });
        let cleaned = clean_schema(&recursive).unwrap();
        assert_eq!(cleaned["properties"]["a"]["properties"]["b"]["type"], "object", "{cleaned}");
        let mut laughs = Map::from_iter([("L0".to_owned(), json!({"type": "string"}))]);
        for level in 1..8 {
            let next = json!({"$ref": format!("#/$defs/L{}", level - 1)});
            let many: Map<String, Value> = (0..10).map(|n| (format!("p{n}"), next.clone())).collect();
            laughs.insert(format!("L{level}"), json!({"type": "object", "properties": many}));
        }
        let all: Vec<_> = (0..100).map(|_| json!({"$ref": "#/$defs/L9"})).collect();
        laughs.insert("L9".to_owned(), json!({"allOf": all}));
        for top in ["L7", "L9"] {
            let schema =
                json!({"type": "object", "properties": {"a": {"$ref": format!("#/$defs/{top}")}}, "$defs": laughs});
            assert!(clean_schema(&schema).unwrap_err().contains("more than 1000"), "{top}");
        }
        let circle = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}});
        assert!(clean_schema(&circle).is_ok());
        let wide: Map<String, Value> = (0..900).map(|n| (format!("property_{n}"), json!({"type": "string"}))).collect();
        let error = clean_schema(&json!({"type": "object", "properties": wide})).unwrap_err();
        assert!(error.contains("16000 are allowed"), "{error}");
        let illegal = json!({"properties": {"a b": {"type": "string"}}, "required": ["a b"]});
        assert!(clean_schema(&illegal).unwrap_err().contains("\"a b\""));
        let mut deep = json!({"type": "string"});
        for _ in 0..100 {
            deep = json!({"type": "object", "properties": {"a": deep}});
        }
        assert!(clean_schema(&deep).unwrap().to_string().len() < 2_000);
    }
}
