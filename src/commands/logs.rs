//! `daoyou logs`: the log of the gateway, wherever it is stored.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::output::{CleanJson, tr};
use super::{CommandExit, output, service, unit_file};
use crate::cli::{Globals, LogsArgs, ShownLevel};
use crate::home::{Home, LockError};
use crate::logging;

/// The maximum number of bytes of a file that are searched for its last lines.
const SEARCHED: u64 = 16_000_000;
/// The interval at which a file is checked for new lines.
const PACE: Duration = Duration::from_millis(200);

/// The place of the log.
#[derive(Debug, PartialEq, Eq)]
enum LogSource {
    File(PathBuf),
    /// The journal of systemd.
    Journal {
        is_system: bool,
    },
}

/// Prints the last lines of the log, and with `-f` new lines as they arrive.
///
/// # Errors
/// There is no log, or it cannot be read.
pub fn run(args: &LogsArgs, globals: &Globals) -> anyhow::Result<CommandExit> {
    let home = Home::locate(globals.home.clone())?;
    match find(&home)? {
        LogSource::Journal { is_system } => show_journal(args, is_system),
        LogSource::File(path) => {
            let shown = show_file(args, &path).map(|()| CommandExit::Ok);
            CommandExit::of_output(shown).with_context(|| path.display().to_string())
        }
    }
}

/// Finds the log of the running gateway, or of the last one.
fn find(home: &Home) -> anyhow::Result<LogSource> {
    let own = home.dir().join(logging::FILE_NAME);
    if let Some(pid) = running(home)? {
        return of_process(pid, &own);
    }
    if let Some(is_system) = service::installed_for(home) {
        return Ok(LogSource::Journal { is_system });
    }
    if own.is_file() {
        return Ok(LogSource::File(own));
    }
    bail!(tr(
        "no gateway runs, and none has left a log: a gateway that chats on its terminal writes daoyou.log in its home, a service \
             writes to the journal, and any other one to its standard error",
        "没有网关在运行，也没有留下日志：在终端聊天的网关写入主目录的 daoyou.log，服务写入 systemd 日志，其他情况写到标准错误输出",
    ))
}

/// Returns the pid of the gateway that holds the home.
fn running(home: &Home) -> anyhow::Result<Option<u32>> {
    // Locking would create the file.
    if !home.lock_file().exists() && !home.is_locked() {
        return Ok(None);
    }
    match home.lock_to_read() {
        // Another command is not a gateway.
        Ok(_) | Err(LockError::Held { is_temporary: true, .. }) => Ok(None),
        Err(LockError::Held { pid, .. }) => Ok(pid),
        Err(error) => Err(error.into()),
    }
}

/// Returns the place of a running gateway's log: its standard error, unless that is the terminal of a chat.
fn of_process(pid: u32, own: &Path) -> anyhow::Result<LogSource> {
    let process = Path::new("/proc").join(pid.to_string());
    let groups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
    if let Some(group) = groups.lines().find(|group| group.split('/').any(|part| part == unit_file::NAME)) {
        return Ok(LogSource::Journal { is_system: !group.contains("/user@") });
    }
    let errors = process.join("fd/2");
    let target = fs::read_link(&errors);
    if let Ok(target) = &target
        && target.is_file()
    {
        return Ok(LogSource::File(target.clone()));
    }
    if target.as_ref().is_ok_and(|target| target.starts_with("/dev/")) && own.is_file() {
        return Ok(LogSource::File(own.to_owned()));
    }
    let place = target.map_or_else(|_| errors.display().to_string(), |target| target.display().to_string());
    let (process, other) = (
        tr("the gateway writes its log to its standard error", "网关的日志写到它的标准错误输出"),
        tr("read it there, such as with `docker logs`", "请在那里查看，例如用 `docker logs`"),
    );
    Err(anyhow!("{process} (pid {pid}: {place}): {other}"))
}

fn show_journal(args: &LogsArgs, is_system: bool) -> anyhow::Result<CommandExit> {
    let mut command = Command::new("journalctl");
    command.args(if is_system { &[][..] } else { &["--user"] }).args(["--unit", unit_file::NAME, "--no-pager"]);
    command.arg("--lines").arg(args.lines.to_string()).args(args.follow.then_some("--follow"));
    let priority = match args.level {
        None | Some(ShownLevel::Trace | ShownLevel::Debug) => None,
        Some(ShownLevel::Info) => Some("info"),
        Some(ShownLevel::Warn) => Some("warning"),
        Some(ShownLevel::Error) => Some("err"),
    };
    if let Some(priority) = priority {
        command.args(["--priority", priority]);
    }
    command.stdin(Stdio::null());
    if args.output.json {
        command.args(["--output", "json", "--all", "--quiet"]).stdout(Stdio::piped());
    }
    let mut journal = command.spawn().context("journalctl cannot be run")?;
    if let Some(Err(error)) = journal.stdout.take().map(print_journal) {
        // A journal that is followed does not end by itself.
        journal.kill()?;
        journal.wait()?;
        return Ok(CommandExit::of_output(Err(error))?);
    }
    let ended = journal.wait()?;
    Ok(if ended.success() { CommandExit::Ok } else { CommandExit::Failed })
}

