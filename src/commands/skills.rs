//! `daoyou skills` and `daoyou agents`.

use std::collections::BTreeSet;
use std::io::{self, BufRead, IsTerminal, Read, Write};

use anyhow::{Context, anyhow, bail};
use serde_json::{Value, json};

use super::access::inspect;
use super::environment::CommandEnvironment;
use super::output::{print, print_note, print_prompt, stderr_is_terminal, tr};
use super::translation::tr_fill;
use super::{CommandExit, render};
use crate::cli::{AgentsCommand, Output, SkillInstallArgs, SkillsCommand};
use crate::gateway::{
    FoundSkills, ReviewedFileKind, SkillCandidate, SkillInstaller, SkillProblem, SkillReview, check_skills,
};
use crate::query::GatewayQuery;

/// Runs `daoyou skills`.
///
/// # Errors
/// The configuration is invalid, the gateway does not answer, there is no such skill, or a folder cannot be read.
pub async fn run(command: &SkillsCommand, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    match command {
        SkillsCommand::List(output) => {
            let found = inspect(GatewayQuery::Skills, environment).await?;
            print_list(&found, "skills", (render::SKILLS, tr("no skills", "没有技能")), *output)
        }
        SkillsCommand::Show { name, output } => {
            let found = inspect(GatewayQuery::Skill(name.clone()), environment).await?;
            print(&found, *output, |out| {
                if let Some(reason) = found["reason"].as_str() {
                    writeln!(out, "{}: {reason}\n", tr("unavailable", "不可用"))?;
                }
                writeln!(out, "{}", render::text(&found["text"]))
            })
        }
        SkillsCommand::Check { folder, output } => {
            let problems = match folder {
                Some(folder) => check_skills(folder).with_context(|| folder.display().to_string())?,
                None => read_problems(&inspect(GatewayQuery::Skills, environment).await?["problems"])?,
            };
            let printed = print(&json!(problems), *output, |out| {
                problems.iter().try_for_each(|problem| writeln!(out, "{problem}"))?;
                if problems.is_empty() {
                    writeln!(out, "{}", tr("no problems", "没有问题"))?;
                }
                Ok(())
            })?;
            Ok(if problems.is_empty() { printed } else { CommandExit::Failed })
        }
        SkillsCommand::Install(args) => install(args, environment).await,
        SkillsCommand::Accept { name, yes, output } => {
            let installer = installer(environment)?;
            let (skill, review) = installer.installed(name)?;
            let Some(changes) = &review.changes else {
                return print(&json!({"name": name, "accepted": true}), *output, |out| {
                    writeln!(out, "{name}: {}", tr("unchanged since it was installed", "安装后没有改动"))
                });
            };
            if !*yes {
                print_review(&review);
            }
            let question = format!("{} {name} ({changes})?", tr("Accept", "接受"));
            if !(*yes || asks_yes(&question)?) {
                return Ok(not_done(tr("nothing is accepted; with --yes it is", "没有接受；加 --yes 即接受")));
            }
            installer.accept(name, &skill)?;
            print(&json!({"name": name, "accepted": true}), *output, |out| {
                writeln!(out, "{}: {name}", tr("accepted", "已接受"))
            })
        }
        SkillsCommand::Remove { name, output } => {
            let id = installer(environment)?.remove(name)?;
            print(&json!({"name": name, "trash": id}), *output, |out| {
                let restore = id.map(|id| format!(" (daoyou trash restore {id})")).unwrap_or_default();
                writeln!(out, "{}: {name}{restore}", tr("removed", "已移除"))
            })
        }
    }
}

fn installer(environment: &CommandEnvironment) -> anyhow::Result<SkillInstaller> {
    SkillInstaller::new(&environment.home, &environment.without_secrets()?.config)
}

/// Shows the chosen skills of a package, and installs those that the owner confirms.
async fn install(args: &SkillInstallArgs, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    let SkillInstallArgs { source, names, reference, all, replace, yes, output } = args;
    let installer = installer(environment)?;
    let found = installer.find(source, reference.as_deref()).await?;
    found.faults.iter().for_each(print_note);
    let chosen = choose(&found, names, *all)?;
    let taken: Vec<&str> = chosen.iter().map(|skill| skill.name()).filter(|name| installer.is_taken(name)).collect();
    if !taken.is_empty() && !*replace {
        bail!("{}: {}", taken.join(", "), tr("already there; --replace replaces it", "已存在；用 --replace 替换"));
    }
    let mut rows = Vec::new();
    for skill in chosen {
        let review = installer.review(&found, skill)?;
        if !output.json {
            print_review(&review);
        }
        let question = format!("{} {}?", tr("Install", "安装"), review.name);
        let agreed = *yes || (!output.json && asks_yes(&question)?);
        if agreed {
            installer.install(&found, skill)?;
        }
        let mut row = json!(review);
        row["installed"] = agreed.into();
        rows.push(row);
    }
    let names = |installed: bool| {
        let rows = rows.iter().filter(|row| row["installed"] == installed);
        rows.map(|row| render::text(&row["name"])).collect::<Vec<_>>().join(", ")
    };
    let (done, left) = (names(true), names(false));
    let printed = print(&json!(rows), *output, |out| match done.as_str() {
        "" => Ok(()),
        done => writeln!(out, "{}: {done}", tr("installed", "已安装")),
    })?;
    if left.is_empty() {
        // The faults are printed.
        return Ok(if *all && !found.faults.is_empty() { CommandExit::Failed } else { printed });
    }
    Ok(not_done(&format!(
        "{}: {left}",
        tr("not installed (--yes installs without a question)", "未安装（--yes 则不询问直接安装）")
    )))
}

