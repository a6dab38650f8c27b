//! Jinja templates for prompts and the like, within narrow limits: anybody who may create jobs can write a job's template, and an
//! agent's template may come from its workspace.

use daoyou_channels::jinja::{self, BoundedOutput};
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value, filters, functions, tests as checks};
use serde::Serialize;

/// The longest template, in bytes.
const MAX_SOURCE: usize = 32 << 10;
/// The longest rendered text, in bytes.
const MAX_OUTPUT: usize = 100 << 10;
/// The maximum number of steps of one rendering.
const FUEL: u64 = 10_000;
/// The longest `range`.
const RANGE: isize = 1_000;
/// The maximum number of texts that one template joins with `~` or `+`.
const JOINS: usize = 16;
/// The deepest nesting of tags.
const RECURSION: usize = 16;
/// The statements that a template may have. None of them stores a text, from which a template could build a longer one.
const STATEMENTS: [&str; 6] = ["if", "elif", "else", "endif", "for", "endfor"];
const TEMPLATE: &str = "template";

/// The purpose of a template, which its errors name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplatePurpose {
    Prompt,
    /// A template made of the condition that its author wrote.
    Condition,
    Text,
}

impl TemplatePurpose {
    fn name(self) -> &'static str {
        match self {
            Self::Prompt => "the prompt",
            Self::Condition => "the condition",
            Self::Text => "the template",
        }
    }
}

/// A template that may use a few names.
#[derive(Debug)]
pub struct BoundedTemplate {
    purpose: TemplatePurpose,
    environment: Environment<'static>,
    /// The names that the template uses, in order.
    used: Vec<String>,
    paths: Vec<String>,
}

impl BoundedTemplate {
    /// Compiles a template, which may use `names`. Anything that makes a long text from a short one is refused, since the limits
    /// count only the output.
    ///
    /// # Errors
    /// Explains the fault to the author of the template.
    pub fn new(source: &str, purpose: TemplatePurpose, names: &[&str]) -> Result<Self, String> {
        let name = purpose.name();
        if source.len() > MAX_SOURCE {
            let advice = match purpose {
                TemplatePurpose::Condition => "shorten it",
                TemplatePurpose::Prompt | TemplatePurpose::Text => "put what is long into a file of the workspace",
            };
            return Err(format!("{name} is longer than {MAX_SOURCE} bytes; {advice}"));
        }
        check_code(source).map_err(|words| format!("{name} is wrong: a template here {words}"))?;
        let wrong = |error| describe(purpose, &error);
        let mut environment = Environment::empty();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(RECURSION);
        environment.add_filter("upper", |text: &str| text.to_uppercase());
        environment.add_filter("lower", |text: &str| text.to_lowercase());
        environment.add_filter("trim", |text: &str| text.trim().to_owned());
        environment.add_filter("length", filters::length);
        environment.add_filter("default", filters::default);
        environment.add_test("defined", checks::is_defined);
        environment.add_function("range", range);
        environment.add_template_owned(TEMPLATE.to_owned(), source.to_owned()).map_err(wrong)?;
        let template = environment.get_template(TEMPLATE).map_err(wrong)?;
        let is_global = |name: &String| environment.globals().any(|(global, _)| global == name);
        let mut used: Vec<_> =
            template.undeclared_variables(false).into_iter().filter(|name| !is_global(name)).collect();
        used.sort();
        if let Some(unknown) = used.iter().find(|used| !names.contains(&used.as_str())) {
            return Err(format!("{name} has no name {unknown:?}; there are {}", names.join(", ")));
        }
        let mut paths: Vec<_> = template.undeclared_variables(true).into_iter().collect();
        paths.sort();
        Ok(Self { purpose, environment, used, paths })
    }