/// Prints the entries of the journal as JSON lines.
fn print_journal(entries: impl Read) -> io::Result<()> {
    let mut out = output::stdout();
    for entry in BufReader::new(entries).lines() {
        // The journal also writes separators such as "-- Boot … --".
        let Ok(entry @ Value::Object(_)) = serde_json::from_str(&entry?) else { continue };
        let mut line = line_as_json(&journal_text(&entry["MESSAGE"]));
        if line["time"].is_null() {
            let micros = entry["__REALTIME_TIMESTAMP"].as_str().and_then(|micros| micros.parse().ok());
            let time = micros.and_then(|micros| Timestamp::from_microsecond(micros).ok());
            line["time"] = json!(time.map(|time| time.to_string()));
        }
        writeln!(out, "{}", CleanJson(&line))?;
        out.flush()?;
    }
    Ok(())
}

/// Returns the text of a field: a string, or its bytes if some of them are unprintable (systemd.journal-fields(7)).
fn journal_text(field: &Value) -> String {
    let byte = |number: &Value| number.as_u64().and_then(|number| u8::try_from(number).ok());
    let bytes = field.as_array().map(|numbers| numbers.iter().filter_map(byte).collect::<Vec<_>>());
    match bytes {
        Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        None => field.as_str().unwrap_or_default().to_owned(),
    }
}

/// Prints a line as it is, or as JSON.
fn print_line(line: &str, is_json: bool, out: &mut impl Write) -> io::Result<()> {
    if is_json { writeln!(out, "{}", CleanJson(&line_as_json(line))) } else { writeln!(out, "{line}") }
}

/// Returns the time, level, target and message of a line. A line of another form, such as that of a panic, is a message alone.
fn line_as_json(line: &str) -> Value {
    if let Ok(Value::Object(mut fields)) = serde_json::from_str(line) {
        let time = fields.remove("timestamp").unwrap_or_default();
        fields.insert("time".to_owned(), time);
        return Value::Object(fields);
    }
    let (time, rest) = match line.split_once(' ') {
        Some((first, rest)) if first.parse::<Timestamp>().is_ok() => (Some(first), rest),
        _ => (None, line),
    };
    let level = rest.trim_start().split_once(' ').filter(|(word, _)| ShownLevel::parse(word).is_some());
    match level.and_then(|(level, rest)| Some((level, rest.split_once(": ")?))) {
        Some((level, (target, message))) => {
            json!({ "time": time, "level": level, "target": target, "message": message })
        }
        None => json!({ "time": null, "level": null, "target": null, "message": line }),
    }
}

fn show_file(args: &LogsArgs, path: &Path) -> io::Result<()> {
    let mut out = output::stdout();
    let mut file = File::open(path)?;
    let (position, last) = last_lines(&mut file, args)?;
    let earlier = earlier_lines(path, args, last.lines().count())?;
    earlier.lines().chain(last.lines()).try_for_each(|line| print_line(line, args.output.json, &mut out))?;
    out.flush()?;
    if args.follow { follow(path, (file, position), args, &mut out) } else { Ok(()) }
}

/// Writes new lines after a position of the file, until the file cannot be read or the reader of the output is gone.
fn follow(path: &Path, (mut file, mut position): (File, u64), args: &LogsArgs, out: &mut impl Write) -> io::Result<()> {
    let mut partial = Vec::new();
    loop {
        thread::sleep(PACE);
        let (known, now) = (file.metadata()?, fs::metadata(path));
        // The file was emptied, or replaced by a new one.
        let is_replaced = now.is_ok_and(|now| (now.dev(), now.ino()) != (known.dev(), known.ino()));
        if known.len() < position || (is_replaced && known.len() == position) {
            file = File::open(path)?;
            position = 0;
            partial.clear();
        }
        file.seek(SeekFrom::Start(position))?;
        position += (&mut file).take(SEARCHED).read_to_end(&mut partial)? as u64;
        let Some(end) = partial.iter().rposition(|byte| *byte == b'\n') else { continue };
        let lines: Vec<u8> = partial.drain(..=end).collect();
        for line in String::from_utf8_lossy(&lines).lines().filter(|line| is_shown(line, args.level)) {
            print_line(line, args.output.json, out)?;
        }
        out.flush()?;
    }
}

