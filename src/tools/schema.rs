//! Simplifies the JSON Schema of an arguments struct. Every request contains the schema, and strict services reject what schemars
//! adds.

use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use crate::chat::ToolSpec;

/// The maximum depth of nested references that is followed.
const MAX_DEPTH: u32 = 8;

/// Returns the specification of a tool with arguments `Args`. The doc comments of the fields become descriptions.
pub fn tool_spec<Args: JsonSchema>(name: &str, description: impl Into<String>) -> ToolSpec {
    let parameters = plain_schema(schemars::schema_for!(Args).as_value());
    ToolSpec { name: name.to_owned(), description: description.into(), parameters }
}

/// Simplifies the schema of an object. References are resolved; optional fields lose `null`; titles, number formats and versions
/// are removed; only the named properties are allowed.
pub fn plain_schema(schema: &Value) -> Value {
    let definitions = schema.get("$defs").or_else(|| schema.get("definitions")).cloned().unwrap_or_default();
    let mut root = match simplify(schema, &definitions, MAX_DEPTH) {
        Value::Object(root) => root,
        _ => Map::new(),
    };
    root.remove("description");
    root.entry("type").or_insert_with(|| json!("object"));
    root.entry("properties").or_insert_with(|| json!({}));
    root.entry("required").or_insert_with(|| json!([]));
    root.entry("additionalProperties").or_insert_with(|| json!(false));
    Value::Object(root)
}

/// Returns the schema as models read it: without what only the check of arguments needs, and with the items that services require of
/// every array.
pub fn schema_for_models(schema: &Value) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    let mut fields = fields.clone();
    fields.retain(|key, value| match key.as_str() {
        "additionalProperties" => *value != json!(false),
        "required" => *value != json!([]),
        _ => true,
    });
    replace_inner(&mut fields, &["properties"], schema_for_models);
    fields = remove_null(fields);
    if fields.get("type").is_some_and(|kind| kind == "array") {
        fields.entry("items").or_insert_with(|| json!({ "type": "string" }));
    }
    Value::Object(fields)
}

/// Replaces the schemas in a schema: those of the properties in `maps`, of items, of further properties, and of choices.
fn replace_inner(fields: &mut Map<String, Value>, maps: &[&str], replace: impl Fn(&Value) -> Value) {
    for (key, field) in fields {
        match (key.as_str(), field) {
            (key, Value::Object(properties)) if maps.contains(&key) => {
                properties.values_mut().for_each(|property| *property = replace(property));
            }
            ("anyOf" | "oneOf" | "allOf", Value::Array(choices)) => {
                choices.iter_mut().for_each(|choice| *choice = replace(choice));
            }
            ("items" | "additionalProperties", inner) => *inner = replace(inner),
            _ => {}
        }
    }
}

/// Returns the parts of a tool's argument schema that a strict service would reject.
pub fn schema_faults(schema: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    if schema.get("type") != Some(&json!("object")) {
        faults.push("the root is not an object".to_owned());
    }
    collect_faults(schema, "", &mut faults);
    faults
}

fn simplify(schema: &Value, definitions: &Value, depth: u32) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    let mut fields = fields.clone();
    if let Some(target) = fields.remove("$ref").as_ref().and_then(Value::as_str).and_then(|at| at.rsplit('/').next()) {
        // A recursive type is cut here: its innermost level accepts anything.
        let found =
            definitions.get(target).filter(|_| depth > 0).and_then(Value::as_object).cloned().unwrap_or_default();
        let own = std::mem::take(&mut fields);
        fields = found;
        fields.extend(own);
        return simplify(&Value::Object(fields), definitions, depth.saturating_sub(1));
    }
    for key in ["$schema", "$defs", "definitions", "title"] {
        fields.remove(key);
    }
    let is_integer = |format: &Value| format.as_str().is_some_and(|f| f.starts_with("int") || f.starts_with("uint"));
    if fields.get("format").is_some_and(|format| is_integer(format) || format == "double" || format == "float") {
        fields.remove("format");
        if fields.get("minimum") == Some(&json!(0)) {
            fields.remove("minimum");
        }
    }
    if fields.get("default") == Some(&Value::Null) {
        fields.remove("default");
    }
    fields = remove_null(fields);
    fields = join_constants(fields);
    if fields.contains_key("$ref") {
        return simplify(&Value::Object(fields), definitions, depth);
    }
    replace_inner(&mut fields, &["properties", "patternProperties"], |inner| simplify(inner, definitions, depth));
    if fields.contains_key("properties") {
        fields.entry("additionalProperties").or_insert_with(|| json!(false));
    }
    Value::Object(fields)
}

/// Removes `null` from the types, since a model omits an argument by leaving it out.
fn remove_null(mut schema: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    for key in ["anyOf", "oneOf"] {
        let Some(Value::Array(choices)) = schema.get_mut(key) else { continue };
        choices.retain(|choice| choice.get("type") != Some(&json!("null")));
        if let [Value::Object(only)] = choices.as_slice() {
            let mut only = only.clone();
            schema.remove(key);
            // The description of the field takes precedence over that of its type.
            only.extend(schema);
            return remove_null(only);
        }
    }
    schema
}

