//! `daoyou doctor`.

use std::io::{self, Write};

use daoyou_channels::text::display_width;
use daoyou_channels::{Finding, Severity};

use super::output::{CleanJson, Colour, Printer, Stdout, field_line, tr};
use super::translation::{tr_fill, translate};
use super::{CommandExit, output};
use crate::cli::{DoctorArgs, Globals};
use crate::config;
use crate::gateway::doctor::{DoctorInput, DoctorReport, examine};
use crate::home::Home;

/// Runs the checks and prints the report.
///
/// # Errors
/// The report cannot be printed.
pub async fn run(args: DoctorArgs, globals: &Globals) -> anyhow::Result<CommandExit> {
    let report = match Home::locate(globals.home.clone()) {
        Err(error) => {
            let no_home = Finding::fail("home", error.to_string(), "export DAOYOU_HOME=~/.daoyou, or use --home DIR");
            DoctorReport::new(String::new(), vec![no_home], 0)
        }
        Ok(home) => {
            let env = config::environment();
            let loaded = super::config::check(super::config::read(globals, &home, &env), &home, &env);
            output::set_locale(&loaded.as_ref().map(|loaded| loaded.config.clone()).unwrap_or_default());
            Box::pin(examine(DoctorInput { home, loaded, repairs: args.fix })).await
        }
    };
    let mut out = output::stdout();
    let printed = match args.output.json {
        true => writeln!(out, "{:#}", CleanJson(&serde_json::to_value(&report)?)),
        false => print_report(&report, &mut out),
    };
    Ok(CommandExit::of_output(printed.map(|()| if report.ok { CommandExit::Ok } else { CommandExit::Failed }))?)
}

/// Prints findings, one per line, each with its remedy below.
pub fn print_findings(findings: &[Finding], out: &mut Printer<impl Write>) -> io::Result<()> {
    let width = findings.iter().map(|finding| display_width(&translate(&finding.name))).max().unwrap_or_default();
    for Finding { name, state, message, mend, fixed } in findings {
        let (colour, word) = match state {
            Severity::Ok => (Colour::Green, tr("ok  ", "正常")),
            Severity::Warn => (Colour::Yellow, tr("warn", "注意")),
            Severity::Fail => (Colour::Red, tr("fail", "失败")),
        };
        let (first, second) = match (fixed, mend) {
            (Some(done), _) => {
                let was = format!("{}{}", tr("was: ", "原状："), translate(message));
                (format!("{}{}", tr("fixed: ", "已修复："), translate(done)), Some(was))
            }
            (None, mend) => {
                let mend = mend.as_ref().map(|mend| format!("{}{}", tr("fix: ", "修复："), translate(mend)));
                (translate(message), mend)
            }
        };
        out.paint(colour, word)?;
        let name = translate(name);
        let space = " ".repeat(width.saturating_sub(display_width(&name)));
        writeln!(out, "  {name}{space}  {}", field_line(&first))?;
        if let Some(second) = second {
            writeln!(out, "{:indent$}{}", "", field_line(&second), indent = width + 8)?;
        }
    }
    Ok(())
}

fn print_report(report: &DoctorReport, out: &mut Stdout) -> io::Result<()> {
    print_findings(&report.checks, out)?;
    let count = |state| report.checks.iter().filter(|finding| finding.state == state).count();
    let (warn, fail) = (count(Severity::Warn), count(Severity::Fail));
    let fixed = report.checks.iter().filter(|finding| finding.fixed.is_some()).count();
    let mut words = vec![tr_fill("{} checks", "共检查 {} 项", &[&report.checks.len()])];
    let counts = [
        ("{} fixed", "已修复 {} 项", fixed),
        ("{} to look at", "{} 项需要注意", warn),
        ("{} failed", "{} 项失败", fail),
    ];
    words.extend(
        counts.into_iter().filter(|(_, _, count)| *count > 0).map(|(en, zh, count)| tr_fill(en, zh, &[&count])),
    );
    words.extend((warn + fail == 0).then(|| tr("all is well", "一切正常").to_owned()));
    writeln!(out, "\n{}", words.join(tr(", ", "，")))?;
    if report.fixable > 0 {
        let (en, zh) = ("`daoyou doctor --fix` fixes {} of them", "其中 {} 项可用 `daoyou doctor --fix` 修复");
        writeln!(out, "{}", tr_fill(en, zh, &[&report.fixable]))?;
    }
    Ok(())
}
