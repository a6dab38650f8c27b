//! The prompt of a job: a template within narrow limits, since anybody who may create jobs writes it.

use daoyou_channels::jinja::{self, BoundedOutput};
use minijinja::{
    Environment, Error, ErrorKind, UndefinedBehavior, Value, context, filters, functions, tests as checks,
};

/// The longest template, in bytes.
const MAX_SOURCE: usize = 32 << 10;
/// The longest rendered text, in bytes.
const MAX_OUTPUT: usize = 100 << 10;
/// The most steps of one rendering.
const FUEL: u64 = 10_000;
/// The longest `range`.
const RANGE: isize = 1_000;
/// The most texts that one template joins with `~` or `+`.
const JOINS: usize = 16;
/// The deepest nesting of tags.
const RECURSION: usize = 16;
/// The names that a template may use.
const NAMES: [&str; 4] = ["time", "last_run", "last_result", "name"];
/// The statements that a template may have: none that stores a text and could build a longer one from it.
const STATEMENTS: [&str; 6] = ["if", "elif", "else", "endif", "for", "endfor"];
const TEMPLATE: &str = "prompt";

/// The values of the names; times by the owner's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptNames {
    pub time: String,
    /// Empty before the first run.
    pub last_run: String,
    /// Empty before the first successful run.
    pub last_result: String,
    pub name: String,
}

/// Finds faults that would fail every run.
///
/// # Errors
/// Explains the fault to the author of the template.
pub fn check(source: &str) -> Result<(), String> {
    let environment = environment(source)?;
    let template = environment.get_template(TEMPLATE).map_err(|error| describe(&error))?;
    let known =
        |name: &String| NAMES.contains(&name.as_str()) || environment.globals().any(|(global, _)| global == name);
    let mut unknown: Vec<_> = template.undeclared_variables(false).into_iter().filter(|name| !known(name)).collect();
    unknown.sort();
    if let Some(name) = unknown.first() {
        return Err(format!("the prompt has no name {name:?}; there are {}", NAMES.join(", ")));
    }
    render(source, &PromptNames { name: "x".to_owned(), ..PromptNames::default() }).map(drop)
}

/// Renders the template with `names`.
///
/// # Errors
/// Explains the fault in one line.
pub fn render(source: &str, names: &PromptNames) -> Result<String, String> {
    // Nearly all prompts are plain text.
    if !source.contains("{{") && !source.contains("{%") && !source.contains("{#") {
        return if source.len() > MAX_SOURCE { Err(too_long()) } else { Ok(source.to_owned()) };
    }
    let PromptNames { time, last_run, last_result, name } = names;
    let environment = environment(source)?;
    let mut output = BoundedOutput::new(MAX_OUTPUT);
    let rendered = environment.get_template(TEMPLATE).and_then(|template| {
        template.render_captured_to(context! { time, last_run, last_result, name }, &mut output).map(drop)
    });
    match rendered {
        Ok(()) => String::from_utf8(output.into_bytes()).map_err(|_| "the prompt's template made no text".to_owned()),
        Err(_) if output.is_full() => Err(format!("the prompt makes more than {MAX_OUTPUT} bytes of text")),
        Err(error) => Err(describe(&error)),
    }
}

fn too_long() -> String {
    format!("the prompt is longer than {MAX_SOURCE} bytes; put what is long into a file of the workspace")
}

/// Lists what a template may use. Anything that makes a long text of a short one could exhaust the memory, since only output
/// is counted.
fn environment(source: &str) -> Result<Environment<'static>, String> {
    if source.len() > MAX_SOURCE {
        return Err(too_long());
    }
    check_code(source)?;
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
    environment.add_template_owned(TEMPLATE.to_owned(), source.to_owned()).map_err(|error| describe(&error))?;
    Ok(environment)
}

fn range(from: isize, to: Option<isize>, step: Option<isize>) -> Result<Value, Error> {
    let (first, last) = to.map_or((0, from), |to| (from, to));
    match last.checked_sub(first) {
        Some(length) if (-RANGE..=RANGE).contains(&length) => functions::range(from, to, step),
        _ => Err(Error::new(ErrorKind::InvalidOperation, format!("a range here goes over {RANGE} numbers at most"))),
    }
}