    /// Compiles a template that makes "1" if an expression is true, and nothing otherwise.
    ///
    /// # Errors
    /// Those of [`Self::new`].
    pub fn condition(expression: &str, names: &[&str]) -> Result<Self, String> {
        let source = format!("{{% if {} %}}1{{% endif %}}", expression.trim());
        Self::new(&source, TemplatePurpose::Condition, names)
    }

    /// Returns the names that the template uses.
    pub fn used(&self) -> &[String] {
        &self.used
    }

    /// Returns the names, with the fields that the template reads, such as `steps.a.output`, in order.
    pub fn paths(&self) -> &[String] {
        &self.paths
    }

    /// Renders the template with the fields of `values`.
    ///
    /// # Errors
    /// Explains the fault in one line.
    pub fn render(&self, values: impl Serialize) -> Result<String, String> {
        let mut output = BoundedOutput::new(MAX_OUTPUT);
        let rendered = self
            .environment
            .get_template(TEMPLATE)
            .and_then(|template| template.render_captured_to(Value::from(Serde(values)), &mut output).map(drop));
        let name = self.purpose.name();
        match rendered {
            Ok(()) => String::from_utf8(output.into_bytes()).map_err(|_| format!("{name} made no text")),
            Err(_) if output.is_full() => Err(format!("{name} makes more than {MAX_OUTPUT} bytes of text")),
            Err(error) => Err(describe(self.purpose, &error)),
        }
    }
}

fn range(from: isize, to: Option<isize>, step: Option<isize>) -> Result<Value, Error> {
    let (first, last) = to.map_or((0, from), |to| (from, to));
    match last.checked_sub(first) {
        Some(length) if (-RANGE..=RANGE).contains(&length) => functions::range(from, to, step),
        _ => Err(Error::new(ErrorKind::InvalidOperation, format!("a range here goes over {RANGE} numbers at most"))),
    }
}

/// Refuses a template that makes a long text from a short one.
///
/// # Errors
/// States what a template does not do.
fn check_code(source: &str) -> Result<(), String> {
    let mut joins = 0;
    for tag in jinja::tags(source) {
        if tag.code.contains('*') {
            return Err("does not multiply (*)".to_owned());
        }
        joins += tag.code.matches(['~', '+']).count();
        let mut words = tag.names();
        if !tag.is_statement {
            continue;
        }
        match words.next() {
            Some(statement) if !STATEMENTS.contains(&statement) => {
                return Err(format!("has no statement {statement:?}; there are {}, raw", STATEMENTS.join(", ")));
            }
            _ if words.any(|word| word == "recursive") => return Err("has no recursive loops".to_owned()),
            _ => {}
        }
    }
    if joins > JOINS {
        return Err(format!("joins at most {JOINS} texts; write {{{{ a }}}}{{{{ b }}}} for a ~ b"));
    }
    Ok(())
}

/// Formats the error in one line.
fn describe(purpose: TemplatePurpose, error: &Error) -> String {
    let words = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => "it takes too many steps".to_owned(),
        (ErrorKind::UndefinedError, Some(detail)) => detail.replace(" is undefined", " is missing"),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    let name = purpose.name();
    if purpose == TemplatePurpose::Condition {
        return format!("{name} is wrong: {words}");
    }
    let line = error.line().map(|line| format!(" (line {line})")).unwrap_or_default();
    let is_template = if purpose == TemplatePurpose::Prompt { "is a template and " } else { "" };
    format!("{name} {is_template}is wrong{line}: {words}; text with {{{{ or {{% in it stands in {{% raw %}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_is_too_long_gets_advice_that_fits_its_purpose() {
        let long = "x".repeat(MAX_SOURCE + 1);
        let error = BoundedTemplate::condition(&long, &["x"]).unwrap_err();
        assert_eq!(error, "the condition is longer than 32768 bytes; shorten it");
        let error = BoundedTemplate::new(&long, TemplatePurpose::Text, &[]).unwrap_err();
        assert_eq!(error, "the template is longer than 32768 bytes; put what is long into a file of the workspace");
    }
}
