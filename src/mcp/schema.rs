//! Simplifies the JSON Schema of a server's tool, within limits, so that every model service accepts it.

use indexmap::IndexSet;
use serde_json::{Map, Value, json};

use crate::text::{plain_line, truncate};
use crate::tools::schema_faults;

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
const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "object", "array", "null"];

/// Returns the schema of a tool's arguments, for models and for the check of calls. References are resolved, keywords that services
/// reject are removed, and missing parts are added. It accepts every value that the server's own schema accepts, `null` included,
/// except whole numbers beyond 64 bits. If several alternatives of the root describe a property, the first one counts.
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
    let root = cleaner.object(&merged, MAX_DEPTH)?;
    if cleaner.left == 0 {
        return Err(too_many());
    }
    let cleaned = Value::Object(root);
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
            return Ok(anything());
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
        let listed = ["anyOf", "oneOf"].into_iter().find_map(|key| fields.get(key)?.as_array());
        let choices = match (enumeration(fields), listed) {
            (Some(values), _) => values,
            (None, Some(listed)) if listed.len() > MAX_VALUES => vec![anything()],
            (None, Some(listed)) => {
                let each = listed.iter();
                let each = each.map(|choice| if is_null(choice) { Ok(null()) } else { self.clean(choice, depth) });
                each.collect::<Result<Vec<_>, String>>()?
            }
            (None, None) => {
                let each = types_of(fields).into_iter();
                let each = each.map(|kind| Ok(Value::Object(self.of_type(kind, fields, depth)?)));
                each.collect::<Result<Vec<_>, String>>()?
            }
        };
        Ok(described(one_of(choices)))
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
        // Without the keyword, further properties are permitted. Models get it only for an inner object without any properties,
        // which they would leave empty.
        let has_patterns =
            fields.get("patternProperties").and_then(Value::as_object).is_some_and(|map| !map.is_empty());
        let additional = match fields.get("additionalProperties") {
            Some(Value::Bool(false)) if has_patterns => None,
            Some(Value::Bool(false)) => Some(json!(false)),
            Some(schema @ Value::Object(fields)) if !fields.is_empty() => Some(self.clean(schema, depth)?),
            Some(Value::Bool(true) | Value::Object(_)) => Some(json!(true)),
            _ => (properties.is_empty() && depth < MAX_DEPTH).then_some(json!(true)),
        };
        let mut cleaned = Map::from_iter([
            ("type".to_owned(), json!("object")),
            ("required".to_owned(), json!(required)),
            ("properties".to_owned(), Value::Object(properties)),
        ]);
        cleaned.extend(additional.map(|additional| ("additionalProperties".to_owned(), additional)));
        Ok(cleaned)
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
    let kinds = TYPES.into_iter().filter(|kind| *kind != "integer");
    json!({ "anyOf": kinds.map(|kind| json!({ "type": kind })).collect::<Vec<_>>() })
}

/// Returns a schema that accepts `null` alone.
fn null() -> Value {
    json!({ "type": "null" })
}

fn is_null(schema: &Value) -> bool {
    schema.get("type").is_some_and(|kind| kind == "null")
        || schema.get("const").is_some_and(Value::is_null)
        || schema.get("enum").is_some_and(|values| *values == json!([null]))
}