/// Refuses what makes a long text of a short one.
fn check_code(source: &str) -> Result<(), String> {
    let wrong = |words: String| Err(format!("the prompt is a template, and one of a job {words}"));
    let mut joins = 0;
    for tag in jinja::tags(source) {
        if tag.code.contains('*') {
            return wrong("does not multiply (*)".to_owned());
        }
        joins += tag.code.matches(['~', '+']).count();
        let mut words = tag.names();
        if !tag.is_statement {
            continue;
        }
        match words.next() {
            Some(statement) if !STATEMENTS.contains(&statement) => {
                return wrong(format!("has no statement {statement:?}; there are {}, raw", STATEMENTS.join(", ")));
            }
            _ if words.any(|word| word == "recursive") => return wrong("has no recursive loops".to_owned()),
            _ => {}
        }
    }
    if joins > JOINS {
        return wrong(format!("joins at most {JOINS} texts; write {{{{ a }}}}{{{{ b }}}} for a ~ b"));
    }
    Ok(())
}

/// Formats the error in one line.
fn describe(error: &Error) -> String {
    let words = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => "it takes too many steps".to_owned(),
        (ErrorKind::UndefinedError, Some(detail)) => detail.replace(" is undefined", " is missing"),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    let line = error.line().map(|line| format!(" (line {line})")).unwrap_or_default();
    format!("the prompt is a template and is wrong{line}: {words}; text with {{{{ or {{% in it stands in {{% raw %}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_rendered_or_refused_with_a_reason() {
        let text = |text: &str| text.to_owned();
        let names = PromptNames {
            time: text("2026-03-08 09:00"),
            last_run: text(""),
            last_result: text("sun"),
            name: text("w"),
        };
        for (source, expected) in [
            ("plain { text }", Ok("plain { text }")),
            ("/stop", Ok("/stop")),
            ("{{ name }} at {{ time }}", Ok("w at 2026-03-08 09:00")),
            ("{% if last_run %}again{% else %}first{% endif %}: {{ last_result | upper }}", Ok("first: SUN")),
            ("{% raw %}{{ x }}{% endraw %}", Ok("{{ x }}")),
            ("{{ weather }}", Err("no name \"weather\"")),
            ("{{ name | nothing }}", Err("nothing")),
            ("{% if %}", Err("template and is wrong (line 1)")),
            ("{% for a in range(999) %}{% for b in range(999) %}x{% endfor %}{% endfor %}", Err("too many steps")),
            ("{{ time.x.y }}", Err("template")),
            (
                "**{{ name | default('*') | length }}** {{ name ~ '~' }}{% if name is defined %}!{% endif %}",
                Ok("**1** w~!"),
            ),
            ("{% for n in range(3) %}{{ loop.index + n }}{% endfor %}", Ok("135")),
            // These would exhaust the memory.
            ("{{ 'x' * 100000000 }}", Err("does not multiply")),
            ("{{ ('x'*100000)|replace('x','y'*100000) }}", Err("does not multiply")),
            ("{% set a='x' %}{% set b=a~a~a %}", Err("no statement \"set\"")),
            ("{%- filter upper %}x{% endfilter %}", Err("no statement \"filter\"")),
            ("{% with a='x' %}{% endwith %}", Err("no statement \"with\"")),
            ("{% do range(1) %}", Err("no statement \"do\"")),
            ("{% for a in [[1]] recursive %}{{ loop(a) ~ loop(a) }}{% endfor %}", Err("recursive")),
            ("{{ range(1000)|join('y') }}", Err("unknown filter")),
            ("{{ name|replace('x', name) }}", Err("unknown filter")),
            ("{{ 'x'.replace('x', name) }}", Err("template")),
            ("{{ range(1001) }}", Err("1000 numbers")),
            ("{{ range(-9223372036854775807, 9223372036854775807) }}", Err("1000 numbers")),
            (&*format!("{{{{ name{} }}}}", "~name".repeat(17)), Err("at most 16 texts")),
        ] {
            let made = check(source).and_then(|()| render(source, &names));
            match (&made, expected) {
                (Ok(made), Ok(expected)) => assert_eq!(made, expected, "{source}"),
                (Err(error), Err(part)) => assert!(error.contains(part), "{source}: {error}"),
                _ => panic!("{source}: {made:?}"),
            }
        }
        let long = "x".repeat(MAX_SOURCE + 1);
        assert!(check(&long).is_err_and(|error| error.contains("longer than")));
        let filling = "{% for a in range(1000) %}{{ last_result }}{% endfor %}";
        let large = PromptNames { last_result: "y".repeat(4_000), ..names };
        assert!(render(filling, &large).is_err_and(|error| error.contains("more than")), "output is bounded");
    }
}
