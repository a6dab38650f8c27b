//! The queries that find definitions and references in the trees of each language.
//!
//! The queries that the grammars ship find no references in C and C++, no types in Python and Java, and no constants.
//! `@definition.KIND` is a whole definition, with its `@name`. `@reference` is the name of something defined elsewhere.
//! `@constant` is such a name if it begins with a capital letter. Of several definitions with the same name node, the first
//! pattern counts.

use super::language::CodeLanguage;

/// Returns the text of the query of a language.
pub(super) fn query_text(language: CodeLanguage) -> String {
    match language {
        CodeLanguage::C => C.to_owned(),
        CodeLanguage::Cpp => [C, CPP].concat(),
        CodeLanguage::Go => GO.to_owned(),
        CodeLanguage::Java => JAVA.to_owned(),
        CodeLanguage::JavaScript => [SCRIPT, JAVASCRIPT, JSX].concat(),
        CodeLanguage::Python => PYTHON.to_owned(),
        CodeLanguage::Rust => RUST.to_owned(),
        CodeLanguage::Tsx => [SCRIPT, TYPESCRIPT, JSX].concat(),
        CodeLanguage::TypeScript => [SCRIPT, TYPESCRIPT].concat(),
    }
}

const RUST: &str = r"
(struct_item name: (type_identifier) @name) @definition.struct
(enum_item name: (type_identifier) @name) @definition.enum
(union_item name: (type_identifier) @name) @definition.union
(type_item name: (type_identifier) @name) @definition.type
(trait_item name: (type_identifier) @name) @definition.trait
(impl_item type: (_) @name) @definition.impl
(impl_item body: (declaration_list (function_item name: (identifier) @name) @definition.method))
(trait_item body: (declaration_list (function_item name: (identifier) @name) @definition.method))
(function_signature_item name: (identifier) @name) @definition.method
(function_item name: (identifier) @name) @definition.function
(mod_item name: (identifier) @name body: (_)) @definition.module
(macro_definition name: (identifier) @name) @definition.macro
(const_item name: (identifier) @name) @definition.constant
(static_item name: (identifier) @name) @definition.constant
(enum_variant name: (identifier) @name) @definition.variant
(call_expression function: (identifier) @reference)
(call_expression function: (field_expression field: (field_identifier) @member))
(generic_function function: (identifier) @reference)
(generic_function function: (field_expression field: (field_identifier) @member))
(macro_invocation macro: (identifier) @reference)
(scoped_identifier name: (identifier) @member)
(use_list (identifier) @reference)
(type_identifier) @reference
(identifier) @constant
";

const PYTHON: &str = r"
(class_definition name: (identifier) @name) @definition.class
(class_definition body: (block (function_definition name: (identifier) @name) @definition.method))
(class_definition body: (block (decorated_definition definition: (function_definition name: (identifier) @name) @definition.method)))
(function_definition name: (identifier) @name) @definition.function
(module (expression_statement (assignment left: (identifier) @name) @definition.constant))
(module (type_alias_statement left: (type (identifier) @name)) @definition.type)
(call function: (identifier) @reference)
(call function: (attribute attribute: (identifier) @reference))
(type (identifier) @reference)
(type (attribute attribute: (identifier) @reference))
(generic_type (identifier) @reference)
(class_definition superclasses: (argument_list (identifier) @reference))
(class_definition superclasses: (argument_list (attribute attribute: (identifier) @reference)))
(import_from_statement name: (dotted_name (identifier) @reference))
(import_from_statement name: (aliased_import name: (dotted_name (identifier) @reference)))
(decorator (identifier) @reference)
(decorator (attribute attribute: (identifier) @reference))
(identifier) @constant
";

/// The query that JavaScript and TypeScript share.
const SCRIPT: &str = r"
(method_definition name: [(property_identifier) (private_property_identifier)] @name) @definition.method
(function_declaration name: (identifier) @name) @definition.function
(generator_function_declaration name: (identifier) @name) @definition.function
(variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression) (generator_function)]) @definition.function
(assignment_expression left: (member_expression property: (property_identifier) @name) right: [(arrow_function) (function_expression)]) @definition.function
(pair key: (property_identifier) @name value: [(arrow_function) (function_expression)]) @definition.method
(program (lexical_declaration (variable_declarator name: (identifier) @name) @definition.constant))
(program (variable_declaration (variable_declarator name: (identifier) @name) @definition.constant))
(program (export_statement declaration: (lexical_declaration (variable_declarator name: (identifier) @name) @definition.constant)))
(call_expression function: (identifier) @reference)
(call_expression function: (member_expression property: (property_identifier) @reference))
(new_expression constructor: (identifier) @reference)
(new_expression constructor: (member_expression property: (property_identifier) @reference))
(import_specifier name: (identifier) @reference)
(import_clause (identifier) @reference)
(identifier) @constant
";

