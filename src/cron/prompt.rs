//! The prompt of a job: a template that can use the values of earlier runs.

use serde::Serialize;

use crate::text::{BoundedTemplate, TemplatePurpose};

/// The names that a template may use.
const NAMES: [&str; 4] = ["time", "last_run", "last_result", "name"];

/// The values of the names; times by the owner's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PromptNames {
    pub time: String,
    /// Empty before the first run.
    pub last_run: String,
    /// Empty before the first successful run.
    pub last_result: String,
    pub name: String,
}

/// Checks a template for faults that would make every run fail.
///
/// # Errors
/// Explains the fault to the author of the template.
pub fn check(source: &str) -> Result<(), String> {
    compile(source)?.render(PromptNames { name: "x".to_owned(), ..PromptNames::default() }).map(drop)
}

/// Renders the template with `names`.
///
/// # Errors
/// Explains the fault in one line.
pub fn render(source: &str, names: &PromptNames) -> Result<String, String> {
    compile(source)?.render(names)
}

fn compile(source: &str) -> Result<BoundedTemplate, String> {
    BoundedTemplate::new(source, TemplatePurpose::Prompt, &NAMES)
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
            // Without limits, these templates would exhaust the memory.
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
        let long = "x".repeat((32 << 10) + 1);
        assert!(check(&long).is_err_and(|error| error.contains("longer than")));
        let filling = "{% for a in range(1000) %}{{ last_result }}{% endfor %}";
        let large = PromptNames { last_result: "y".repeat(4_000), ..names };
        assert!(render(filling, &large).is_err_and(|error| error.contains("more than")), "output is bounded");
    }
}
