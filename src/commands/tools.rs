//! `daoyou tools` and `daoyou prompt`.

use std::io::{self, Write};
use std::path::Path;

use daoyou_channels::cli::{Interrupt, render_output};
use serde_json::{Value, json};

use super::access::{inspect, run_tool};
use super::environment::{CommandEnvironment, watch_signals};
use super::files::read_text;
use super::output::{Stdout, print, print_note, tr};
use super::translation::tr_fill;
use super::{CommandExit, render};
use crate::cli::{Output, PromptArgs, ToolRunArgs, ToolsCommand};
use crate::query::{GatewayQuery, ManualToolRun};
use crate::text::nearest;

/// The largest arguments from standard input, in bytes.
const ARGUMENTS_LIMIT: u64 = 10_000_000;
/// The minimum similarity (1 is equal) for a suggestion.
const MIN_SIMILARITY: f64 = 0.5;
/// The width of a rendered result, in columns.
const COLUMNS: usize = 100;

/// Runs `daoyou tools`. With `is_whole`, the result of a tool is not shortened.
///
/// # Errors
/// The configuration is invalid, or the gateway does not answer.
pub async fn run(
    command: &ToolsCommand,
    is_whole: bool,
    environment: &CommandEnvironment,
) -> anyhow::Result<CommandExit> {
    let list = inspect(GatewayQuery::Tools, environment).await?;
    match command {
        ToolsCommand::List(output) => print(&list, *output, |out| render::table(&list, render::TOOLS, "no tools", out)),
        ToolsCommand::Show { name, output } => match find(&list, name) {
            Some(tool) => print(tool, *output, |out| show(tool, out)),
            None => {
                print_unknown(&list, name);
                Ok(CommandExit::Usage)
            }
        },
        ToolsCommand::Run(args) => match find(&list, &args.name) {
            Some(tool) if tool["enabled"] == false => refuse_disabled(tool, args.output),
            Some(_) => run_by_hand(args, is_whole, environment).await,
            None => {
                print_unknown(&list, &args.name);
                Ok(CommandExit::Usage)
            }
        },
    }
}

/// Runs `daoyou prompt`.
///
/// # Errors
/// No model can be chosen, the configuration is invalid, or the gateway does not answer.
pub async fn prompt(args: &PromptArgs, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    let query = GatewayQuery::Prompt { session: args.session.clone(), message: args.message.clone() };
    let found = inspect(query, environment).await?;
    print(&found, args.output, |out| {
        render::table(&found["parts"], render::PROMPT_PARTS, "", &mut *out)?;
        writeln!(out, "{}: {}", tr("whole request, in bytes", "整个请求的字节数"), found["bytes"])?;
        writeln!(out, "{}: {}", tr("tokens, estimated", "估计的 token 数"), found["tokens"])?;
        writeln!(out, "{}: {}\n", tr("model", "模型"), render::text(&found["model"]))?;
        writeln!(out, "{:#}", super::output::CleanJson(&found["request"]))
    })
}

/// Returns the tool with this name or alias.
fn find<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    let is_it = |word: &Value| word.as_str().is_some_and(|word| word.eq_ignore_ascii_case(name.trim()));
    let rows = || render::items(list).iter();
    let by_alias = |tool: &&Value| render::items(&tool["aliases"]).iter().any(is_it);
    rows().find(|tool| is_it(&tool["name"])).or_else(|| rows().find(by_alias))
}

/// Prints that there is no such tool, and the most similar one.
fn print_unknown(list: &Value, name: &str) {
    let rows = render::items(list).iter();
    let names = rows.flat_map(|tool| {
        let own = tool["name"].as_str();
        let others = render::items(&tool["aliases"]).iter().filter_map(Value::as_str);
        own.into_iter().chain(others).filter_map(move |word| Some((word, own?)))
    });
    let near = nearest::nearest(&name.to_lowercase(), names, nearest::BY_EDITS, MIN_SIMILARITY);
    let near = near.map(|near| format!("; {} {near}", tr("did you mean", "你是否想用"))).unwrap_or_default();
    print_note(format_args!("daoyou: {name:?} {}{near}", tr("is not a tool", "不是工具")));
}

/// Prints that a tool is disabled, in place of its result.
fn refuse_disabled(tool: &Value, output: Output) -> anyhow::Result<CommandExit> {
    let name = render::text(&tool["name"]);
    let error = format!("{name} is disabled (tools.disabled)");
    let result = json!({ "success": false, "content": "", "error": error, "metadata": {} });
    print(&result, output, |_| {
        let words = tr_fill("{} is disabled (tools.disabled)", "{} 已停用（tools.disabled）", &[&name]);
        print_note(format_args!("daoyou: {words}"));
        Ok(())
    })?;
    Ok(CommandExit::Failed)
}