/// Returns the named skills, or the only one.
fn choose<'a>(found: &'a FoundSkills, names: &[String], all: bool) -> anyhow::Result<Vec<&'a SkillCandidate>> {
    let known = || found.skills.iter().map(SkillCandidate::name).collect::<Vec<_>>().join(", ");
    if names.is_empty() {
        if found.skills.len() > 1 && !all {
            let en = "there are {} skills: name those to install, or --all: {}";
            let zh = "其中有 {} 个技能：请写出要安装的名称，或用 --all：{}";
            bail!("{}", tr_fill(en, zh, &[&found.skills.len(), &known()]));
        }
        return Ok(found.skills.iter().collect());
    }
    let find = |name: &String| {
        let skill = found.skills.iter().find(|skill| skill.name() == name);
        let words = || {
            let (en, zh) = ("there is no skill {} in it; there are: {}", "其中没有名为 {} 的技能；现有：{}");
            tr_fill(en, zh, &[&format!("{name:?}"), &known()])
        };
        skill.ok_or_else(|| anyhow!("{}", words()))
    };
    // A name that is given twice counts once.
    names.iter().collect::<BTreeSet<_>>().into_iter().map(find).collect()
}

/// Prints the contents of a skill, and what the owner must know about it.
fn print_review(review: &SkillReview) {
    let SkillReview { name, description, source, files, .. } = review;
    let version = review.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
    let license = review.license.as_ref().map(|license| format!(" ({license})")).unwrap_or_default();
    print_note(format!("{name}{version}{license}: {description}"));
    let revision = review.revision.as_ref().map(|revision| format!(" @ {revision}")).unwrap_or_default();
    print_note(format!("  {}: {source}{revision}", tr("from", "来源")));
    if !review.allowed_tools.is_empty() {
        print_note(format!("  {}: {}", tr("limits a turn to", "使用时仅限工具"), review.allowed_tools.join(", ")));
    }
    for (what, text) in
        [(tr("unavailable here", "本机不可用"), &review.unmet), (tr("changes", "改动"), &review.changes)]
    {
        if let Some(text) = text {
            print_note(format!("  {what}: {text}"));
        }
    }
    for warning in &review.warnings {
        print_note(format!("  {}: {warning}", tr("warning", "警告")));
    }
    for file in files {
        let kind = match file.kind {
            ReviewedFileKind::Text => "",
            ReviewedFileKind::Script => tr("  script", "  脚本"),
            ReviewedFileKind::Binary => tr("  binary", "  二进制"),
        };
        print_note(format!("  {:>10}  {}{kind}", file.bytes, file.path));
    }
}

/// Asks on the terminal; without a terminal, the answer is no.
fn asks_yes(question: &str) -> anyhow::Result<bool> {
    if !(io::stdin().is_terminal() && stderr_is_terminal()) {
        return Ok(false);
    }
    print_prompt(&format!("{question} [y/N] "));
    let mut answer = String::new();
    io::stdin().lock().take(100).read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes" | "是"))
}

fn not_done(note: &str) -> CommandExit {
    print_note(note);
    CommandExit::Failed
}

/// Prints the list at `key`, and then the problems of the items that cannot be used.
fn print_list(
    found: &Value,
    key: &str,
    (columns, nothing): (render::TableColumns, &str),
    output: Output,
) -> anyhow::Result<CommandExit> {
    let printed = print(&found[key], output, |out| render::table(&found[key], columns, nothing, out))?;
    read_problems(&found["problems"])?.iter().for_each(print_note);
    Ok(printed)
}

fn read_problems(problems: &Value) -> anyhow::Result<Vec<SkillProblem>> {
    serde_json::from_value(problems.clone()).context("the gateway's answer cannot be read")
}

/// Runs `daoyou agents`.
///
/// # Errors
/// The configuration is invalid, the gateway does not answer, or there is no such agent.
pub async fn run_agents(command: &AgentsCommand, environment: &CommandEnvironment) -> anyhow::Result<CommandExit> {
    match command {
        AgentsCommand::List(output) => {
            let found = inspect(GatewayQuery::Agents, environment).await?;
            print_list(&found, "agents", (render::AGENTS, tr("no agents", "没有智能体")), *output)
        }
        AgentsCommand::Show { name, output } => {
            let found = inspect(GatewayQuery::Agent(name.clone()), environment).await?;
            print(&found, *output, |out| {
                let mut fields = found.clone();
                let prompt = fields.as_object_mut().and_then(|fields| fields.remove("prompt")).unwrap_or_default();
                render::fields(&fields, &mut *out)?;
                writeln!(out, "\n{}", render::text(&prompt))
            })
        }
    }
}