/// Joins the constants of an enum whose variants have doc comments; schemars gives each variant a schema of its own.
fn join_constants(mut schema: Map<String, Value>) -> Map<String, Value> {
    let constants: Option<Vec<Value>> = schema.get("oneOf").and_then(Value::as_array).and_then(|choices| {
        let words = choices.iter().map(|choice| match (choice.get("const"), choice.get("enum")) {
            (Some(word), _) => Some(vec![word.clone()]),
            (None, Some(Value::Array(words))) => Some(words.clone()),
            _ => None,
        });
        words.collect::<Option<Vec<_>>>().map(|words| words.concat())
    });
    if let Some(words) = constants.filter(|words| words.iter().all(Value::is_string)) {
        schema.remove("oneOf");
        schema.insert("type".to_owned(), json!("string"));
        schema.insert("enum".to_owned(), Value::Array(words));
    }
    schema
}

fn collect_faults(schema: &Value, at: &str, faults: &mut Vec<String>) {
    let Value::Object(fields) = schema else {
        return faults.push(format!("{at}: not a schema"));
    };
    for key in ["$ref", "$schema", "$defs", "nullable"] {
        if fields.contains_key(key) {
            faults.push(format!("{at}: has {key}"));
        }
    }
    match fields.get("type") {
        Some(Value::String(_)) => {}
        Some(_) => faults.push(format!("{at}: more than one type")),
        None if ["anyOf", "oneOf", "allOf", "enum", "const"].iter().any(|key| fields.contains_key(*key)) => {}
        None => faults.push(format!("{at}: no type")),
    }
    if fields.get("type") == Some(&json!("array")) {
        match fields.get("items") {
            Some(items) => collect_faults(items, &format!("{at}[]"), faults),
            None => faults.push(format!("{at}: an array without items")),
        }
    }
    let none = Map::new();
    let properties = fields.get("properties").and_then(Value::as_object).unwrap_or(&none);
    for (name, property) in properties {
        collect_faults(property, &format!("{at}.{name}"), faults);
    }
    for name in fields.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        if !properties.contains_key(name) {
            faults.push(format!("{at}: requires {name}, which it does not have"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    /// Not sent.
    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct ExampleArgs {
        /// What to do.
        action: Action,
        #[serde(default)]
        title: Option<String>,
        /// How often.
        count: Option<u32>,
        ratio: Option<f64>,
        tags: Vec<String>,
        nested: Option<NestedArgs>,
        format: String,
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Action {
        /// One more.
        Add,
        List,
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct NestedArgs {
        again: Option<Box<NestedArgs>>,
        action: Option<Action>,
    }

    #[test]
    fn a_struct_has_a_small_and_strict_schema() {
        let spec = tool_spec::<ExampleArgs>("x", "d");
        let properties = &spec.parameters["properties"];
        let mut words: Vec<_> = properties["action"]["enum"].as_array().unwrap().clone();
        words.sort_by_key(ToString::to_string);
        assert_eq!(words, [json!("add"), json!("list")]);
        assert_eq!(properties["count"], json!({ "type": "integer", "description": "How often." }));
        assert_eq!(properties["title"], json!({ "type": "string" }));
        assert_eq!(properties["format"], json!({ "type": "string" }));
        assert_eq!(properties["ratio"], json!({ "type": "number" }));
        assert_eq!(properties["tags"], json!({ "type": "array", "items": { "type": "string" } }));
        assert_eq!(properties["nested"]["properties"]["action"]["type"], "string");
        assert_eq!(spec.parameters["required"], json!(["action", "tags", "format"]));
        assert_eq!(spec.parameters["additionalProperties"], json!(false));
        assert!(spec.parameters.get("description").is_none() && !spec.parameters.to_string().contains("$"));
        let sent = schema_for_models(&spec.parameters);
        assert!(!sent.to_string().contains("additionalProperties"), "{sent}");
        assert_eq!(sent["required"], spec.parameters["required"]);
        let free = json!({"type": "object", "properties": {"required": {"type": "object", "additionalProperties": {"type": "string"}}}, "required": []});
        let expected = json!({"type": "object", "properties": {"required": {"type": "object", "additionalProperties": {"type": "string"}}}});
        assert_eq!(schema_for_models(&free), expected);
        let nullable = json!({"type": "object", "properties": {"a": {"anyOf": [{"type": "array"}, {"type": "null"}], "description": "d"}}});
        let expected = json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}, "description": "d"}}});
        assert_eq!(schema_for_models(&nullable), expected);
    }

    #[test]
    fn schema_faults_that_services_reject_are_found() {
        for (schema, faults) in [
            (json!({ "type": "object", "properties": {} }), 0),
            (json!({ "type": "string" }), 1),
            (json!({ "type": "object", "properties": { "a": { "type": "array" } } }), 1),
            (json!({ "type": "object", "properties": { "a": { "type": ["string", "null"] }, "b": {} } }), 2),
            (json!({ "type": "object", "required": ["a"], "properties": { "b": { "$ref": "#/x" } } }), 3),
        ] {
            assert_eq!(schema_faults(&schema).len(), faults, "{schema}: {:?}", schema_faults(&schema));
        }
    }
}