/// Returns a schema that accepts what one of the schemas accepts. Services reject one that accepts `null` alone; it, and a choice of
/// nothing, become a schema that accepts anything.
fn one_of(mut choices: Vec<Value>) -> Map<String, Value> {
    if choices.iter().all(is_null) {
        choices = vec![anything()];
    }
    match choices.as_mut_slice() {
        [Value::Object(only)] => std::mem::take(only),
        _ => Map::from_iter([("anyOf".to_owned(), Value::Array(choices))]),
    }
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

/// Returns the schemas of the kinds of values in an enumeration, which together accept its values; `None` if the schema is not an
/// enumeration of plain values, or too large.
fn enumeration(fields: &Map<String, Value>) -> Option<Vec<Value>> {
    let values = match (fields.get("enum"), fields.get("const")) {
        (Some(Value::Array(values)), _) => values.as_slice(),
        (_, Some(only)) => std::slice::from_ref(only),
        _ => return None,
    };
    let is_plain = |value: &Value| match value {
        Value::String(text) => text.len() <= MAX_DESCRIPTION,
        Value::Array(_) | Value::Object(_) => false,
        _ => true,
    };
    if values.is_empty() || values.len() > MAX_VALUES || !values.iter().all(is_plain) {
        return None;
    }
    let kind_of = |value: &Value| match value {
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "boolean",
        _ => "null",
    };
    let of_kind = |kind: &str| {
        let values: Vec<_> = values.iter().filter(|value| kind_of(value) == kind).collect();
        (!values.is_empty()).then(|| json!({ "type": kind, "enum": values }))
    };
    let mut schemas: Vec<_> = ["string", "number", "boolean"].into_iter().filter_map(of_kind).collect();
    schemas.extend(values.iter().any(Value::is_null).then(null));
    Some(schemas)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::ToolSpec;
    use crate::tools::parse_arguments;

    #[test]
    fn odd_schemas_become_acceptable_ones() {
        let object = |properties: Value| json!({"type": "object", "properties": properties, "required": []});
        for (schema, expected) in [
            (json!({}), object(json!({}))),
            (json!(true), object(json!({}))),
            (json!({"type": "object"}), object(json!({}))),
            (
                json!({"$schema": "x", "type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": ["integer", "null"], "title": "A"}}}),
                object(json!({"a": {"anyOf": [{"type": "integer"}, {"type": "null"}]}})),
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
                json!({"properties": {"a": {"enum": ["x", 1, null]}, "b": {"type": "null"}}, "additionalProperties": false}),
                json!({
                    "type": "object", "required": [], "additionalProperties": false,
                    "properties": {
                        "a": {"anyOf": [{"type": "string", "enum": ["x"]}, {"type": "number", "enum": [1]}, {"type": "null"}]},
                        "b": anything(),
                    },
                }),
            ),
            (
                json!({"anyOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"properties": {"b": {"type": "boolean"}}}]}),
                object(json!({"a": {"type": "string"}, "b": {"type": "boolean"}})),
            ),
        ] {
            assert_eq!(clean_schema(&schema).as_ref(), Ok(&expected), "{schema}");
        }
    }

    /// Returns what a server gets for these arguments of a call.
    fn sent(schema: &Value, arguments: &Value) -> Result<Value, String> {
        let parameters = clean_schema(schema).unwrap();
        let spec = ToolSpec { name: "x".to_owned(), description: String::new(), parameters };
        parse_arguments(&spec, &arguments.to_string())
    }

    #[test]
    fn what_fits_the_servers_schema_is_sent_unchanged() {
        let schema = json!({
            "type": "object", "required": ["rn"],
            "properties": {
                "any": {}, "desc": {"description": "the value, any JSON"}, "arr": {"type": "array"},
                "arr2": {"type": "array", "items": {}}, "si": {"type": ["string", "integer"]},
                "ao": {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "e": {"enum": ["a", 1, null]},
                "o": {"type": "object", "properties": {"k": {}}}, "rn": {"type": ["string", "null"]},
                "rc": {"anyOf": [{"type": "integer"}, {"const": null}]},
            },
        });
        for (name, values) in [
            ("any", json!([5, true, null, "5", [1, true, {"a": 1}], {"a": [null]}])),
            ("desc", json!([5, [1.5, "x"]])),
            ("arr", json!([[1, 2], ["1", null, [2]]])),
            ("arr2", json!([[1, 2]])),
            ("si", json!([5, "5"])),
            ("ao", json!([5, "5", "007"])),
            ("e", json!([1, "a", null])),
            ("o", json!([{"k": 5}, {"k": null, "further": [1]}])),
            ("rc", json!([1, null])),
            ("further", json!([5, {"a": 1}])),
        ] {
            for value in values.as_array().unwrap() {
                let arguments = json!({"rn": null, name: value});
                assert_eq!(sent(&schema, &arguments), Ok(arguments), "{name}");
            }
        }
        let converted = sent(&schema, &json!({"rn": 7, "arr": "[1]", "rc": "5"}));
        assert_eq!(converted, Ok(json!({"rn": "7", "arr": [1], "rc": 5})), "only what does not fit");
    }

    #[test]
    fn further_properties_are_refused_only_by_a_schema_that_excludes_them() {
        let listed = json!({"x": {"type": "string"}});
        for (schema, is_sent) in [
            (json!({"type": "object"}), true),
            (json!({"type": "object", "properties": listed}), true),
            (json!({"type": "object", "patternProperties": {"^y": {}}, "additionalProperties": false}), true),
            (json!({"type": "object", "properties": listed, "additionalProperties": {"type": "integer"}}), true),
            (json!({"type": "object", "properties": listed, "additionalProperties": false}), false),
        ] {
            assert_eq!(sent(&schema, &json!({"y": 1})).is_ok(), is_sent, "{schema}");
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
        assert_eq!(cleaned["properties"]["a"]["properties"]["b"], anything(), "{cleaned}");
        let nested = json!({
            "$defs": {"J": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/J"}}]}},
            "properties": {"a": {"$ref": "#/$defs/J"}},
        });
        let arguments = json!({"a": ["x", ["y"]]});
        assert_eq!(sent(&nested, &arguments), Ok(arguments));
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