/// Returns the last lines of the file before this one, if this one has only so many lines to show.
fn earlier_lines(path: &Path, args: &LogsArgs, shown: usize) -> io::Result<String> {
    let missing = args.lines.saturating_sub(u32::try_from(shown).unwrap_or(u32::MAX));
    match File::open(path.with_added_extension("1")) {
        Ok(mut file) => Ok(last_lines(&mut file, &LogsArgs { lines: missing, ..*args })?.1),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error),
    }
}

/// Returns the end of the file, and its last lines.
fn last_lines(file: &mut File, args: &LogsArgs) -> io::Result<(u64, String)> {
    let end = file.metadata()?.len();
    file.seek(SeekFrom::Start(end.saturating_sub(SEARCHED)))?;
    let mut text = Vec::new();
    file.take(SEARCHED).read_to_end(&mut text)?;
    // The text after the last line feed is not a complete line yet.
    let complete = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let rest = (text.len() - complete) as u64;
    let text = String::from_utf8_lossy(&text[..complete]);
    let mut lines: Vec<&str> =
        text.lines().rev().filter(|line| is_shown(line, args.level)).take(args.lines as usize).collect();
    lines.reverse();
    Ok((end.max(rest) - rest, lines.iter().map(|line| format!("{line}\n")).collect()))
}

/// Returns true for a line of at least this level. A line without a level, such as that of a panic, is always shown.
fn is_shown(line: &str, least: Option<ShownLevel>) -> bool {
    let Some(least) = least else { return true };
    let word = match line.starts_with('{') {
        true => serde_json::from_str::<Value>(line).ok().and_then(|line| Some(line["level"].as_str()?.to_owned())),
        false => line.split_whitespace().nth(1).map(str::to_owned),
    };
    word.and_then(|word| ShownLevel::parse(&word)).is_none_or(|level| level >= least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Output;

    #[test]
    fn lines_are_filtered_by_their_level() {
        for (line, warn, info) in [
            ("2026-01-01T00:00:00Z  WARN daoyou: a", true, true),
            ("2026-01-01T00:00:00Z ERROR daoyou: a", true, true),
            ("2026-01-01T00:00:00Z  INFO daoyou: ERROR", false, true),
            ("2026-01-01T00:00:00Z DEBUG daoyou: a", false, false),
            ("{\"level\":\"WARN\"}", true, true),
            ("{\"level\":\"DEBUG\"}", false, false),
            ("thread 'main' panicked at src/x.rs", true, true),
            ("", true, true),
        ] {
            let shown = [ShownLevel::Warn, ShownLevel::Info].map(|level| is_shown(line, Some(level)));
            assert_eq!(shown, [warn, info], "{line}");
            assert!(is_shown(line, None));
        }
    }

    #[test]
    fn lines_become_time_level_target_and_message() {
        const TIME: &str = "2026-01-01T00:00:00.123Z";
        let none = Value::Null;
        for (line, expected) in [
            (
                "2026-01-01T00:00:00.123Z  WARN daoyou::x: a: b c=1",
                [json!(TIME), "WARN".into(), "daoyou::x".into(), "a: b c=1".into()],
            ),
            (" INFO daoyou: ready", [none.clone(), "INFO".into(), "daoyou".into(), "ready".into()]),
            (
                "thread 'main' panicked at src/x.rs",
                [none.clone(), none.clone(), none.clone(), "thread 'main' panicked at src/x.rs".into()],
            ),
            (
                "{\"timestamp\":\"2026-01-01T00:00:00.123Z\",\"level\":\"WARN\",\"target\":\"daoyou\",\"message\":\"a\",\"n\":1}",
                [json!(TIME), "WARN".into(), "daoyou".into(), "a".into()],
            ),
        ] {
            let shown = line_as_json(line);
            assert_eq!(["time", "level", "target", "message"].map(|key| shown[key].clone()), expected, "{line}");
        }
    }

    #[test]
    fn the_last_complete_lines_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for (text, lines, expected, end) in
            [("a\nb\nc\n", 2, "b\nc\n", 6), ("a\nb\nhalf", 5, "a\nb\n", 4), ("half", 5, "", 0), ("", 5, "", 0)]
        {
            fs::write(&path, text).unwrap();
            let args = LogsArgs { lines, follow: false, level: None, output: Output::default() };
            let found = last_lines(&mut File::open(&path).unwrap(), &args).unwrap();
            assert_eq!(found, (end, expected.to_owned()), "{text:?}");
        }
        let args = LogsArgs { lines: 3, follow: false, level: None, output: Output::default() };
        assert_eq!(earlier_lines(&path, &args, 1).unwrap(), "");
        fs::write(path.with_added_extension("1"), "a\nb\nc\n").unwrap();
        for (shown, expected) in [(1, "b\nc\n"), (3, ""), (0, "a\nb\nc\n")] {
            assert_eq!(earlier_lines(&path, &args, shown).unwrap(), expected, "{shown} are shown");
        }
    }
}