async fn run_by_hand(
    args: &ToolRunArgs,
    is_whole: bool,
    environment: &CommandEnvironment,
) -> anyhow::Result<CommandExit> {
    let arguments = match args.arguments.as_str() {
        "-" => read_text(Path::new("-"), ARGUMENTS_LIMIT, tr("arguments", "参数"))?,
        text => text.to_owned(),
    };
    let wrong = match serde_json::from_str(&arguments) {
        Ok(Value::Object(_)) => None,
        Ok(_) => Some(String::new()),
        Err(error) => Some(format!(": {error}")),
    };
    if let Some(wrong) = wrong {
        print_note(format_args!("daoyou: {}{wrong}", tr("the arguments are not a JSON object", "参数不是 JSON 对象")));
        return Ok(CommandExit::Usage);
    }
    let run = ManualToolRun {
        // An alias may give the arguments another meaning.
        name: args.name.clone(),
        arguments,
        is_whole,
        question: args.query.clone().unwrap_or_default(),
    };
    let result = run_tool(run, environment, watch_signals(Interrupt::default())?).await?;
    let printed = print(&result, args.output, |out| show_result(&result, out))?;
    Ok(if result["success"] == true { printed } else { CommandExit::Failed })
}

/// Writes a result as people read it; its metadata goes to standard error.
fn show_result(result: &Value, out: &mut Stdout) -> io::Result<()> {
    let in_colour = out.colours;
    let text = |key: &str| result[key].as_str().unwrap_or_default();
    if !text("error").is_empty() {
        out.write_rendered(&render_output(text("error"), false, COLUMNS, in_colour))?;
    }
    out.write_rendered(&render_output(text("content"), true, COLUMNS, in_colour))?;
    for (key, value) in result["metadata"].as_object().into_iter().flatten() {
        print_note(format_args!("{key}: {}", render::text(value)));
    }
    Ok(())
}

/// Writes the description for `daoyou tools show`.
fn show(tool: &Value, out: &mut Stdout) -> io::Result<()> {
    let text = |key: &str| render::text(&tool[key]);
    writeln!(out, "{}: {}", text("name"), text("description"))?;
    let offered = match (tool["enabled"] == true, tool["offered"] == true) {
        (false, _) => tr("no, it is disabled (tools.disabled)", "否，已停用（tools.disabled）"),
        (true, true) => tr("in each request", "在每个请求中"),
        (true, false) => tr("after find_tools has found it", "由 find_tools 找到之后"),
    };
    writeln!(out, "{}: {offered}", tr("offered", "提供给模型"))?;
    let aliases: Vec<_> = render::items(&tool["aliases"]).iter().map(render::text).collect();
    if !aliases.is_empty() {
        writeln!(out, "{}: {}", tr("other names", "别名"), aliases.join(", "))?;
    }
    let output = &tool["output"];
    let lines = output["lines"].as_u64().map(|lines| format!(", {lines} {}", tr("lines", "行"))).unwrap_or_default();
    let strategy = render::text(&output["strategy"]);
    let (result, unit) = (tr("result", "结果上限"), tr("characters", "个字符"));
    writeln!(out, "{result}: {} {unit}{lines} ({strategy})", output["chars"])?;
    writeln!(out, "{}: {} s", tr("time limit", "时限"), tool["timeout_s"])?;
    let approval = tr("approval in a turn that has read from others", "读过他人内容的回合中的批准");
    writeln!(out, "{approval}: {}", text("approval"))?;
    writeln!(out, "{}:", tr("arguments", "参数"))?;
    let required = render::items(&tool["schema"]["required"]);
    for (name, argument) in tool["schema"]["properties"].as_object().into_iter().flatten() {
        let is_required = required.iter().any(|required| required == name);
        let mark = if is_required { String::new() } else { format!(", {}", tr("optional", "可选")) };
        let about = argument["description"].as_str().map(|about| format!(": {about}")).unwrap_or_default();
        writeln!(out, "  {name} ({}{mark}){about}", type_of(argument))?;
    }
    Ok(())
}

/// Returns the type of an argument in one word, or its possible values.
fn type_of(argument: &Value) -> String {
    if let Some(values) = argument["enum"].as_array() {
        return values.iter().map(render::text).collect::<Vec<_>>().join(" | ");
    }
    match (argument["type"].as_str(), argument["items"].is_object()) {
        (Some("array"), true) => format!("array of {}", type_of(&argument["items"])),
        (Some(name), _) => name.to_owned(),
        (None, _) => "any".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_found_by_name_and_alias_and_types_are_words() {
        let list = json!([{"name": "exec", "aliases": ["bash", "list"]}, {"name": "list_dir", "aliases": ["ls"]}]);
        for (name, expected) in [("exec", Some("exec")), ("LS", Some("list_dir")), ("list", Some("exec")), ("x", None)]
        {
            let found = find(&list, name).and_then(|tool| tool["name"].as_str());
            assert_eq!(found, expected, "{name}");
        }
        for (argument, expected) in [
            (json!({"type": "string"}), "string"),
            (json!({"type": "array", "items": {"type": "string"}}), "array of string"),
            (json!({"enum": ["add", "list"], "type": "string"}), "add | list"),
            (json!({}), "any"),
        ] {
            assert_eq!(type_of(&argument), expected);
        }
    }
}