const JAVASCRIPT: &str = r"
(class_declaration name: (identifier) @name) @definition.class
(class name: (identifier) @name) @definition.class
(field_definition property: (property_identifier) @name value: (arrow_function)) @definition.method
(class_heritage (identifier) @reference)
";

const JSX: &str = r"
(jsx_opening_element name: (identifier) @reference)
(jsx_self_closing_element name: (identifier) @reference)
";

const TYPESCRIPT: &str = r"
(class_declaration name: (type_identifier) @name) @definition.class
(class name: (type_identifier) @name) @definition.class
(abstract_class_declaration name: (type_identifier) @name) @definition.class
(interface_declaration name: (type_identifier) @name) @definition.interface
(type_alias_declaration name: (type_identifier) @name) @definition.type
(enum_declaration name: (identifier) @name) @definition.enum
(internal_module name: (identifier) @name) @definition.module
(module name: (identifier) @name) @definition.module
(function_signature name: (identifier) @name) @definition.function
(method_signature name: (property_identifier) @name) @definition.method
(abstract_method_signature name: (property_identifier) @name) @definition.method
(public_field_definition name: (property_identifier) @name value: (arrow_function)) @definition.method
(extends_clause value: (identifier) @reference)
(type_identifier) @reference
";

const GO: &str = r"
(function_declaration name: (identifier) @name) @definition.function
(method_declaration name: (field_identifier) @name) @definition.method
(method_elem name: (field_identifier) @name) @definition.method
(type_spec name: (type_identifier) @name type: (struct_type)) @definition.struct
(type_spec name: (type_identifier) @name type: (interface_type)) @definition.interface
(type_spec name: (type_identifier) @name) @definition.type
(type_alias name: (type_identifier) @name) @definition.type
(source_file (const_declaration (const_spec name: (identifier) @name) @definition.constant))
(source_file (var_declaration (var_spec name: (identifier) @name) @definition.variable))
(source_file (var_declaration (var_spec_list (var_spec name: (identifier) @name) @definition.variable)))
(call_expression function: (identifier) @reference)
(call_expression function: (selector_expression field: (field_identifier) @reference))
(type_identifier) @reference
(identifier) @constant
(selector_expression field: (field_identifier) @constant)
";

const JAVA: &str = r"
(class_declaration name: (identifier) @name) @definition.class
(record_declaration name: (identifier) @name) @definition.class
(interface_declaration name: (identifier) @name) @definition.interface
(annotation_type_declaration name: (identifier) @name) @definition.interface
(enum_declaration name: (identifier) @name) @definition.enum
(method_declaration name: (identifier) @name) @definition.method
(constructor_declaration name: (identifier) @name) @definition.constructor
(enum_constant name: (identifier) @name) @definition.variant
(field_declaration declarator: (variable_declarator name: (identifier) @name)) @definition.field
(method_invocation name: (identifier) @reference)
(import_declaration (scoped_identifier name: (identifier) @reference))
(marker_annotation name: (identifier) @reference)
(annotation name: (identifier) @reference)
(type_identifier) @reference
(identifier) @constant
";

const C: &str = r"
(function_declarator declarator: (identifier) @name) @definition.function
(struct_specifier name: (type_identifier) @name body: (_)) @definition.struct
(union_specifier name: (type_identifier) @name body: (_)) @definition.union
(enum_specifier name: (type_identifier) @name body: (_)) @definition.enum
(type_definition declarator: (type_identifier) @name) @definition.type
(preproc_def name: (identifier) @name) @definition.macro
(preproc_function_def name: (identifier) @name) @definition.macro
(enumerator name: (identifier) @name) @definition.variant
(translation_unit (declaration declarator: (init_declarator declarator: (identifier) @name)) @definition.variable)
(call_expression function: (identifier) @reference)
(call_expression function: (field_expression field: (field_identifier) @reference))
(type_identifier) @reference
(identifier) @constant
";

/// The patterns that C++ adds to the query of C.
const CPP: &str = r"
(class_specifier name: (type_identifier) @name body: (_)) @definition.class
(function_declarator declarator: (field_identifier) @name) @definition.method
(function_declarator declarator: [(destructor_name) (operator_name)] @name) @definition.method
(function_declarator declarator: (qualified_identifier name: [(identifier) (destructor_name) (operator_name)] @name)) @definition.method
(function_declarator declarator: (qualified_identifier name: (qualified_identifier name: [(identifier) (destructor_name)] @name))) @definition.method
(namespace_definition name: (namespace_identifier) @name) @definition.module
(alias_declaration name: (type_identifier) @name) @definition.type
(concept_definition name: (identifier) @name) @definition.type
(qualified_identifier name: (identifier) @reference)
(template_function name: (identifier) @reference)
";
